/*
 * The page index in memory: what state each page of each object has, and where its contents are. A
 * sorted array of runs, 24 bytes each, searched by halving.
 *
 * This is also the reader of pages.idx: everything in a chunk is checked before it becomes a run.
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
	uint64_t state : 8;  /* enum sp_page_state */
	uint64_t place : 8;  /* DATA: the first page's place in the frame, in pages */
	uint32_t object;
	uint32_t frame; /* DATA: index of the frame */
};

struct sp_page_index {
	struct sp_array runs;   /* struct sp_index_run, by object and page; no two overlap */
	struct sp_array frames; /* struct sp_frame, in the order of the index */
	uint64_t file_size;     /* of pages.img */
	bool sorted;            /* runs are in order so far */
};

void sp_page_index_init(struct sp_page_index *index, uint64_t file_size);
void sp_page_index_release(struct sp_page_index *index);
/** Adds the runs and the frame of one chunk. */
int sp_page_index_add(struct sp_page_index *index, const Sealpoint__PageIndex *chunk,
                      struct sp_error *err);
/** Sorts, and checks the whole: no page has two states, and the frames cover pages.img exactly. */
int sp_page_index_complete(struct sp_page_index *index, struct sp_error *err);
/** Reads all chunks and completes the index. Records of other types are passed over. */
int sp_page_index_read(struct sp_page_index *index, struct sp_record_reader *reader,
                       struct sp_error *err);

/** Number of the first run of the object, or behind it, that ends behind `page`. */
size_t sp_page_index_search(const struct sp_page_index *index, uint32_t object, uint64_t page);
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

#endif
