/*
 * Copying a page store, with all that it has from the stores below, into a new one.
 *
 * It goes in windows: as many pages of an object, in the order of their addresses, as have 16 MiB of
 * contents. These are loaded into a buffer, frame by frame and by all processors, and from there
 * added to the writer in order. So the new frames have what was scattered over a chain side by side,
 * and the memory that it takes does not depend on what is copied.
 */
#include "image/page_store.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/interrupt.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WINDOW_SIZE (16ULL << 20)
#define WINDOW_RUNS 65536
/* A number beyond this is nonsense, and must not make us write as many objects. */
#define OBJECTS_MAX (1U << 20)

/* A run of the window, and for DATA where in the buffer its contents are. */
struct window_run {
	struct sp_page_run run;
	uint64_t position;
};

struct window {
	uint8_t *buffer;
	struct sp_array runs; /* struct window_run */
	uint64_t used;        /* of the buffer */
	struct sp_range range;
};

/*
 * Where DATA pages are in the buffer. Pages that follow each other in the object do so there: a
 * piece may be of several runs.
 */
static uint8_t *place_of(const struct window *window, uint64_t offset)
{
	const struct window_run *found = sp_array_search(&window->runs, &offset, sp_range_locate);

	return window->buffer + found->position + (offset - found->run.range.start);
}

static int fill(void *context, uint64_t offset, const void *bytes, size_t size,
                struct sp_error *err)
{
	memcpy(place_of(context, offset), bytes, size);
	return 0;
}

static int hand_out(void *context, uint64_t offset, void *buffer, size_t size, struct sp_error *err)
{
	memcpy(buffer, place_of(context, offset), size);
	return 0;
}

/* Takes a run into the window; returns 1 when that is full. */
static int take_run(void *context, const struct sp_page_run *run)
{
	struct window *window = context;
	struct window_run *taken;
	uint64_t room = WINDOW_SIZE - window->used;

	if (window->runs.count == WINDOW_RUNS || (run->state == SP_PAGE_DATA && room == 0))
		return 1;
	taken = sp_array_push(&window->runs);
	*taken = (struct window_run){*run, window->used};
	if (run->state == SP_PAGE_DATA) {
		if (sp_range_size(run->range) > room)
			taken->run.range.end = run->range.start + room;
		window->used += sp_range_size(taken->run.range);
	}
	window->range.end = taken->run.range.end;
	return taken->run.range.end < run->range.end;
}

/* The next window of the object, from where the last one ended. Returns false behind the last. */
static bool next_window(struct window *window, struct sp_page_store *store, uint32_t object)
{
	const struct sp_range rest = {window->range.end, SP_INDEX_PAGES_END * SP_PAGE_SIZE};

	sp_array_clear(&window->runs);
	window->used = 0;
	window->range.start = window->range.end;
	sp_page_store_walk(store, object, rest, take_run, window, NULL);
	return window->runs.count > 0;
}

static int copy_window(struct window *window, struct sp_page_store *store,
                       struct sp_page_writer *writer, uint32_t object, uint32_t source,
                       struct sp_error *err)
{
	const struct sp_page_sink sink = {fill, NULL, window};
	int rc = sp_interrupt_check(err);

	if (rc == 0 && window->used > 0)
		rc = sp_page_store_load(store, object, window->range, &sink, 0, err);
	for (size_t i = 0; rc == 0 && i < window->runs.count; i++) {
		const struct window_run *taken = sp_array_at(&window->runs, i);

		rc = sp_page_writer_add(writer, object, taken->run.range, taken->run.state, source,
		                        err);
	}
	return rc < 0 ? rc : sp_page_writer_drain(writer, err);
}

static int copy_object(struct window *window, struct sp_page_store *store,
                       struct sp_page_writer *writer, uint32_t object, uint32_t source,
                       struct sp_error *err)
{
	int rc = 0;

	window->range = (struct sp_range){0, 0};
	while (rc == 0 && next_window(window, store, object))
		rc = copy_window(window, store, writer, object, source, err);
	return rc;
}

int sp_page_store_copy(struct sp_page_store *store, struct sp_page_writer *writer,
                       struct sp_error *err)
{
	sp_cleanup_free uint8_t *buffer = sp_alloc_pages(WINDOW_SIZE);
	struct window window = {.buffer = buffer, .runs = SP_ARRAY_OF(struct window_run)};
	const struct sp_page_source from_window = {.read = hand_out, .context = &window};
	uint32_t source = sp_page_writer_add_source(writer, from_window), last = 0, object;
	int rc = 0;

	for (object = 0;
	     rc == 0 && (object = sp_page_index_object_behind(&store->index, object));) {
		if (object > OBJECTS_MAX)
			rc = sp_fail(err, EOVERFLOW,
			             "the page store has an object %" PRIu32
			             ", and copying ends at %u",
			             object, OBJECTS_MAX);
		while (rc == 0 && last < object)
			last = sp_page_writer_new_object(writer);
		if (rc == 0)
			rc = copy_object(&window, store, writer, object, source, err);
	}
	sp_array_release(&window.runs);
	return rc;
}
