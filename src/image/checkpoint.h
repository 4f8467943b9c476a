/*
 * A checkpoint directory: manifest, records, page store; written so that it exists wholly or not at
 * all.
 *
 * While it is written it is called DIR.partial-PID, beside DIR. Committing syncs all files and the
 * directory, renames it to DIR and syncs the parent directory (D4). DIR must not exist before, or
 * be an empty directory.
 */
#ifndef SEALPOINT_IMAGE_CHECKPOINT_H
#define SEALPOINT_IMAGE_CHECKPOINT_H

#include "base/array.h"
#include "image/pages.h"
#include "image/record.h"

#include "file.pb-c.h"
#include "manifest.pb-c.h"
#include "memory.pb-c.h"
#include "process.pb-c.h"

#include <limits.h>
#include <sys/types.h>

#define SP_IMAGE_VERSION_MAJOR 1
#define SP_IMAGE_VERSION_MINOR 0

#define SP_CHECKPOINT_ID_SIZE 16

#define SP_IMAGE_MANIFEST "manifest"
/* The link to the newest checkpoint of a store of snapshots. */
#define SP_STORE_LATEST "latest"
#define SP_IMAGE_RECORDS "records.img"
#define SP_IMAGE_PAGES "pages.img"
#define SP_IMAGE_PAGE_INDEX "pages.idx"

struct sp_checkpoint_writer {
	char path[PATH_MAX];    /* where it will be */
	char partial[PATH_MAX]; /* where it is until then */
	char parent[PATH_MAX];  /* where the parent is, seen from there; "" if it has none */
	int dirfd;
	struct sp_record_writer records;
	struct sp_page_writer *pages;
	bool replaces; /* what stands at `path` is a checkpoint, and is exchanged for this one */
};

/**
 * Makes the partial directory and opens both files. Refuses in words a DIR that is not empty, is no
 * directory, or has a file system mounted on it. On failure nothing is left.
 */
int sp_checkpoint_create(struct sp_checkpoint_writer *writer, const char *path,
                         const struct sp_page_writer_options *options, struct sp_error *err);
/**
 * The same for a checkpoint that is to take the place of the one at `path`, in one atomic step. Other
 * files in that directory stay there.
 */
int sp_checkpoint_create_over(struct sp_checkpoint_writer *writer, const char *path,
                              const struct sp_page_writer_options *options, struct sp_error *err);
/**
 * Fills in what `manifest` says of a parent: its id, which the caller keeps, and where the checkpoint
 * at `path` is, seen from the one that is being written.
 */
int sp_checkpoint_set_parent(struct sp_checkpoint_writer *writer, Sealpoint__Manifest *manifest,
                             const char *path, uint8_t id[SP_CHECKPOINT_ID_SIZE],
                             struct sp_error *err);
/**
 * Finishes the page store and the records, writes the manifest, syncs all of them, and renames. `manifest`
 * says root, session, generation, parent and freeze time; versions and files are added to what is
 * written, not to `manifest`, and so are id, time and machine, unless it has an id: then it is the
 * manifest of a checkpoint that this one is another form of. `stats` may be NULL. On failure nothing
 * is left.
 */
int sp_checkpoint_commit(struct sp_checkpoint_writer *writer, const Sealpoint__Manifest *manifest,
                         struct sp_page_stats *stats, struct sp_error *err);
/** Takes a commit back, unless it has replaced another checkpoint. */
void sp_checkpoint_withdraw(struct sp_checkpoint_writer *writer);
/** Removes what was written so far. Does nothing after a commit, and when called again. */
void sp_checkpoint_abandon(struct sp_checkpoint_writer *writer);

/** A checkpoint that was read: all records unpacked, every reference between them checked. */
struct sp_checkpoint {
	char path[PATH_MAX];
	int dirfd;
	Sealpoint__Manifest *manifest;
	struct sp_array processes;   /* Sealpoint__Process * */
	struct sp_array threads;     /* Sealpoint__Thread *, in the order saved: a leader first */
	struct sp_array vmas;        /* Sealpoint__Vma *, ascending in each process */
	struct sp_array files;       /* Sealpoint__OpenFile *, files[i]->id == i + 1 */
	struct sp_array descriptors; /* Sealpoint__Descriptor * */
	struct sp_page_store *pages;
	/* The checkpoint it stands on, or NULL; owned, and of use for its manifest and statistics. */
	struct sp_checkpoint *parent;
};

struct sp_checkpoint_extent {
	size_t files;
	uint64_t bytes;
};

/** The files of a checkpoint, the manifest among them, without those of its parent. */
struct sp_checkpoint_extent sp_checkpoint_extent(const struct sp_checkpoint *checkpoint);

/**
 * Opens a checkpoint and its chain. Checks versions, sizes, all checksums of records and files, the
 * page-store index and every reference (pids, file ids, ranges, object numbers), but not the frames
 * (verify does).
 * The error says what, where, and what to do.
 */
int sp_checkpoint_open(struct sp_checkpoint **checkpoint, const char *path, struct sp_error *err);
/**
 * A checkpoint that is nowhere on disk: of records that were written to memory, which is the caller's. It has
 * neither a manifest nor pages.
 */
int sp_checkpoint_of_records(struct sp_checkpoint **checkpoint, uint8_t *bytes, size_t size,
                             struct sp_error *err);
void sp_checkpoint_close(struct sp_checkpoint *checkpoint);
/** Whose mappings are those of its memory: its own, or of the one with which it shares that. */
static inline uint32_t sp_memory_owner(const Sealpoint__Process *process)
{
	return process->memory_of ? process->memory_of : process->pid;
}
/** The id of the checkpoint at `path`; nothing but its manifest is read. */
int sp_checkpoint_read_id(const char *path, uint8_t id[SP_CHECKPOINT_ID_SIZE],
                          struct sp_error *err);
/**
 * Writes to a file of that name what a checkpoint says of the machine that it is made on, and no more. A manifest is
 * such a file, too.
 */
int sp_machine_write(int dirfd, const char *name, struct sp_error *err);
/** Reads it, and refuses one of another architecture. The caller's to free, with protobuf-c. */
int sp_machine_read(int dirfd, const char *name, Sealpoint__Manifest **machine,
                    struct sp_error *err);
/** Fails if the checkpoint holds memory only, and no program that could run. */
int sp_checkpoint_need_program(const struct sp_checkpoint *checkpoint, struct sp_error *err);
/** All of open, and every frame of the chain. */
int sp_checkpoint_verify(const char *path, struct sp_log *log, struct sp_error *err);

/** The size of all files in a checkpoint's directory, in bytes. */
uint64_t sp_checkpoint_size(const char *path);
/** The record of an open file, or NULL for 0 or an id that is not there. */
const Sealpoint__OpenFile *sp_checkpoint_file(const struct sp_checkpoint *checkpoint, uint32_t id);
const Sealpoint__Process *sp_checkpoint_root(const struct sp_checkpoint *checkpoint);
/** The living process of that number; for 0 the root. ESRCH if there is none. */
int sp_checkpoint_find_process(const struct sp_checkpoint *checkpoint, pid_t pid,
                               const Sealpoint__Process **process, struct sp_error *err);

#endif
