/*
 * What the files that rebuild memory share: walking the VMAs of a process in a checkpoint, and
 * batches of remote calls of which each is about one VMA, so that a failure names its mapping.
 */
#ifndef SEALPOINT_MEM_REBUILD_H
#define SEALPOINT_MEM_REBUILD_H

#include "mem/memory.h"

/** The next VMA of the build's process after `*index` (start at 0), or NULL. */
const Sealpoint__Vma *sp_next_vma(const struct sp_memory_build *build, size_t *index);

static inline struct sp_range sp_vma_record_range(const Sealpoint__Vma *vma)
{
	return (struct sp_range){vma->start, vma->end};
}

/** Made by mmap(2) at restore, as opposed to vvar and vsyscall, which are the kernel's. */
bool sp_vma_is_made(const Sealpoint__Vma *vma);

/** Kept of what the stub has of its parent's: not made anew. */
bool sp_vma_is_kept(const struct sp_memory_build *build, const Sealpoint__Vma *vma);

/**
 * The mappings of the calling process, whose copy the stub is, from /proc/self/maps: ranges and
 * kinds, no flags. Release with sp_vma_list_release().
 */
int sp_own_mappings(struct sp_array *vmas, struct sp_error *err);

/** Protection while contents are filled in: writable if the VMA has contents of its own. */
int sp_vma_fill_prot(const struct sp_memory_build *build, const Sealpoint__Vma *vma, int *prot,
                     struct sp_error *err);

/* --- batches --- */

enum sp_vma_call_policy {
	SP_CALL_MUST, /* a failure fails the batch */
	SP_CALL_WARN, /* a failure is told to the user once for each `what` */
	SP_CALL_TRY,  /* a failure is no loss */
};

struct sp_vma_batch {
	struct sp_memory_build *build;
	struct sp_array calls; /* struct vma_call, rebuild.c */
	const char *warned;    /* the `what` of the last warning */
};

void sp_vma_batch_init(struct sp_vma_batch *batch, struct sp_memory_build *build);
void sp_vma_batch_release(struct sp_vma_batch *batch);
/**
 * Makes room for the calls about one VMA (or one run of its pages): runs what has gathered when
 * that is much. Addresses from sp_batch_put() are valid until the next call of this.
 */
int sp_vma_batch_room(struct sp_vma_batch *batch, struct sp_error *err);
/** Adds a call; `what` completes "cannot ... memory at". Arguments beyond the given ones are 0. */
void sp_vma_batch_add(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, const char *what,
                      enum sp_vma_call_policy policy, long number, const uint64_t args[6]);
/** Adds an madvise(2) on a part of a VMA. */
void sp_vma_batch_advise(struct sp_vma_batch *batch, const Sealpoint__Vma *vma,
                         struct sp_range range, int advice, const char *what,
                         enum sp_vma_call_policy policy);
/** Runs what has gathered and judges every result. An mmap(2) must have returned its address. */
int sp_vma_batch_run(struct sp_vma_batch *batch, struct sp_error *err);

/** Adds the calls that a VMA needs, if any. There is room for those of one VMA. */
typedef int sp_vma_step(struct sp_vma_batch *batch, const Sealpoint__Vma *vma,
                        struct sp_error *err);
/** One step of rebuilding: takes it for all VMAs of the process, in ascending order, and runs the calls. */
int sp_vma_batch_all(struct sp_memory_build *build, sp_vma_step *step, struct sp_error *err);

#endif
