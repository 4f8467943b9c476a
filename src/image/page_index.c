/*
 * Reading the page index: see page_index.h. The sums that a chunk implies (page numbers, places in
 * a frame) are made here, each checked before it can overflow.
 */
#include "image/page_index.h"
#include "image/checkpoint.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void sp_page_index_init(struct sp_page_index *index, uint64_t file_size)
{
	*index = (struct sp_page_index){
	        .runs = SP_ARRAY_OF(struct sp_index_run),
	        .frames = SP_ARRAY_OF(struct sp_frame),
	        .file_size = file_size,
	        .layers = 1,
	        .sorted = true,
	};
}

void sp_page_index_release(struct sp_page_index *index)
{
	sp_array_release(&index->runs);
	sp_array_release(&index->frames);
}

static int compare_runs(const void *left, const void *right)
{
	const struct sp_index_run *a = left, *b = right;

	int order = sp_compare(a->object, b->object) ?: sp_compare(a->page, b->page);

	return order ?: sp_compare(a->layer, b->layer);
}

static void append_run(struct sp_page_index *index, const struct sp_index_run *run)
{
	size_t count = index->runs.count;

	if (count > 0 && compare_runs(sp_array_at(&index->runs, count - 1), run) > 0)
		index->sorted = false;
	sp_array_append(&index->runs, run);
}

/* --- one chunk --- */

/* Where the decoding of a chunk stands. */
struct chunk_cursor {
	const Sealpoint__PageIndex *chunk;
	uint32_t object;
	uint32_t origin;     /* of the object; 0: none */
	size_t run;          /* the next in the columns */
	uint64_t page;       /* behind the last run of this object */
	uint64_t data_pages; /* DATA pages so far: the place of the next one */
};

static int check_columns(const Sealpoint__PageIndex *chunk, struct sp_error *err)
{
	uint64_t runs = 0;

	if (chunk->layer >= SP_PAGE_LAYERS)
		return sp_fail(err, EBADMSG, "layer %" PRIu32 " of at most %d", chunk->layer,
		               SP_PAGE_LAYERS);
	if (chunk->n_objects != chunk->n_object_runs ||
	    (chunk->n_origins && chunk->n_objects != chunk->n_origins))
		return sp_fail(err, EBADMSG, "%zu objects with %zu numbers of runs and %zu origins",
		               chunk->n_objects, chunk->n_object_runs, chunk->n_origins);
	for (size_t i = 0; i < chunk->n_object_runs; i++)
		runs += chunk->object_runs[i];
	if (chunk->n_gaps != runs || chunk->n_lengths != runs || chunk->n_states != runs)
		return sp_fail(err, EBADMSG,
		               "columns of %zu, %zu and %zu entries for %" PRIu64 " runs",
		               chunk->n_gaps, chunk->n_lengths, chunk->n_states, runs);
	return 0;
}

static int add_run(struct sp_page_index *index, struct chunk_cursor *cursor, struct sp_error *err)
{
	uint32_t object = cursor->object;
	uint64_t gap = cursor->chunk->gaps[cursor->run];
	uint64_t length = cursor->chunk->lengths[cursor->run];
	uint32_t state = cursor->chunk->states[cursor->run];
	struct sp_index_run run = {.object = object, .layer = cursor->chunk->layer};

	cursor->run++;
	if (state >= SP_PAGE_STATES)
		return sp_fail(err, EBADMSG,
		               "object %" PRIu32 " has pages in the unknown state %" PRIu32, object,
		               state);
	if (gap >= SP_INDEX_PAGES_END - cursor->page || length == 0 ||
	    length > SP_INDEX_PAGES_END - cursor->page - gap)
		return sp_fail(err, EBADMSG,
		               "object %" PRIu32 " has a run of %" PRIu64 " pages, %" PRIu64
		               " pages behind page %" PRIu64 ", which cannot be",
		               object, length, gap, cursor->page);
	run.state = state;
	run.page = cursor->page + gap;
	run.pages = length;
	cursor->page = run.page + length;
	if (state == SP_PAGE_PARENT)
		run.origin = object;
	if (state == SP_PAGE_COMMON) {
		if (cursor->origin == 0 || cursor->origin >= object)
			return sp_fail(err, EBADMSG,
			               "object %" PRIu32 " has pages in common with object %" PRIu32
			               ", which cannot be",
			               object, cursor->origin);
		run.origin = cursor->origin;
		index->has_common = true;
	}
	if (state == SP_PAGE_DATA) {
		if (length > SP_FRAME_PAGES - cursor->data_pages)
			return sp_fail(err, EBADMSG, "a frame holds more than %llu pages",
			               SP_FRAME_PAGES);
		run.place = cursor->data_pages;
		run.frame = (uint32_t)index->frames.count;
		cursor->data_pages += length;
	}
	append_run(index, &run);
	return 0;
}

static int add_object(struct sp_page_index *index, struct chunk_cursor *cursor, size_t number,
                      struct sp_error *err)
{
	int rc;

	cursor->object = cursor->chunk->objects[number];
	cursor->origin = cursor->chunk->n_origins ? cursor->chunk->origins[number] : 0;
	if (cursor->object == 0)
		return sp_fail(err, EBADMSG, "an object has the number 0");
	cursor->page = 0;
	for (uint32_t i = 0; i < cursor->chunk->object_runs[number]; i++) {
		rc = add_run(index, cursor, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int add_frame(struct sp_page_index *index, const Sealpoint__PageIndex *chunk,
                     uint64_t data_pages, struct sp_error *err)
{
	struct sp_frame frame = {
	        .offset = chunk->frame_offset,
	        .checksum = chunk->frame_checksum,
	        .size = (uint32_t)chunk->frame_size,
	        .pages = (uint16_t)data_pages,
	        .encoding = (uint8_t)chunk->frame_encoding,
	};
	int rc;

	if ((data_pages == 0) != (chunk->frame_size == 0))
		return sp_fail(err, EBADMSG,
		               "%" PRIu64 " DATA pages in a frame of %" PRIu64 " bytes", data_pages,
		               chunk->frame_size);
	if (data_pages == 0)
		return 0;
	if (frame.size != chunk->frame_size || frame.encoding != chunk->frame_encoding)
		return sp_fail(err, EBADMSG,
		               "a frame of %" PRIu64 " bytes in encoding %" PRIu32
		               ", which cannot be",
		               chunk->frame_size, chunk->frame_encoding);
	rc = sp_frame_check(&frame, index->file_size, err);
	if (rc == 0)
		sp_array_append(&index->frames, &frame);
	return rc;
}

int sp_page_index_add(struct sp_page_index *index, const Sealpoint__PageIndex *chunk,
                      struct sp_error *err)
{
	struct chunk_cursor cursor = {.chunk = chunk};
	int rc = check_columns(chunk, err);

	if (rc == 0 && chunk->layer >= index->layers)
		index->layers = chunk->layer + 1;
	for (size_t i = 0; rc == 0 && i < chunk->n_objects; i++)
		rc = add_object(index, &cursor, i, err);
	if (rc < 0)
		return rc;
	return add_frame(index, chunk, cursor.data_pages, err);
}

/* --- the whole --- */

static int check_runs(const struct sp_page_index *index, struct sp_error *err)
{
	uint64_t ends[SP_PAGE_LAYERS] = {0}; /* of each layer's last run of the object */
	uint32_t object = 0;

	for (size_t i = 0; i < index->runs.count; i++) {
		const struct sp_index_run *run = sp_array_at(&index->runs, i);

		if (run->object != object)
			memset(ends, 0, sizeof(ends));
		object = run->object;
		if (ends[run->layer] > run->page)
			return sp_fail(err, EBADMSG,
			               "page %" PRIu64 " of object %" PRIu32 " has two states",
			               run->page, run->object);
		ends[run->layer] = run->page + run->pages;
	}
	return 0;
}

/* Every byte of pages.img belongs to exactly one frame, and so to a checksum. */
static int check_frames(const struct sp_page_index *index, struct sp_error *err)
{
	sp_cleanup_array struct sp_array extents = SP_ARRAY_OF(struct sp_range);
	uint64_t covered = 0;

	for (size_t i = 0; i < index->frames.count; i++) {
		const struct sp_frame *frame = sp_array_at(&index->frames, i);
		struct sp_range extent = {frame->offset, frame->offset + frame->size};

		sp_array_append(&extents, &extent);
	}
	sp_array_sort(&extents, sp_range_compare);
	for (size_t i = 0; i < extents.count; i++) {
		const struct sp_range *extent = sp_array_at(&extents, i);

		if (extent->start != covered)
			return sp_fail(err, EBADMSG,
			               "the frames of pages.img %s at offset %" PRIu64,
			               extent->start < covered ? "overlap" : "leave a gap",
			               extent->start < covered ? extent->start : covered);
		covered = extent->end;
	}
	if (covered != index->file_size)
		return sp_fail(err, EBADMSG,
		               "the frames of pages.img end at offset %" PRIu64
		               ", but the file has %" PRIu64 " bytes",
		               covered, index->file_size);
	return 0;
}

/*
 * What the origin of an object has at these pages becomes the object's. Origins have lower numbers: all
 * of theirs is in `resolved` already.
 */
static int append_common(struct sp_page_index *resolved, const struct sp_index_run *run,
                         struct sp_error *err)
{
	uint64_t page = run->page, end = run->page + run->pages, pages;

	while (page < end) {
		const struct sp_index_run *found =
		        sp_page_index_at(resolved, run->origin, page, &pages);
		struct sp_index_run adopted;

		if (!found)
			return sp_fail(err, EBADMSG,
			               "page %" PRIu64 " of object %" PRIu32
			               " is to be that of object %" PRIu32 ", which has none",
			               page, run->object, run->origin);
		adopted = sp_index_run_part(found, page, found->page + found->pages);
		adopted.object = run->object;
		if (pages > end - page)
			pages = end - page;
		sp_page_runs_append(&resolved->runs, &adopted, page, page + pages);
		page += pages;
	}
	return 0;
}

static int resolve_common(struct sp_page_index *index, struct sp_error *err)
{
	struct sp_page_index resolved = {.runs = SP_ARRAY_OF(struct sp_index_run)};
	int rc = 0;

	for (size_t i = 0; i < index->runs.count && rc == 0; i++) {
		const struct sp_index_run *run = sp_array_at(&index->runs, i);

		if (run->state == SP_PAGE_COMMON)
			rc = append_common(&resolved, run, err);
		else
			sp_array_append(&resolved.runs, run);
	}
	sp_array_release(&index->runs);
	index->runs = resolved.runs;
	return rc;
}

int sp_page_index_complete(struct sp_page_index *index, struct sp_error *err)
{
	int rc;

	if (!index->sorted)
		sp_array_sort(&index->runs, compare_runs);
	index->sorted = true;
	rc = check_runs(index, err);
	if (rc == 0)
		rc = check_frames(index, err);
	if (rc == 0 && index->layers > 1)
		sp_page_layers_flatten(&index->runs);
	if (rc == 0 && index->has_common)
		rc = resolve_common(index, err);
	return rc;
}

static int read_chunk(struct sp_page_index *index, const struct sp_record_reader *reader,
                      const struct sp_record *record, struct sp_error *err)
{
	ProtobufCMessage *message;
	int rc;

	if (record->type != SP_RECORD_PAGE_INDEX)
		return 0;
	message = sp_record_unpack(reader, record, &sealpoint__page_index__descriptor, err);
	if (!message)
		return -EBADMSG;
	rc = sp_page_index_add(index, (const Sealpoint__PageIndex *)message, err);
	protobuf_c_message_free_unpacked(message, NULL);
	if (rc < 0)
		return sp_error_context(err, "%s is damaged: the record at offset %" PRIu64,
		                        reader->name, record->offset);
	return 0;
}

static int read_chunks(struct sp_page_index *index, struct sp_record_reader *reader,
                       struct sp_error *err)
{
	struct sp_record record;
	int rc;

	while ((rc = sp_record_next(reader, &record, err)) > 0) {
		rc = read_chunk(index, reader, &record, err);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return rc;
	rc = sp_page_index_complete(index, err);
	return rc < 0 ? sp_error_context(err, "%s is damaged", reader->name) : 0;
}

int sp_page_index_read_file(struct sp_page_index *index, int dirfd, struct sp_error *err)
{
	struct sp_record_reader reader;
	int rc = sp_record_reader_open(&reader, dirfd, SP_IMAGE_PAGE_INDEX, err);

	if (rc < 0)
		return rc;
	rc = read_chunks(index, &reader, err);
	sp_record_reader_close(&reader);
	return rc;
}

size_t sp_page_index_search(const struct sp_page_index *index, uint32_t object, uint64_t page)
{
	size_t low = 0, high = index->runs.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct sp_index_run *run = sp_array_at(&index->runs, middle);

		if (run->object < object ||
		    (run->object == object && run->page + run->pages <= page))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct sp_index_run *sp_page_index_at(const struct sp_page_index *index, uint32_t object,
                                            uint64_t page, uint64_t *pages)
{
	size_t number = sp_page_index_search(index, object, page);
	const struct sp_index_run *run = sp_page_index_run(index, object, number);

	if (run && run->page <= page) {
		*pages = run->page + run->pages - page;
		return run;
	}
	*pages = (run ? run->page : SP_INDEX_PAGES_END) - page;
	return NULL;
}

uint32_t sp_page_index_object_behind(const struct sp_page_index *index, uint32_t object)
{
	size_t number = sp_page_index_search(index, object, SP_INDEX_PAGES_END);

	return number < index->runs.count
	               ? ((const struct sp_index_run *)sp_array_at(&index->runs, number))->object
	               : 0;
}

uint64_t sp_page_index_count(const struct sp_page_index *index, uint32_t object, uint64_t page,
                             uint64_t end)
{
	size_t number = sp_page_index_search(index, object, page);
	const struct sp_index_run *run;
	uint64_t count = 0;

	while ((run = sp_page_index_run(index, object, number++)) && run->page < end) {
		uint64_t run_end = run->page + run->pages;
		uint64_t from = run->page > page ? run->page : page;

		count += (run_end < end ? run_end : end) - from;
	}
	return count;
}

/* --- what does not count --- */

/* Appends what of `run` lies in the ranges from `*number` on, which moves to the last one needed. */
static void keep_run(struct sp_array *kept, const struct sp_index_run *run,
                     const struct sp_array *ranges, size_t *number)
{
	uint64_t run_end = run->page + run->pages;

	for (; *number < ranges->count; ++*number) {
		const struct sp_range *range = sp_array_at(ranges, *number);
		uint64_t start = range->start / SP_PAGE_SIZE, end = range->end / SP_PAGE_SIZE;

		if (start >= run_end)
			return;
		if (end > run->page) {
			struct sp_index_run part =
			        sp_index_run_part(run, start > run->page ? start : run->page,
			                          end < run_end ? end : run_end);

			sp_array_append(kept, &part);
		}
		if (end >= run_end)
			return;
	}
}

void sp_page_index_keep(struct sp_page_index *index, uint32_t object, const struct sp_array *ranges)
{
	struct sp_array kept = SP_ARRAY_OF(struct sp_index_run);
	size_t number = 0;

	for (size_t i = 0; i < index->runs.count; i++) {
		const struct sp_index_run *run = sp_array_at(&index->runs, i);

		if (run->object == object)
			keep_run(&kept, run, ranges, &number);
		else
			sp_array_append(&kept, run);
	}
	sp_array_release(&index->runs);
	index->runs = kept;
}

void sp_page_index_count_pages(const struct sp_page_index *index, size_t frames,
                               struct sp_page_stats *stats)
{
	/* One bit for each page of each frame: several objects may have the same. */
	sp_cleanup_free uint8_t *seen = sp_alloc_zeroed(frames + 1, SP_FRAME_PAGES / 8);

	for (size_t i = 0; i < index->runs.count; i++) {
		const struct sp_index_run *run = sp_array_at(&index->runs, i);
		uint64_t bit = run->frame * SP_FRAME_PAGES + run->place;

		stats->pages[run->state] += run->pages;
		for (uint64_t end = bit + run->pages; run->state == SP_PAGE_DATA && bit < end;
		     bit++) {
			if (!(seen[bit / 8] & 1U << bit % 8))
				stats->raw_bytes += SP_PAGE_SIZE;
			seen[bit / 8] |= (uint8_t)(1U << bit % 8);
		}
	}
}

void sp_page_index_stats(const struct sp_page_index *index, struct sp_page_stats *stats)
{
	uint64_t stored = 0;

	*stats = (struct sp_page_stats){
	        .stored_bytes = index->file_size,
	        .frames = index->frames.count,
	};
	sp_page_index_count_pages(index, index->frames.count, stats);
	for (size_t i = 0; i < index->frames.count; i++)
		stored += ((const struct sp_frame *)sp_array_at(&index->frames, i))->pages;
	stats->superseded_bytes = stored * SP_PAGE_SIZE - stats->raw_bytes;
}
