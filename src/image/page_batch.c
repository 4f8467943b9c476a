/* Batches of the page writer: see page_batch.h. */
#include "image/page_batch.h"

#include "base/error.h"

#include <string.h>

void sp_page_batch_clear(struct sp_page_batch *batch)
{
	batch->piece_count = 0;
	batch->data_pages = 0;
	batch->frame = (struct sp_frame){0};
	batch->object_count = batch->run_count = 0;
	batch->has_common = false;
	batch->page = 0;
}

/* The last piece if `piece` goes on where it ends, or NULL. */
static struct sp_page_piece *piece_before(struct sp_page_batch *batch,
                                          const struct sp_page_piece *piece)
{
	struct sp_page_piece *last;

	if (batch->piece_count == 0)
		return NULL;
	last = &batch->pieces[batch->piece_count - 1];
	return last->object == piece->object && last->state == piece->state &&
	                       last->source == piece->source &&
	                       last->page + last->pages == piece->page
	               ? last
	               : NULL;
}

uint64_t sp_page_batch_add(struct sp_page_batch *batch, const struct sp_page_piece *piece)
{
	struct sp_page_piece *before = piece_before(batch, piece);
	uint64_t pages = piece->pages;

	if (piece->state == SP_PAGE_DATA && pages > SP_FRAME_PAGES - batch->data_pages)
		pages = SP_FRAME_PAGES - batch->data_pages;
	if (pages == 0)
		return 0;
	if (before) {
		before->pages += pages;
	} else {
		if (batch->piece_count == SP_BATCH_PIECES)
			return 0;
		batch->pieces[batch->piece_count] = *piece;
		batch->pieces[batch->piece_count++].pages = pages;
	}
	if (piece->state == SP_PAGE_DATA)
		batch->data_pages += pages;
	return pages;
}

static int read_parts(const struct sp_page_source *source, const struct sp_range *parts,
                      size_t count, uint8_t *pages, struct sp_error *err)
{
	int rc = 0;

	if (count > 0 && source->read_parts)
		return source->read_parts(source->context, parts, count, pages, err);
	for (size_t i = 0; i < count && rc >= 0; i++) {
		rc = source->read(source->context, parts[i].start, pages, sp_range_size(parts[i]),
		                  err);
		pages += sp_range_size(parts[i]);
	}
	return rc;
}

/* Pieces one behind the other that come from one source are read at once. */
int sp_page_batch_read(const struct sp_page_batch *batch, struct sp_error *err)
{
	const struct sp_page_source *source = NULL;
	struct sp_range parts[SP_FRAME_PAGES];
	uint8_t *pages = batch->pages;
	size_t count = 0, size = 0;

	for (size_t i = 0; i < batch->piece_count; i++) {
		const struct sp_page_piece *piece = &batch->pieces[i];
		uint64_t start = piece->page * SP_PAGE_SIZE;

		if (piece->state != SP_PAGE_DATA)
			continue;
		if (piece->source != source) {
			int rc = read_parts(source, parts, count, pages, err);

			if (rc < 0)
				return rc;
			pages += size;
			count = size = 0;
			source = piece->source;
		}
		parts[count] = (struct sp_range){start, start + piece->pages * SP_PAGE_SIZE};
		size += sp_range_size(parts[count++]);
	}
	return read_parts(source, parts, count, pages, err);
}

/* --- from pieces to runs --- */

static bool page_is_zero(const uint8_t *page)
{
	uint64_t words[16];

	for (size_t at = 0; at < SP_PAGE_SIZE; at += sizeof(words)) {
		uint64_t any = 0;

		memcpy(words, page + at, sizeof(words));
		for (size_t i = 0; i < 16; i++)
			any |= words[i];
		if (any)
			return false;
	}
	return true;
}

static void begin_object(struct sp_page_batch *batch, const struct sp_page_piece *piece)
{
	if (batch->object_count > 0 && batch->objects[batch->object_count - 1] == piece->object)
		return;
	batch->objects[batch->object_count] = piece->object;
	batch->origins[batch->object_count] = piece->origin;
	batch->object_runs[batch->object_count++] = 0;
	batch->page = 0;
}

static void append_run(struct sp_page_batch *batch, uint64_t page, uint64_t pages,
                       enum sp_page_state state)
{
	uint32_t *object_runs = &batch->object_runs[batch->object_count - 1];
	size_t last = batch->run_count - 1;

	if (*object_runs > 0 && batch->page == page && batch->states[last] == state) {
		batch->lengths[last] += pages;
	} else {
		batch->gaps[batch->run_count] = page - batch->page;
		batch->lengths[batch->run_count] = pages;
		batch->states[batch->run_count++] = state;
		++*object_runs;
	}
	batch->page = page + pages;
}

/* Runs of a DATA piece whose contents begin at `*from`; what is kept moves down to `*to`. */
static void sort_out_data(struct sp_page_batch *batch, const struct sp_page_piece *piece,
                          const uint8_t **from, uint8_t **to)
{
	for (uint64_t i = 0; i < piece->pages; i++, *from += SP_PAGE_SIZE) {
		if (page_is_zero(*from)) {
			append_run(batch, piece->page + i, 1, SP_PAGE_ZERO);
			continue;
		}
		append_run(batch, piece->page + i, 1, SP_PAGE_DATA);
		if (*to != *from)
			memcpy(*to, *from, SP_PAGE_SIZE);
		*to += SP_PAGE_SIZE;
		batch->frame.pages++;
	}
}

void sp_page_batch_sort_out(struct sp_page_batch *batch)
{
	const uint8_t *from = batch->pages;
	uint8_t *to = batch->pages;

	for (size_t i = 0; i < batch->piece_count; i++) {
		const struct sp_page_piece *piece = &batch->pieces[i];

		begin_object(batch, piece);
		batch->has_common |= piece->state == SP_PAGE_COMMON;
		if (piece->state == SP_PAGE_DATA)
			sort_out_data(batch, piece, &from, &to);
		else
			append_run(batch, piece->page, piece->pages, piece->state);
	}
}

void sp_page_batch_chunk(struct sp_page_batch *batch, Sealpoint__PageIndex *chunk)
{
	sealpoint__page_index__init(chunk);
	chunk->layer = batch->layer;
	if (batch->frame.pages > 0) {
		chunk->frame_offset = batch->frame.offset;
		chunk->frame_size = batch->frame.size;
		chunk->frame_encoding = batch->frame.encoding;
		chunk->frame_checksum = batch->frame.checksum;
	}
	chunk->n_objects = chunk->n_object_runs = batch->object_count;
	chunk->objects = batch->objects;
	chunk->object_runs = batch->object_runs;
	chunk->n_origins = batch->has_common ? batch->object_count : 0;
	chunk->origins = batch->origins;
	chunk->n_gaps = chunk->n_lengths = chunk->n_states = batch->run_count;
	chunk->gaps = batch->gaps;
	chunk->lengths = batch->lengths;
	chunk->states = batch->states;
}
