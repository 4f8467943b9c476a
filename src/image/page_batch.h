/*
 * A batch: what one worker of the page writer does at a time, and what becomes one chunk of the
 * index. It gathers pieces in the order in which they were added, up to one frame of DATA pages;
 * scattered single pages share a batch. The worker turns the pieces into runs, the columns of the
 * chunk.
 */
#ifndef SEALPOINT_IMAGE_PAGE_BATCH_H
#define SEALPOINT_IMAGE_PAGE_BATCH_H

#include "image/page_frame.h"

#include "page_index.pb-c.h"

#define SP_BATCH_PIECES 1024
/* An all-zero page splits a piece: at worst every DATA page is a run of its own. */
#define SP_BATCH_RUNS (SP_BATCH_PIECES + SP_FRAME_PAGES)

struct sp_page_piece {
	const struct sp_page_source *source; /* NULL unless DATA */
	uint64_t page;                       /* the first */
	uint64_t pages;
	uint32_t object;
	uint32_t origin; /* of the object; 0: none */
	enum sp_page_state state;
};

struct sp_page_batch {
	uint8_t *pages; /* one frame, page-aligned: the contents of the DATA pieces */
	size_t piece_count;
	uint64_t data_pages;
	struct sp_page_piece pieces[SP_BATCH_PIECES];

	uint32_t layer;        /* of all pieces */
	struct sp_frame frame; /* frame.pages 0: no DATA page was left */
	size_t object_count, run_count;
	uint64_t page; /* behind the last run */
	uint32_t objects[SP_BATCH_PIECES];
	uint32_t object_runs[SP_BATCH_PIECES];
	uint32_t origins[SP_BATCH_PIECES];
	bool has_common; /* some run refers to them */
	uint64_t gaps[SP_BATCH_RUNS];
	uint64_t lengths[SP_BATCH_RUNS];
	uint32_t states[SP_BATCH_RUNS];
};

/** Forgets everything but the room for contents. */
void sp_page_batch_clear(struct sp_page_batch *batch);
/** Adds as much of the piece as there is room for; returns how many pages that is. */
uint64_t sp_page_batch_add(struct sp_page_batch *batch, const struct sp_page_piece *piece);
/** Reads the contents of all DATA pieces, one behind the other. */
int sp_page_batch_read(const struct sp_page_batch *batch, struct sp_error *err);
/**
 * Turns the pieces into runs. DATA pages that are all zero become ZERO; the others move together in
 * `pages`, and frame.pages says how many they are.
 */
void sp_page_batch_sort_out(struct sp_page_batch *batch);
/** The chunk of the index; its columns point into the batch. */
void sp_page_batch_chunk(struct sp_page_batch *batch, Sealpoint__PageIndex *chunk);

#endif
