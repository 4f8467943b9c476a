/*
 * The page index in memory: what state each page of each object has, and where its contents are. A
 * sorted array of runs, 24 bytes each, searched by halving. What one object has in common with another
 * (COMMON) is found at the other's place when the index is complete, and has that state from then on.
 *
 * This is also the reader of pages.idx: everything in a chunk is checked before it becomes a run.
 * The layers in which a running program was saved are laid over each other here, once, and nobody
 * else has to know of them: page_layers.c.
 */
#ifndef SEALPOINT_IMAGE_PAGE_INDEX_H
#define SEALPOINT_IMAGE_PAGE_INDEX_H

#include "base/array.h"
#include "image/page_frame.h"
#include "image/record.h"

#include "page_index.pb-c.h"

/* Page numbers are below this: byte offsets never overflow, and numbers of pages fit 48 bits. */
#define SP_INDEX_PAGES_END ((1ULL << 48) - 1)

struct sp_index_run {
	uint64_t page;       /* the first */
	uint64_t pages : 48; /* how many */
	uint64_t state : 3;  /* enum sp_page_state */
	uint64_t layer : 6;  /* that it was added in */
	uint64_t place : 7;  /* DATA: the first page's place in the frame, in pages */
	uint32_t object;
	union {
		uint32_t frame;  /* DATA: index of the frame */
		uint32_t origin; /* COMMON, PARENT: the object that has it, here or in the parent */
	};
};

/** The part of a run from `page` to `end`, which are inside of it. */
static inline struct sp_index_run sp_index_run_part(const struct sp_index_run *run, uint64_t page,
                                                    uint64_t end)
{
	struct sp_index_run part = *run;

	part.page = page;
	part.pages = end - page;
	if (run->state == SP_PAGE_DATA)
		part.place += page - run->page;
	return part;
}

struct sp_page_index {
	struct sp_array runs;   /* struct sp_index_run, by object and page; no two overlap */
	struct sp_array frames; /* struct sp_frame, in the order of the index */
	uint64_t file_size;     /* of pages.img */
	uint32_t layers;        /* how many there may be: runs have a layer below this */
	bool sorted;            /* runs are in order so far */
	bool has_common;        /* there are COMMON runs, which are not resolved yet */
};

void sp_page_index_init(struct sp_page_index *index, uint64_t file_size);
void sp_page_index_release(struct sp_page_index *index);
/** Adds the runs and the frame of one chunk. */
int sp_page_index_add(struct sp_page_index *index, const Sealpoint__PageIndex *chunk,
                      struct sp_error *err);
/**
 * Sorts, checks the whole (no page has two states in a layer, and the frames cover pages.img
 * exactly), and lays the layers over each other.
 */
int sp_page_index_complete(struct sp_page_index *index, struct sp_error *err);
/** The same with the pages.idx of a directory. */
int sp_page_index_read_file(struct sp_page_index *index, int dirfd, struct sp_error *err);
/** Forgets the object's pages outside of `ranges` (struct sp_range, ascending). */
void sp_page_index_keep(struct sp_page_index *index, uint32_t object,
                        const struct sp_array *ranges);
/** Adds to `pages` and `raw_bytes`; frames of DATA runs are numbered below `frames`. */
void sp_page_index_count_pages(const struct sp_page_index *index, size_t frames,
                               struct sp_page_stats *stats);
/** What there is: see struct sp_page_stats. */
void sp_page_index_stats(const struct sp_page_index *index, struct sp_page_stats *stats);

/** Number of the first run of the object, or behind it, that ends behind `page`. */
size_t sp_page_index_search(const struct sp_page_index *index, uint32_t object, uint64_t page);
/** The number of the first object behind `object` that has pages, or 0. */
uint32_t sp_page_index_object_behind(const struct sp_page_index *index, uint32_t object);
/** How many of the object's pages from `page` to `end` have a state. */
uint64_t sp_page_index_count(const struct sp_page_index *index, uint32_t object, uint64_t page,
                             uint64_t end);
/** The run with this number if it is one of the object's, or NULL. */
static inline const struct sp_index_run *sp_page_index_run(const struct sp_page_index *index,
                                                           uint32_t object, size_t number)
{
	const struct sp_index_run *run;

	if (number >= index->runs.count)
		return NULL;
	run = sp_array_at(&index->runs, number);
	return run->object == object ? run : NULL;
}

/**
 * The object's run that has the page, or NULL; and for how many pages, from there on, the answer is
 * the same.
 */
const struct sp_index_run *sp_page_index_at(const struct sp_page_index *index, uint32_t object,
                                            uint64_t page, uint64_t *pages);

/* --- page_layers.c --- */

/** Makes the sorted runs of several layers into runs that do not overlap. */
void sp_page_layers_flatten(struct sp_array *runs);
/** Appends the part of `run` from `page` to `end`, as one with the last run if it goes on there. */
void sp_page_runs_append(struct sp_array *runs, const struct sp_index_run *run, uint64_t page,
                         uint64_t end);

#endif
