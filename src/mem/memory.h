/*
 * Memory out of a process and back into one.
 *
 * Saving decides for each page of each VMA which state it has (docs/architecture.md, D6) and hands
 * it to the page store. Restoring maps all VMAs into a stub by remote calls, fills them from
 * outside (UFFDIO_COPY, or populate and process_vm_writev for huge pages and file mappings), then
 * gives each its final protection, name, advice and lock; seals come last of all.
 */
#ifndef SEALPOINT_MEM_MEMORY_H
#define SEALPOINT_MEM_MEMORY_H

#include "image/checkpoint.h"
#include "mem/page_scan.h"
#include "mem/vma.h"
#include "remote/remote.h"

/* --- saving (save.c) --- */

/**
 * Refuses, by address and name, VMAs that cannot be saved: device memory, a userfaultfd of the
 * program's own, ... Takes a list read while the process is stopped.
 */
int sp_memory_check(pid_t pid, const struct sp_array *vmas, struct sp_error *err);
/** The same for one of them. */
int sp_memory_check_vma(pid_t pid, const struct sp_vma *vma, struct sp_error *err);
/** How many pages of 4 KiB of a VMA of a process, which may be running, would be saved in each state. */
int sp_memory_survey_pages(struct sp_page_scan *scan, const struct sp_vma *vma,
                           uint64_t pages[SP_PAGE_STATES], struct sp_error *err);

/** Which pages are saved: what a dump that tracks writes adds to sp_memory_save(). */
struct sp_memory_selection {
	/*
	 * A set of ranges (base/range_set.h) that have to be looked at; all other pages are PARENT.
	 * NULL: everything.
	 */
	const struct sp_array *changed;
	/* The other pages are left out instead: a later layer of the page store tells of them. */
	bool changed_only;
	/*
	 * The program runs. A page that vanishes while it is read is stored as zeros: it counts as
	 * written, and a later layer or checkpoint replaces it.
	 */
	bool running;
	/* Some of the pages may be in common with other processes, and stay so. */
	bool shared;
	/* Those that sp_memory_find_inherited() has found are COMMON: they are stored with the parent's. */
	bool common;
	/*
	 * Not NULL: of `changed`, which must be given then, pages with contents that are better held
	 * (track/hold.h) than read are not added but listed here, for sp_memory_save_listed().
	 */
	struct sp_memory_list *list;
	/*
	 * struct sp_range, may be NULL: mappings that are left out; with `aside_only`, all others are,
	 * and of these all pages with contents are listed.
	 */
	const struct sp_array *aside;
	bool aside_only;
};

struct sp_memory_list {
	struct sp_array pages; /* struct sp_range: a set */
	struct sp_array areas; /* struct sp_range: the mappings that contain them */
};

/**
 * Adds every page of every VMA, or a selection, to the page store under `object`: states from
 * PAGEMAP_SCAN, contents to be read from the process by the writer's workers. Where the kernel has
 * no PAGEMAP_SCAN, from /proc/PID/pagemap. Shared mappings of files, memfds and shared anonymous
 * memory are stored with their file, not here: their resident pages are FILE, the others HOLE.
 * Notes transparent huge pages in each VMA (`huge`).
 */
int sp_memory_save(pid_t pid, const struct sp_array *vmas,
                   const struct sp_memory_selection *selection, struct sp_page_writer *writer,
                   uint32_t object, struct sp_error *err);
/**
 * True if changes of this mapping should rather be held than read while the program waits: they are a good part of it,
 * or more than `most` bytes.
 */
bool sp_memory_is_worth_holding(const struct sp_vma *vma, const struct sp_array *changed,
                                uint64_t most);
/**
 * Adds pages that sp_memory_save() has listed, as contents from `source`, a source of the page store;
 * NULL: the process. Ranges of lower layers only.
 */
int sp_memory_save_listed(pid_t pid, const struct sp_array *pages,
                          const struct sp_page_source *source, struct sp_page_writer *writer,
                          uint32_t object, struct sp_error *err);
/**
 * Notes in each VMA of a stopped process which pages it still has in common with its parent, which stands
 * still too, since fork(2).
 */
int sp_memory_find_inherited(pid_t pid, const struct sp_array *vmas, pid_t parent,
                             struct sp_error *err);
/** Fills in the record of a VMA, after sp_memory_save(). Strings and lists stay owned by `vma`. */
void sp_vma_to_record(const struct sp_vma *vma, pid_t pid, Sealpoint__Vma *record);

/* --- reading a checkpoint --- */

/** How many pages of 4 KiB, whatever the mapping's page size, of a VMA are in each state. */
int sp_memory_count_pages(const struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                          const Sealpoint__Vma *vma, uint64_t pages[SP_PAGE_STATES],
                          struct sp_error *err);

/* --- restoring --- */

struct sp_memory_build {
	const struct sp_checkpoint *checkpoint;
	const Sealpoint__Process *process;
	struct sp_remote *remote; /* the stub */
	const int *fds;           /* by OpenFile.id: number in the stub of the file to map */
	/*
	 * The parent's, which was filled before the stub was cloned from it; NULL: nothing of what the stub
	 * has is kept.
	 */
	const struct sp_memory_build *parent;
	/* Ascending: mappings that are kept, and pages in them that are filled already (inherit.c) */
	struct sp_array kept, inherited;
	/* Its mappings are among checkpoint->vmas[first_vma...end_vma); both 0: of them all. */
	size_t first_vma, end_vma;
	struct sp_log *log;
	/* where the stub's own vDSO and vvar were parked (sp_vdso_park), 0 if it has none */
	struct sp_range parked_vdso, parked_vvar;
};

/**
 * A free range of `size` bytes, page-aligned, that no VMA of the checkpoint, whichever process it is
 * of, and no mapping of the calling process (whose copies the stubs are) touches. ENOMEM if there is
 * none.
 */
int sp_memory_find_free(const struct sp_checkpoint *checkpoint, uint64_t size, remote_addr *address,
                        struct sp_error *err);
/**
 * Finds out which mappings of the parent the stub keeps because pages in them are to be shared. Ends with
 * sp_memory_release(). (inherit.c)
 */
void sp_memory_plan_inherited(struct sp_memory_build *build);
void sp_memory_release(struct sp_memory_build *build);
/**
 * Unmaps everything in the stub but `keep` (the temporary pages), the parked vDSO and what it keeps of its
 * parent's. Unregisters the rseq area that the stub has from sealpoint's C library. (map.c)
 */
int sp_memory_empty(struct sp_memory_build *build, struct sp_range keep, struct sp_error *err);
/**
 * Makes all mappings, writable for now where contents have to be filled in (map.c), but for segments of
 * System V shared memory, which are attached next (attach.c).
 */
int sp_memory_map(struct sp_memory_build *build, struct sp_error *err);
int sp_memory_attach(struct sp_memory_build *build, struct sp_error *err);
/** Takes out of the mappings that were kept what is not to be shared. (inherit.c) */
int sp_memory_drop_uninherited(struct sp_memory_build *build, struct sp_error *err);
/** Fills in all contents; huge pages huge, holes holes. (fill.c) */
int sp_memory_fill(struct sp_memory_build *build, struct sp_error *err);
/** Maps those pages of files again that were mapped from the page cache. (resident.c) */
int sp_memory_make_resident(struct sp_memory_build *build, struct sp_error *err);
/** Final protection, protection keys, names, advice, guard pages, locks. (finish.c) */
int sp_memory_finish(struct sp_memory_build *build, struct sp_error *err);
/** Seals what was sealed: one mseal(2) per VMA, after everything else. (seal.c) */
int sp_memory_seal(struct sp_memory_build *build, struct sp_error *err);

/* --- the vDSO (vdso.c) --- */

/** Moves the stub's vDSO and vvar out of the way, to `park` (found with sp_memory_find_free()). */
int sp_vdso_park(struct sp_memory_build *build, remote_addr park, struct sp_error *err);
/** How much room the calling process's own vDSO and vvar take; 0 if it has none. */
uint64_t sp_vdso_size(void);
/**
 * After sp_memory_fill(): moves the parked vDSO to where the program had its own if they are the
 * same; otherwise moves it to a free place and redirects each function of the program's old vDSO
 * image to it; unmaps it if the program had none.
 */
int sp_vdso_place(struct sp_memory_build *build, struct sp_error *err);

#endif
