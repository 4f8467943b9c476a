/*
 * The page store: every page comes back with its state and its contents, from this store or a
 * parent.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "image/checkpoint.h"
#include "image/pages.h"
#include "unit/scratch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include "unit/skip.h"

#define PAGES 1000
#define BASE 0x7f0000000000ULL

/* --- a program's memory, and what a store should say of it --- */

struct model {
	uint8_t bytes[PAGES][SP_PAGE_SIZE];
	enum sp_page_state states[PAGES]; /* SP_PAGE_STATES: never added */
};

static struct sp_range pages_range(size_t first, size_t count)
{
	return (struct sp_range){BASE + first * SP_PAGE_SIZE,
	                         BASE + (first + count) * SP_PAGE_SIZE};
}

static int model_read(void *context, uint64_t offset, void *buffer, size_t size,
                      struct sp_error *err)
{
	struct model *model = context;

	memcpy(buffer, (uint8_t *)model->bytes + (offset - BASE), size);
	return 0;
}

static void fill_page(struct model *model, size_t page, unsigned seed)
{
	for (size_t i = 0; i < SP_PAGE_SIZE; i += 4) {
		uint32_t word = (uint32_t)(page * 2654435761u + seed * 40503u + i / 64);

		memcpy(&model->bytes[page][i], &word, sizeof(word));
	}
}

/* Every state, in runs of all lengths, some of the DATA pages all zero. */
static struct model *mixed_model(unsigned seed)
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

static bool is_zero(const uint8_t *page)
{
	return page[0] == 0 && memcmp(page, page + 1, SP_PAGE_SIZE - 1) == 0;
}

static void add_model(struct sp_page_writer *writer, uint32_t object, struct model *model)
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

static struct sp_page_writer *open_writer(struct scratch *scratch, int level)
{
	struct sp_page_writer_options options = {.level = level, .workers = 3};
	struct sp_page_writer *writer;
	struct sp_error err = {0};

	assert_int_equal(sp_page_writer_open(&writer, scratch->dirfd, &options, &err), 0);
	return writer;
}

static void finish_writer(struct sp_page_writer *writer, struct sp_page_stats *stats)
{
	struct sp_error err = {0};

	if (sp_page_writer_finish(writer, stats, &err) < 0)
		fail_msg("%s", err.message);
}

static void save_model(struct scratch *scratch, struct model *model, int level,
                       struct sp_page_stats *stats)
{
	struct sp_page_writer *writer = open_writer(scratch, level);

	add_model(writer, sp_page_writer_new_object(writer), model);
	finish_writer(writer, stats);
}

static struct sp_page_store *open_store(struct scratch *scratch, struct sp_page_store *parent)
{
	struct sp_page_store *store;
	struct sp_error err = {0};

	if (sp_page_store_open(&store, scratch->dirfd, parent, &err) < 0)
		fail_msg("%s", err.message);
	return store;
}

/* --- a sink that builds a model --- */

static int sink_data(void *context, uint64_t offset, const void *bytes, size_t size,
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

static int sink_zero(void *context, struct sp_range range, struct sp_error *err)
{
	struct model *model = context;

	for (uint64_t at = range.start; at < range.end; at += SP_PAGE_SIZE)
		model->states[(at - BASE) / SP_PAGE_SIZE] = SP_PAGE_ZERO;
	return 0;
}

static int visit_state(void *context, const struct sp_page_run *run)
{
	struct model *model = context;

	for (uint64_t at = run->range.start; at < run->range.end; at += SP_PAGE_SIZE)
		model->states[(at - BASE) / SP_PAGE_SIZE] = run->state;
	return 0;
}

/* Walk, load and read all agree with the model, whose zero DATA pages count as ZERO. */
static void assert_store_equals(struct sp_page_store *store, uint32_t object,
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

/* --- tests --- */

static void every_page_comes_back(void **state)
{
	static const int levels[] = {SP_COMPRESS_NONE, SP_COMPRESS_DEFAULT, -5, 9};

	for (unsigned seed = 0; seed < 12; seed++) {
		sp_cleanup_free struct model *model = mixed_model(seed);
		struct scratch scratch = scratch_make();
		struct sp_page_store *store;
		struct sp_page_stats written, read;
		struct sp_error err = {0};

		save_model(&scratch, model, levels[seed % 4], &written);
		store = open_store(&scratch, NULL);
		assert_store_equals(store, 1, model);
		assert_int_equal(sp_page_store_verify(store, NULL, &err), 0);
		sp_page_store_stats(store, &read);
		assert_memory_equal(&written, &read, sizeof(read));
		sp_page_store_close(store);
		scratch_remove(&scratch);
	}
}

static void objects_do_not_mix(void **state)
{
	sp_cleanup_free struct model *first = mixed_model(1);
	sp_cleanup_free struct model *second = mixed_model(2);
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_DEFAULT);
	struct sp_page_store *store;
	struct sp_error err = {0};
	uint8_t byte;
	uint32_t one = sp_page_writer_new_object(writer), two = sp_page_writer_new_object(writer);
	uint32_t source1 =
	        sp_page_writer_add_source(writer, (struct sp_page_source){model_read, first, NULL});
	uint32_t source2 = sp_page_writer_add_source(
	        writer, (struct sp_page_source){model_read, second, NULL});

	for (size_t page = 0; page < PAGES; page++) { /* in turn, page by page */
		if (first->states[page] != SP_PAGE_STATES)
			assert_int_equal(sp_page_writer_add(writer, one, pages_range(page, 1),
			                                    first->states[page], source1, &err),
			                 0);
		if (second->states[page] != SP_PAGE_STATES)
			assert_int_equal(sp_page_writer_add(writer, two, pages_range(page, 1),
			                                    second->states[page], source2, &err),
			                 0);
	}
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	assert_store_equals(store, one, first);
	assert_store_equals(store, two, second);
	assert_int_equal(sp_page_store_read(store, 3, BASE, &byte, 1, &err), -ENODATA);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void scattered_pages_share_frames(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch scratch = scratch_make();
	struct sp_page_stats stats;

	for (size_t page = 0; page < PAGES; page++) {
		model->states[page] = page % 2 ? SP_PAGE_DATA : SP_PAGE_HOLE;
		fill_page(model, page, 0);
	}
	save_model(&scratch, model, SP_COMPRESS_NONE, &stats);
	assert_int_equal(stats.frames, (PAGES / 2 + 127) / 128);
	assert_int_equal(stats.stored_bytes, PAGES / 2 * SP_PAGE_SIZE);
	scratch_remove(&scratch);
}

static void raw_pages_lie_page_aligned_in_the_file(void **state)
{
	sp_cleanup_free struct model *model = mixed_model(5);
	struct scratch scratch = scratch_make();
	struct sp_page_stats stats;
	struct stat file;
	size_t found = 0, data = 0;
	sp_cleanup_close int fd = -1;

	save_model(&scratch, model, SP_COMPRESS_NONE, &stats);
	fd = openat(scratch.dirfd, SP_IMAGE_PAGES, O_RDONLY);
	assert_int_equal(fstat(fd, &file), 0);
	assert_int_equal(file.st_size, stats.pages[SP_PAGE_DATA] * SP_PAGE_SIZE);
	for (size_t page = 0; page < PAGES; page++) {
		if (model->states[page] != SP_PAGE_DATA || is_zero(model->bytes[page]))
			continue;
		data++;
		for (off_t at = 0; at < file.st_size; at += SP_PAGE_SIZE) {
			uint8_t bytes[SP_PAGE_SIZE];

			assert_int_equal(pread(fd, bytes, sizeof(bytes), at), sizeof(bytes));
			if (memcmp(bytes, model->bytes[page], SP_PAGE_SIZE) == 0) {
				found++;
				break;
			}
		}
	}
	assert_int_equal(found, data);
	scratch_remove(&scratch);
}

static void sources_may_change_after_a_drain(void **state)
{
	sp_cleanup_free struct model *model = mixed_model(6);
	sp_cleanup_free struct model *before = malloc(sizeof(*before));
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, 9);
	struct sp_page_store *store;
	struct sp_error err = {0};

	memcpy(before, model, sizeof(*before));
	add_model(writer, sp_page_writer_new_object(writer), model);
	assert_int_equal(sp_page_writer_drain(writer, &err), 0);
	memset(model->bytes, 0xee, sizeof(model->bytes));
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	assert_store_equals(store, 1, before);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void reads_may_begin_and_end_anywhere(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch scratch = scratch_make();
	struct sp_page_store *store;
	struct sp_error err = {0};

	for (size_t page = 0; page < PAGES; page++) {
		model->states[page] = page % 5 == 4 ? SP_PAGE_HOLE : SP_PAGE_DATA;
		if (page % 5 != 4)
			fill_page(model, page, 3);
	}
	save_model(&scratch, model, SP_COMPRESS_DEFAULT, NULL);
	store = open_store(&scratch, NULL);
	srand(1);
	for (int i = 0; i < 500; i++) {
		size_t offset = (size_t)rand() % (PAGES * SP_PAGE_SIZE);
		size_t size = (size_t)rand() % 20000;
		uint8_t buffer[20000];

		if (size > PAGES * SP_PAGE_SIZE - offset)
			size = PAGES * SP_PAGE_SIZE - offset;
		assert_int_equal(sp_page_store_read(store, 1, BASE + offset, buffer, size, &err),
		                 0);
		assert_memory_equal(buffer, (uint8_t *)model->bytes + offset, size);
	}
	assert_int_equal(sp_page_store_read(store, 1, UINT64_MAX - 10, model->bytes, 100, &err),
	                 -EINVAL);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

/* --- chains --- */

static void discarded_page_does_not_return_from_parent(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch old = scratch_make(), new = scratch_make();
	struct sp_page_store *parent, *store;

	for (size_t page = 0; page < PAGES; page++) {
		model->states[page] = SP_PAGE_DATA;
		fill_page(model, page, 1);
	}
	save_model(&old, model, SP_COMPRESS_DEFAULT, NULL);
	for (size_t page = 0; page < PAGES; page++)
		model->states[page] = SP_PAGE_PARENT;
	model->states[500] = SP_PAGE_HOLE;
	save_model(&new, model, SP_COMPRESS_DEFAULT, NULL);

	parent = open_store(&old, NULL);
	store = open_store(&new, parent);
	for (size_t page = 0; page < PAGES; page++)
		model->states[page] = SP_PAGE_DATA;
	model->states[500] = SP_PAGE_HOLE;
	memset(model->bytes[500], 0, SP_PAGE_SIZE);
	assert_store_equals(store, 1, model);
	sp_page_store_close(store);
	sp_page_store_close(parent);
	scratch_remove(&old);
	scratch_remove(&new);
}

#define LEVELS 120

static void a_long_chain_gives_each_page_from_its_level(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch scratch[LEVELS];
	struct sp_page_store *stores[LEVELS + 1] = {NULL};

	for (size_t page = 0; page < PAGES; page++) {
		model->states[page] = page % 9 ? SP_PAGE_DATA : SP_PAGE_HOLE;
		if (page % 9)
			fill_page(model, page, 0);
	}
	for (size_t level = 0; level < LEVELS; level++) {
		sp_cleanup_free struct model *delta = malloc(sizeof(*delta));

		memcpy(delta, model, sizeof(*delta));
		for (size_t page = 0; level > 0 && page < PAGES; page++) {
			delta->states[page] = SP_PAGE_PARENT;
			if (page % LEVELS != level)
				continue;
			fill_page(model, page, (unsigned)level);
			model->states[page] = delta->states[page] = SP_PAGE_DATA;
			memcpy(delta->bytes[page], model->bytes[page], SP_PAGE_SIZE);
		}
		scratch[level] = scratch_make();
		save_model(&scratch[level], delta, level % 2 ? SP_COMPRESS_NONE : 1, NULL);
		stores[level + 1] = open_store(&scratch[level], stores[level]);
	}
	assert_store_equals(stores[LEVELS], 1, model);
	for (size_t level = LEVELS; level-- > 0;) {
		sp_page_store_close(stores[level + 1]);
		scratch_remove(&scratch[level]);
	}
}

static void a_page_that_the_parent_does_not_know_is_refused(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch old = scratch_make(), new = scratch_make();
	struct sp_page_store *parent, *store;
	struct sp_error err = {0};

	model->states[700] = SP_PAGE_STATES;
	save_model(&old, model, SP_COMPRESS_DEFAULT, NULL);
	for (size_t page = 0; page < PAGES; page++)
		model->states[page] = SP_PAGE_PARENT;
	save_model(&new, model, SP_COMPRESS_DEFAULT, NULL);

	parent = open_store(&old, NULL);
	assert_int_equal(sp_page_store_open(&store, new.dirfd, parent, &err), -EBADMSG);
	assert_int_equal(sp_page_store_open(&store, new.dirfd, NULL, &err), -EBADMSG);
	sp_page_store_close(parent);
	scratch_remove(&old);
	scratch_remove(&new);
}

/* --- layers --- */

/* Adds a layer of random pages: some as below, some again, all through the same memory. */
static void add_layer(struct sp_page_writer *writer, struct model *layer, unsigned seed)
{
	sp_cleanup_free struct model *mixed = mixed_model(seed);

	memcpy(layer, mixed, sizeof(*layer));
	for (size_t page = 0; page < PAGES; page++) {
		if (layer->states[page] == SP_PAGE_GUARD || layer->states[page] == SP_PAGE_HOLE)
			layer->states[page] = seed % 3 ? SP_PAGE_PARENT : SP_PAGE_STATES;
	}
	add_model(writer, 1, layer);
}

/* What `expected` says after another layer; PARENT says nothing new where there is something. */
static void lay_over(struct model *expected, const struct model *layer)
{
	for (size_t page = 0; page < PAGES; page++) {
		enum sp_page_state state = layer->states[page];

		if (state == SP_PAGE_STATES ||
		    (state == SP_PAGE_PARENT && expected->states[page] != SP_PAGE_STATES))
			continue;
		expected->states[page] = state;
		memcpy(expected->bytes[page], layer->bytes[page], SP_PAGE_SIZE);
	}
}

static void look_through(struct model *expected, const struct model *parent)
{
	for (size_t page = 0; page < PAGES; page++) {
		if (expected->states[page] != SP_PAGE_PARENT)
			continue;
		expected->states[page] = parent->states[page];
		memcpy(expected->bytes[page], parent->bytes[page], SP_PAGE_SIZE);
	}
}

static void the_topmost_layer_counts(void **state)
{
	for (unsigned seed = 100; seed < 116; seed++) {
		sp_cleanup_free struct model *old = mixed_model(seed);
		sp_cleanup_free struct model *layer = malloc(sizeof(*layer));
		sp_cleanup_free struct model *expected = calloc(1, sizeof(*expected));
		struct scratch below = scratch_make(), scratch = scratch_make();
		struct sp_page_writer *writer = open_writer(&scratch, seed % 2 ? -1000 : 1);
		struct sp_page_store *parent, *store;
		struct sp_page_stats written, read;
		struct sp_error err = {0};

		for (size_t page = 0; page < PAGES; page++) {
			if (old->states[page] == SP_PAGE_STATES)
				old->states[page] = SP_PAGE_HOLE;
			expected->states[page] = SP_PAGE_STATES;
		}
		save_model(&below, old, SP_COMPRESS_DEFAULT, NULL);
		sp_page_writer_new_object(writer);
		for (unsigned i = 0; i <= seed % 6; i++) {
			if (i > 0)
				assert_int_equal(sp_page_writer_next_layer(writer, &err), 0);
			add_layer(writer, layer, seed * 10 + i);
			lay_over(expected, layer);
		}
		finish_writer(writer, &written);
		look_through(expected, old);
		parent = open_store(&below, NULL);
		store = open_store(&scratch, parent);
		assert_store_equals(store, 1, expected);
		assert_int_equal(sp_page_store_verify(store, NULL, &err), 0);
		sp_page_store_stats(store, &read);
		assert_memory_equal(&written, &read, sizeof(read));
		sp_page_store_close(store);
		sp_page_store_close(parent);
		scratch_remove(&below);
		scratch_remove(&scratch);
	}
}

static void bytes_that_were_superseded_are_told(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_NONE);
	struct sp_page_stats stats;
	struct sp_error err = {0};

	for (size_t page = 0; page < PAGES; page++) {
		model->states[page] = SP_PAGE_DATA;
		fill_page(model, page, 1);
	}
	sp_page_writer_new_object(writer);
	for (int layer = 1; layer < SP_PAGE_LAYERS; layer++) {
		add_model(writer, 1, model);
		for (size_t page = 0; page < PAGES; page++)
			model->states[page] = page == 7 ? SP_PAGE_DATA : SP_PAGE_PARENT;
		assert_int_equal(sp_page_writer_next_layer(writer, &err), 0);
	}
	assert_int_equal(sp_page_writer_next_layer(writer, &err), -EOVERFLOW);
	finish_writer(writer, &stats);
	assert_int_equal(stats.pages[SP_PAGE_DATA], PAGES);
	assert_int_equal(stats.pages[SP_PAGE_PARENT], 0);
	assert_int_equal(stats.raw_bytes, PAGES * SP_PAGE_SIZE);
	assert_int_equal(stats.superseded_bytes, (SP_PAGE_LAYERS - 2) * SP_PAGE_SIZE);
	assert_int_equal(stats.stored_bytes, stats.raw_bytes + stats.superseded_bytes);
	scratch_remove(&scratch);
}

/* --- copies --- */

/* Each word is its own address. */
static int number_read(void *context, uint64_t offset, void *buffer, size_t size,
                       struct sp_error *err)
{
	for (size_t at = 0; at < size; at += sizeof(offset)) {
		uint64_t address = offset + at;

		memcpy((char *)buffer + at, &address, sizeof(address));
	}
	return 0;
}

static void a_copy_says_what_the_chain_says(void **state)
{
	for (unsigned seed = 200; seed < 208; seed++) {
		sp_cleanup_free struct model *old = mixed_model(seed);
		sp_cleanup_free struct model *new = mixed_model(seed + 1);
		struct scratch below = scratch_make(), scratch = scratch_make();
		struct scratch copy = scratch_make();
		struct sp_page_store *parent, *store, *copied;
		struct sp_page_writer *writer;
		struct sp_error err = {0};

		for (size_t page = 0; page < PAGES; page++) {
			if (old->states[page] == SP_PAGE_STATES)
				old->states[page] = SP_PAGE_ZERO;
			if (new->states[page] == SP_PAGE_FILE)
				new->states[page] = SP_PAGE_PARENT;
		}
		save_model(&below, old, SP_COMPRESS_DEFAULT, NULL);
		save_model(&scratch, new, SP_COMPRESS_NONE, NULL);
		look_through(new, old);
		parent = open_store(&below, NULL);
		store = open_store(&scratch, parent);
		writer = open_writer(&copy, SP_COMPRESS_DEFAULT);
		assert_int_equal(sp_page_store_copy(store, writer, &err), 0);
		finish_writer(writer, NULL);
		copied = open_store(&copy, NULL);
		assert_store_equals(copied, 1, new);
		sp_page_store_close(copied);
		sp_page_store_close(store);
		sp_page_store_close(parent);
		scratch_remove(&below);
		scratch_remove(&scratch);
		scratch_remove(&copy);
	}
}

/* More than a copy holds in memory at a time, in two objects with numbers of their own. */
static void a_large_copy_goes_in_pieces(void **state)
{
	struct scratch scratch = scratch_make(), copy = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, -5);
	struct sp_page_store *store, *copied;
	struct sp_error err = {0};
	uint64_t word;

	for (uint32_t object = 1; object <= 5; object++) {
		uint32_t source = sp_page_writer_add_source(
		        writer, (struct sp_page_source){.read = number_read});

		assert_int_equal(sp_page_writer_new_object(writer), object);
		if (object % 3 == 2)
			assert_int_equal(sp_page_writer_add(writer, object, pages_range(3, 20000),
			                                    SP_PAGE_DATA, source, &err),
			                 0);
	}
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	writer = open_writer(&copy, -5);
	assert_int_equal(sp_page_store_copy(store, writer, &err), 0);
	finish_writer(writer, NULL);
	copied = open_store(&copy, NULL);
	for (size_t page = 3; page < 20003; page += 100) {
		for (uint32_t object = 2; object <= 5; object += 3) {
			uint64_t at = BASE + page * SP_PAGE_SIZE;

			assert_int_equal(sp_page_store_read(copied, object, at, &word, 8, &err), 0);
			assert_int_equal(word, at);
		}
	}
	assert_int_equal(sp_page_store_read(copied, 1, BASE + 3 * SP_PAGE_SIZE, &word, 8, &err),
	                 -ENODATA);
	sp_page_store_close(copied);
	sp_page_store_close(store);
	scratch_remove(&scratch);
	scratch_remove(&copy);
}

/* --- damage and failures --- */

static int failing_read(void *context, uint64_t offset, void *buffer, size_t size,
                        struct sp_error *err)
{
	memset(buffer, 1, size);
	if (offset >= BASE + 600 * SP_PAGE_SIZE)
		return sp_fail(err, ESRCH, "the program is gone");
	return 0;
}

static int released;

static void count_release(void *context)
{
	released++;
}

static void a_failing_source_fails_the_writer(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_DEFAULT);
	struct sp_error err = {0};
	uint32_t object = sp_page_writer_new_object(writer);
	uint32_t source = sp_page_writer_add_source(
	        writer, (struct sp_page_source){failing_read, NULL, count_release});

	released = 0;
	sp_page_writer_add(writer, object, pages_range(0, PAGES), SP_PAGE_DATA, source, &err);
	assert_int_equal(sp_page_writer_drain(writer, &err), -ESRCH);
	assert_string_equal(err.message, "the program is gone");
	/* far more than there is room for jobs: nothing may get stuck */
	assert_int_equal(sp_page_writer_add(writer, object, pages_range(PAGES, 100000),
	                                    SP_PAGE_DATA, source, &err),
	                 -ESRCH);
	assert_int_equal(sp_page_writer_finish(writer, NULL, &err), -ESRCH);
	assert_int_equal(released, 1);
	scratch_remove(&scratch);
}

static void an_abandoned_writer_ends_its_workers(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, 19);
	sp_cleanup_free struct model *model = mixed_model(8);
	struct sp_error err = {0};
	uint32_t source = sp_page_writer_add_source(
	        writer, (struct sp_page_source){model_read, model, count_release});

	released = 0;
	assert_int_equal(sp_page_writer_add(writer, sp_page_writer_new_object(writer),
	                                    pages_range(0, PAGES), SP_PAGE_DATA, source, &err),
	                 0);
	sp_page_writer_abandon(writer);
	assert_int_equal(released, 1);
	scratch_remove(&scratch);
}

static void what_cannot_be_added_is_refused(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_DEFAULT);
	struct sp_range unaligned = {BASE + 1, BASE + SP_PAGE_SIZE};
	struct sp_range empty = {BASE, BASE}, endless = {0, UINT64_MAX - SP_PAGE_SIZE + 1};
	struct sp_error err = {0};
	uint32_t object = sp_page_writer_new_object(writer);

	assert_int_equal(sp_page_writer_add(writer, 2, pages_range(0, 1), SP_PAGE_HOLE, 0, &err),
	                 -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, pages_range(0, 1), SP_PAGE_DATA, 1, &err),
	                 -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, unaligned, SP_PAGE_HOLE, 0, &err), -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, empty, SP_PAGE_HOLE, 0, &err), -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, endless, SP_PAGE_HOLE, 0, &err), -EINVAL);
	assert_int_equal(
	        sp_page_writer_add(writer, object, pages_range(5, 5), SP_PAGE_HOLE, 0, &err), 0);
	assert_int_equal(
	        sp_page_writer_add(writer, object, pages_range(9, 1), SP_PAGE_HOLE, 0, &err),
	        -EINVAL);
	finish_writer(writer, NULL);
	scratch_remove(&scratch);
}

static void flip(struct scratch *scratch, const char *name, off_t at)
{
	sp_cleanup_close int fd = openat(scratch->dirfd, name, O_RDWR);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x40;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static int open_and_verify(struct scratch *scratch)
{
	struct sp_page_store *store;
	struct sp_error err = {0};
	int status = sp_page_store_open(&store, scratch->dirfd, NULL, &err);

	if (status == 0) {
		status = sp_page_store_verify(store, NULL, &err);
		sp_page_store_close(store);
	}
	return status;
}

static void every_flipped_byte_is_found(void **state)
{
	static const int levels[] = {SP_COMPRESS_NONE, SP_COMPRESS_DEFAULT};
	static const char *const names[] = {SP_IMAGE_PAGES, SP_IMAGE_PAGE_INDEX};

	for (size_t i = 0; i < 4; i++) {
		sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
		struct scratch scratch = scratch_make();
		struct stat file;

		for (size_t page = 0; page < 2; page++) {
			model->states[page * 3] = SP_PAGE_DATA;
			fill_page(model, page * 3, 1);
		}
		save_model(&scratch, model, levels[i / 2], NULL);
		assert_int_equal(open_and_verify(&scratch), 0);
		assert_int_equal(fstatat(scratch.dirfd, names[i % 2], &file, 0), 0);
		for (off_t at = 0; at < file.st_size; at++) {
			flip(&scratch, names[i % 2], at);
			assert_int_equal(open_and_verify(&scratch), -EBADMSG);
			flip(&scratch, names[i % 2], at);
		}
		scratch_remove(&scratch);
	}
}

static void a_file_that_shrinks_while_it_is_open_is_an_error(void **state)
{
	sp_cleanup_free struct model *model = mixed_model(4);
	sp_cleanup_free struct model *loaded = calloc(1, sizeof(*loaded));
	struct scratch scratch = scratch_make();
	struct sp_page_sink sink = {sink_data, NULL, loaded};
	struct sp_page_store *store;
	struct sp_error err = {0};
	sp_cleanup_close int fd = -1;

	save_model(&scratch, model, SP_COMPRESS_NONE, NULL);
	store = open_store(&scratch, NULL);
	fd = openat(scratch.dirfd, SP_IMAGE_PAGES, O_RDWR);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_true(sp_page_store_load(store, 1, pages_range(0, PAGES), &sink, 0, &err) < 0);
	assert_non_null(strstr(err.message, SP_IMAGE_PAGES));
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

/* --- size --- */

static int ones_read(void *context, uint64_t offset, void *buffer, size_t size,
                     struct sp_error *err)
{
	memset(buffer, 1, size);
	return 0;
}

/* A line of /proc/self/status, in KiB. */
static long status_kib(const char *name)
{
	sp_cleanup_file FILE *file = fopen("/proc/self/status", "r");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, strlen(name)) == 0)
			return strtol(line + strlen(name), NULL, 10);
	}
	return -1;
}

static void reset_peak(void)
{
	sp_cleanup_close int fd = open("/proc/self/clear_refs", O_WRONLY);

	assert_int_equal(write(fd, "5", 1), 1);
}

static void a_million_runs_fit_in_64_mib(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_page_writer_options options = {.level = SP_COMPRESS_DEFAULT, .workers = 16};
	struct sp_page_writer *writer;
	struct sp_page_store *store;
	struct sp_page_stats stats;
	struct sp_error err = {0};
	uint32_t object, source;
	long before = status_kib("VmRSS:");

#if is_sanitized
	skip_because("a sanitizer's own memory would be counted");
#endif
	reset_peak();
	assert_int_equal(sp_page_writer_open(&writer, scratch.dirfd, &options, &err), 0);
	object = sp_page_writer_new_object(writer);
	source = sp_page_writer_add_source(writer, (struct sp_page_source){.read = ones_read});
	for (size_t i = 0; i < 1000000; i++)
		assert_int_equal(sp_page_writer_add(writer, object, pages_range(i, 1),
		                                    i % 2 ? SP_PAGE_DATA : SP_PAGE_ZERO, source,
		                                    &err),
		                 0);
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	sp_page_store_stats(store, &stats);
	assert_int_equal(stats.pages[SP_PAGE_DATA], 500000);
	assert_int_equal(stats.pages[SP_PAGE_ZERO], 500000);
	sp_page_store_close(store);
	assert_in_range(status_kib("VmHWM:") - before, 1, 64 << 10);
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_page_comes_back),
	        cmocka_unit_test(objects_do_not_mix),
	        cmocka_unit_test(scattered_pages_share_frames),
	        cmocka_unit_test(raw_pages_lie_page_aligned_in_the_file),
	        cmocka_unit_test(sources_may_change_after_a_drain),
	        cmocka_unit_test(reads_may_begin_and_end_anywhere),
	        cmocka_unit_test(discarded_page_does_not_return_from_parent),
	        cmocka_unit_test(a_long_chain_gives_each_page_from_its_level),
	        cmocka_unit_test(a_page_that_the_parent_does_not_know_is_refused),
	        cmocka_unit_test(the_topmost_layer_counts),
	        cmocka_unit_test(bytes_that_were_superseded_are_told),
	        cmocka_unit_test(a_copy_says_what_the_chain_says),
	        cmocka_unit_test(a_large_copy_goes_in_pieces),
	        cmocka_unit_test(a_failing_source_fails_the_writer),
	        cmocka_unit_test(an_abandoned_writer_ends_its_workers),
	        cmocka_unit_test(what_cannot_be_added_is_refused),
	        cmocka_unit_test(every_flipped_byte_is_found),
	        cmocka_unit_test(a_file_that_shrinks_while_it_is_open_is_an_error),
	        cmocka_unit_test(a_million_runs_fit_in_64_mib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
