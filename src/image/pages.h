/*
 * The page store: contents of address spaces and of files, by object and page.
 *
 * An object is an address space of a process (offsets are addresses) or the contents of a memfd, of
 * a shared anonymous mapping or of an unlinked file (offsets are file offsets). Each page of an
 * object that was added has exactly one state (docs/architecture.md, D6).
 *
 * On disk: pages.img holds independent frames of up to 512 KiB of pages, zstd frames with content
 * checksum, or raw and page-aligned with "none" so that others can map them; pages.idx holds
 * SP_RECORD_PAGE_INDEX records: for runs of pages their state, and for DATA the frame and the place
 * in it; for frames their offset, sizes and checksum.
 *
 * The writer reads pages in the caller's thread, as they are added. A pool of workers finds
 * all-zero pages (DATA becomes ZERO), compresses and writes. Up to 4 MiB may have been read and wait
 * for a worker, and in a freeze up to 26: that and the compressors are all the memory it takes,
 * whatever is saved.
 */
#ifndef SEALPOINT_IMAGE_PAGES_H
#define SEALPOINT_IMAGE_PAGES_H

#include "base/range.h"

#include <stddef.h>

struct sp_array;
struct sp_error;
struct sp_log;

enum sp_page_state {
	SP_PAGE_HOLE = 0,   /* not populated */
	SP_PAGE_DATA = 1,   /* contents stored here */
	SP_PAGE_PARENT = 2, /* as in the layers below, else as in the parent checkpoint */
	SP_PAGE_ZERO = 3,   /* populated, all zero */
	SP_PAGE_FILE = 4,   /* populated, contents are the mapped file's */
	SP_PAGE_GUARD = 5,  /* MADV_GUARD_INSTALL */
	SP_PAGE_COMMON = 6, /* as in the object's origin, at the same place */
	SP_PAGE_STATES
};

const char *sp_page_state_name(enum sp_page_state state);

#define SP_FRAME_SIZE (512ULL << 10)
#define SP_PAGE_LAYERS 64
#define SP_COMPRESS_NONE (-1000) /* `level` for raw frames */
#define SP_COMPRESS_DEFAULT 1

/** Where the writer gets contents from, in the thread that adds them. */
struct sp_page_source {
	int (*read)(void *context, uint64_t offset, void *buffer, size_t size,
	            struct sp_error *err);
	void *context;
	void (*release)(void *context); /* may be NULL; called once, when the writer is finished */
	/** May be NULL. The same for `count` ranges of offsets at once, one behind the other. */
	int (*read_parts)(void *context, const struct sp_range *parts, size_t count, void *buffer,
	                  struct sp_error *err);
};

/** With layers, pages count once, in the state that the topmost layer gives them. */
struct sp_page_stats {
	uint64_t pages[SP_PAGE_STATES];
	uint64_t raw_bytes;        /* of DATA pages, each once, whatever objects have it */
	uint64_t superseded_bytes; /* of pages that are stored, but do not count any more */
	uint64_t stored_bytes;     /* size of pages.img */
	uint64_t frames;
};

struct sp_page_writer;

struct sp_page_writer_options {
	int level;        /* zstd level (negative ones are fast), or SP_COMPRESS_NONE */
	unsigned workers; /* 0: one per online processor, at most 16 */
	bool read_ahead; /* somebody waits for the reading, not for the writing: see pages_writer.c */
	/* uint8_t *: what writers one after the other read into; NULL: each has its own */
	struct sp_array *room;
	struct sp_log *log; /* may be NULL; progress against expected_bytes */
	uint64_t expected_bytes;
};

int sp_page_writer_open(struct sp_page_writer **writer, int dirfd,
                        const struct sp_page_writer_options *options, struct sp_error *err);
/** Frees what the last writer has left to the next: memory that was touched before is filled faster. */
void sp_page_room_free(struct sp_array *room);
/** A new object number, from 1. */
uint32_t sp_page_writer_new_object(struct sp_page_writer *writer);
/** A certain number, which no new object gets from now on. */
void sp_page_writer_use_object(struct sp_page_writer *writer, uint32_t object);
/**
 * Says where COMMON pages of an object are: in another one, with a lower number, that has contents at
 * the same places when all is written. They are stored there only, and no reader sees that.
 */
void sp_page_writer_set_origin(struct sp_page_writer *writer, uint32_t object, uint32_t origin);
/** Registers a source; valid until the writer is finished. Returns a handle for add(). */
uint32_t sp_page_writer_add_source(struct sp_page_writer *writer, struct sp_page_source source);
/**
 * Adds pages. Ranges of one object must ascend and not overlap in a layer; objects may be added in
 * turn. SP_PAGE_DATA pages are read from their source by this or a later call, at the latest by
 * sp_page_writer_drain(); other states need no source. Waits while too much is waiting for the
 * workers. An error of a worker is returned by this or a later call.
 */
int sp_page_writer_add(struct sp_page_writer *writer, uint32_t object, struct sp_range range,
                       enum sp_page_state state, uint32_t source, struct sp_error *err);
/**
 * Begins a new layer: each object may be added to again from its beginning, and what is added
 * replaces the states that layers below gave these pages. Reads first what is still to be read of
 * all that was added. There are at most SP_PAGE_LAYERS.
 */
int sp_page_writer_next_layer(struct sp_page_writer *writer, struct sp_error *err);
/** Reads what is still to be read of all that was added: from then on the sources may change. */
int sp_page_writer_drain(struct sp_page_writer *writer, struct sp_error *err);
/**
 * For a freeze, up to sp_page_writer_resume(). The workers step aside, for a moment when every
 * processor counts, once they have done what they are at, until one of the functions above has to wait
 * for them. With `read_ahead` that is when 26 MiB have been read.
 */
void sp_page_writer_pause(struct sp_page_writer *writer);
void sp_page_writer_resume(struct sp_page_writer *writer);
/**
 * Writes the index, frees the writer, also on failure. Both files are still to be synced. `stats`
 * may be NULL.
 */
int sp_page_writer_finish(struct sp_page_writer *writer, struct sp_page_stats *stats,
                          struct sp_error *err);
/** Stops the workers and frees everything; the files stay half written for the caller to remove. */
void sp_page_writer_abandon(struct sp_page_writer *writer);

/* --- reading --- */

struct sp_page_store;

struct sp_page_run {
	struct sp_range range;
	enum sp_page_state state; /* never PARENT or COMMON from a walk: both are resolved */
};

/** Receives an object's contents. data() and zero() are called by several threads at once. */
struct sp_page_sink {
	int (*data)(void *context, uint64_t offset, const void *bytes, size_t size,
	            struct sp_error *err);
	int (*zero)(void *context, struct sp_range range, struct sp_error *err); /* may be NULL */
	void *context;
};

/**
 * Opens the store of a checkpoint directory. `parent` is the store to resolve PARENT pages in, or
 * NULL; it must live as long. Everything read is checked before use.
 */
int sp_page_store_open(struct sp_page_store **store, int dirfd, struct sp_page_store *parent,
                       struct sp_error *err);
void sp_page_store_close(struct sp_page_store *store);
/** What this store says and holds, without those below it: pages of the chain count as PARENT. */
void sp_page_store_stats(struct sp_page_store *store, struct sp_page_stats *stats);
/** What it says with all those below it: `pages` and `raw_bytes` only. */
void sp_page_store_chain_stats(const struct sp_page_store *store, struct sp_page_stats *stats);

/**
 * Calls `visit` for the runs of an object inside `within`, ascending; stops at a non-zero return.
 */
int sp_page_store_walk(struct sp_page_store *store, uint32_t object, struct sp_range within,
                       int (*visit)(void *context, const struct sp_page_run *run), void *context,
                       struct sp_error *err);
/**
 * Reads bytes of an object at any offset (not only page-aligned). Holes, zero and guard pages read
 * as zeros; FILE pages and pages that were never added fail with ENODATA. Keeps a few frames; one
 * thread at a time.
 */
int sp_page_store_read(struct sp_page_store *store, uint32_t object, uint64_t offset, void *buffer,
                       size_t size, struct sp_error *err);
/**
 * Gives all contents of the object inside `within` to the sink, by a pool of workers (0: one per
 * processor). `bytes` is valid during the call only.
 */
int sp_page_store_load(struct sp_page_store *store, uint32_t object, struct sp_range within,
                       const struct sp_page_sink *sink, unsigned workers, struct sp_error *err);
/** Checks every frame of the store (not of its parent): checksum, sizes, decompression. */
int sp_page_store_verify(struct sp_page_store *store, struct sp_log *log, struct sp_error *err);

/* --- copying --- */

/**
 * Adds all objects of a store to a new writer, under their numbers and with what the whole chain
 * says of them. Reads and writes in pieces of some MiB; can be interrupted.
 */
int sp_page_store_copy(struct sp_page_store *store, struct sp_page_writer *writer,
                       struct sp_error *err);

/* --- comparing --- */

struct sp_page_comparison {
	uint64_t contents; /* pages that have other contents */
	uint64_t states;   /* pages without contents of their own that are in another state */
};

/**
 * Compares pages of two objects: those of `a` in `range`, with those of `b` from `start` on. What both
 * have from the same place of the same file is not read. Adds to `result`.
 */
int sp_page_store_compare(struct sp_page_store *a, uint32_t object_a, struct sp_range range,
                          struct sp_page_store *b, uint32_t object_b, uint64_t start,
                          struct sp_page_comparison *result, struct sp_error *err);
/** The number of the first object behind `object` that has pages, or 0. */
uint32_t sp_page_store_object_behind(const struct sp_page_store *store, uint32_t object);

/* --- contents of files (memfd, shared anonymous memory, unlinked files) --- */

/**
 * Adds the contents of `fd` up to `size` as a new object, holes as HOLE. Opens the file
 * anew, so that the position of `fd` stays.
 */
int sp_content_save(struct sp_page_writer *writer, int fd, uint64_t size, uint32_t *object,
                    struct sp_error *err);
/**
 * Writes an object's contents into `fd`, a new empty file, and gives it `size`. Holes stay holes.
 */
int sp_content_load(struct sp_page_store *store, uint32_t object, int fd, uint64_t size,
                    struct sp_error *err);

#endif
