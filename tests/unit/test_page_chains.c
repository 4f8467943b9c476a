/*
 * What page stores say together: a store and its parents, the layers of one store, and the copy that
 * says the same alone.
 */
#include "unit/page_model.h"

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

/* Adds pages of which each word is its own address. */
static void add_numbers(struct sp_page_writer *writer, uint32_t object, uint64_t page,
                        uint64_t pages, enum sp_page_state state)
{
	uint32_t source =
	        sp_page_writer_add_source(writer, (struct sp_page_source){.read = number_read});
	struct sp_error err = {0};

	assert_int_equal(
	        sp_page_writer_add(writer, object, pages_range(page, pages), state, source, &err),
	        0);
}

static void assert_numbers(struct sp_page_store *store, uint32_t object, uint64_t page,
                           uint64_t pages)
{
	struct sp_range range = pages_range(page, pages);
	struct sp_error err = {0};

	for (uint64_t at = range.start; at < range.end; at += SP_PAGE_SIZE) {
		uint64_t word = 0;

		if (sp_page_store_read(store, object, at, &word, sizeof(word), &err) < 0)
			fail_msg("%s", err.message);
		assert_int_equal(word, at);
	}
}

/* The origin has some of it in this store, and some in the one below, which does not know the object. */
static void what_is_in_common_is_stored_once(void **state)
{
	struct scratch below = scratch_make(), scratch = scratch_make(), copy = scratch_make();
	struct sp_page_writer *writer = open_writer(&below, SP_COMPRESS_DEFAULT);
	struct sp_page_store *parent, *store, *copied;
	struct sp_page_stats stats;
	struct sp_error err = {0};

	sp_page_writer_new_object(writer);
	add_numbers(writer, 1, 1, 100, SP_PAGE_DATA);
	finish_writer(writer, NULL);
	writer = open_writer(&scratch, SP_COMPRESS_DEFAULT);
	sp_page_writer_new_object(writer);
	sp_page_writer_set_origin(writer, sp_page_writer_new_object(writer), 1);
	add_numbers(writer, 2, 20, 60, SP_PAGE_COMMON);
	add_numbers(writer, 1, 1, 50, SP_PAGE_PARENT);
	add_numbers(writer, 1, 51, 50, SP_PAGE_DATA);
	finish_writer(writer, &stats);
	assert_int_equal(stats.raw_bytes, 50 * SP_PAGE_SIZE);
	assert_int_equal(stats.pages[SP_PAGE_COMMON], 60);

	parent = open_store(&below, NULL);
	store = open_store(&scratch, parent);
	assert_numbers(store, 1, 1, 100);
	assert_numbers(store, 2, 20, 60);
	sp_page_store_stats(store, &stats);
	assert_int_equal(stats.superseded_bytes, 0);
	sp_page_store_chain_stats(store, &stats);
	assert_int_equal(stats.raw_bytes, 100 * SP_PAGE_SIZE);
	writer = open_writer(&copy, SP_COMPRESS_DEFAULT);
	assert_int_equal(sp_page_store_copy(store, writer, &err), 0);
	finish_writer(writer, NULL);
	copied = open_store(&copy, NULL);
	assert_numbers(copied, 2, 20, 60);
	sp_page_store_close(copied);
	sp_page_store_close(store);
	sp_page_store_close(parent);
	scratch_remove(&below);
	scratch_remove(&scratch);
	scratch_remove(&copy);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(discarded_page_does_not_return_from_parent),
	        cmocka_unit_test(a_long_chain_gives_each_page_from_its_level),
	        cmocka_unit_test(a_page_that_the_parent_does_not_know_is_refused),
	        cmocka_unit_test(the_topmost_layer_counts),
	        cmocka_unit_test(bytes_that_were_superseded_are_told),
	        cmocka_unit_test(a_copy_says_what_the_chain_says),
	        cmocka_unit_test(what_is_in_common_is_stored_once),
	        cmocka_unit_test(a_large_copy_goes_in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
