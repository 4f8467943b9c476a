/*
 * A model of a program's memory, page by page, which a page store is made of and compared with.
 *
 *	struct model *model = mixed_model(seed);
 *
 *	save_model(&scratch, model, SP_COMPRESS_DEFAULT, NULL);
 *	store = open_store(&scratch, NULL);
 *	assert_store_equals(store, 1, model);
 */
#ifndef SEALPOINT_TESTS_PAGE_MODEL_H
#define SEALPOINT_TESTS_PAGE_MODEL_H

#include "base/cleanup.h"
#include "base/error.h"
#include "image/pages.h"
#include "unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGES 1000
#define BASE 0x7f0000000000ULL

/* --- a program's memory, and what a store should say of it --- */

struct model {
	uint8_t bytes[PAGES][SP_PAGE_SIZE];
	enum sp_page_state states[PAGES]; /* SP_PAGE_STATES: never added */
};

static inline struct sp_range pages_range(size_t first, size_t count)
{
	return (struct sp_range){BASE + first * SP_PAGE_SIZE,
	                         BASE + (first + count) * SP_PAGE_SIZE};
}

static inline int model_read(void *context, uint64_t offset, void *buffer, size_t size,
                             struct sp_error *err)
{
	struct model *model = context;

	memcpy(buffer, (uint8_t *)model->bytes + (offset - BASE), size);
	return 0;
}

static inline void fill_page(struct model *model, size_t page, unsigned seed)
{
	for (size_t i = 0; i < SP_PAGE_SIZE; i += 4) {
		uint32_t word = (uint32_t)(page * 2654435761u + seed * 40503u + i / 64);

		memcpy(&model->bytes[page][i], &word, sizeof(word));
	}
}

/* Every state, in runs of all lengths, some of the DATA pages all zero. */
static inline struct model *mixed_model(unsigned seed)
{
	struct model *model = calloc(1, sizeof(*model));
	size_t page = 0;

	assert_non_null(model);
	srand(seed);
	while (page < PAGES) {
		static const enum sp_page_state states[] = {
		        SP_PAGE_HOLE, SP_PAGE_DATA, SP_PAGE_DATA,  SP_PAGE_DATA,
		        SP_PAGE_ZERO, SP_PAGE_FILE, SP_PAGE_GUARD, SP_PAGE_STATES,
		};
		enum sp_page_state state = states[rand() % 8];
		size_t end = page + 1 + (size_t)rand() % (rand() % 10 ? 6 : 300);

		for (; page < end && page < PAGES; page++) {
			model->states[page] = state;
			if (state == SP_PAGE_DATA && rand() % 7)
				fill_page(model, page, seed);
		}
	}
	return model;
}

static inline bool is_zero(const uint8_t *page)
{
	return page[0] == 0 && memcmp(page, page + 1, SP_PAGE_SIZE - 1) == 0;
}

static inline void add_model(struct sp_page_writer *writer, uint32_t object, struct model *model)
{
	struct sp_error err = {0};
	uint32_t source = sp_page_writer_add_source(
	        writer, (struct sp_page_source){.read = model_read, .context = model});

	for (size_t page = 0, end; page < PAGES; page = end) {
		for (end = page; end < PAGES && model->states[end] == model->states[page];)
			end++;
		if (model->states[page] == SP_PAGE_STATES)
			continue;
		assert_int_equal(sp_page_writer_add(writer, object, pages_range(page, end - page),
		                                    model->states[page], source, &err),
		                 0);
	}
}

static inline struct sp_page_writer *open_writer(struct scratch *scratch, int level)
{
	struct sp_page_writer_options options = {.level = level, .workers = 3};
	struct sp_page_writer *writer;
	struct sp_error err = {0};

	assert_int_equal(sp_page_writer_open(&writer, scratch->dirfd, &options, &err), 0);
	return writer;
}

static inline void finish_writer(struct sp_page_writer *writer, struct sp_page_stats *stats)
{
	struct sp_error err = {0};

	if (sp_page_writer_finish(writer, stats, &err) < 0)
		fail_msg("%s", err.message);
}

static inline void save_model(struct scratch *scratch, struct model *model, int level,
                              struct sp_page_stats *stats)
{
	struct sp_page_writer *writer = open_writer(scratch, level);

	add_model(writer, sp_page_writer_new_object(writer), model);
	finish_writer(writer, stats);
}

static inline struct sp_page_store *open_store(struct scratch *scratch,
                                               struct sp_page_store *parent)
{
	struct sp_page_store *store;
	struct sp_error err = {0};

	if (sp_page_store_open(&store, scratch->dirfd, parent, &err) < 0)
		fail_msg("%s", err.message);
	return store;
}

/* --- a sink that builds a model --- */

static inline int sink_data(void *context, uint64_t offset, const void *bytes, size_t size,
                            struct sp_error *err)
{
	struct model *model = context;
	size_t page = (offset - BASE) / SP_PAGE_SIZE;

	memcpy(model->bytes[page], bytes, size);
	for (size_t i = 0; i < size / SP_PAGE_SIZE; i++) {
		if (model->states[page + i] == SP_PAGE_DATA)
			return sp_fail(err, EEXIST, "page %zu is given twice", page + i);
		model->states[page + i] = SP_PAGE_DATA;
	}
	return 0;
}

static inline int sink_zero(void *context, struct sp_range range, struct sp_error *err)
{
	struct model *model = context;

	for (uint64_t at = range.start; at < range.end; at += SP_PAGE_SIZE)
		model->states[(at - BASE) / SP_PAGE_SIZE] = SP_PAGE_ZERO;
	return 0;
}

static inline int visit_state(void *context, const struct sp_page_run *run)
{
	struct model *model = context;

	for (uint64_t at = run->range.start; at < run->range.end; at += SP_PAGE_SIZE)
		model->states[(at - BASE) / SP_PAGE_SIZE] = run->state;
	return 0;
}

/* Walk, load and read all agree with the model, whose zero DATA pages count as ZERO. */
static inline void assert_store_equals(struct sp_page_store *store, uint32_t object,
                                       struct model *expected)
{
	sp_cleanup_free struct model *walked = calloc(1, sizeof(*walked));
	sp_cleanup_free struct model *loaded = calloc(1, sizeof(*loaded));
	struct sp_page_sink sink = {sink_data, sink_zero, loaded};
	struct sp_error err = {0};

	for (size_t page = 0; page < PAGES; page++)
		walked->states[page] = loaded->states[page] = SP_PAGE_STATES;
	assert_int_equal(
	        sp_page_store_walk(store, object, pages_range(0, PAGES), visit_state, walked, &err),
	        0);
	assert_int_equal(sp_page_store_load(store, object, pages_range(0, PAGES), &sink, 3, &err),
	                 0);
	for (size_t page = 0; page < PAGES; page++) {
		enum sp_page_state state = expected->states[page];
		bool stored = state == SP_PAGE_DATA && !is_zero(expected->bytes[page]);
		uint8_t read[SP_PAGE_SIZE];
		int status = sp_page_store_read(store, object, BASE + page * SP_PAGE_SIZE, read,
		                                SP_PAGE_SIZE, &err);

		if (state == SP_PAGE_DATA && !stored)
			state = SP_PAGE_ZERO;
		assert_int_equal(walked->states[page], state);
		assert_int_equal(loaded->states[page],
		                 stored || state == SP_PAGE_ZERO ? state : SP_PAGE_STATES);
		assert_int_equal(status,
		                 state == SP_PAGE_FILE || state == SP_PAGE_STATES ? -ENODATA : 0);
		if (stored)
			assert_memory_equal(loaded->bytes[page], expected->bytes[page],
			                    SP_PAGE_SIZE);
		if (status == 0)
			assert_memory_equal(read, expected->bytes[page], SP_PAGE_SIZE);
	}
}

#endif
