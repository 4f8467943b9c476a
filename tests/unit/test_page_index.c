/*
 * The page index: a chunk that says what cannot be is refused, and what is accepted is found again.
 */
#include "base/error.h"
#include "image/page_index.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGES_SIZE (4 * SP_PAGE_SIZE) /* of pages.img: two raw frames of two pages */

/*
 * Two chunks, to be spoiled by a test: each with one object, a run of two DATA pages and a hole.
 */
struct fixture {
	Sealpoint__PageIndex chunks[2];
	uint32_t objects[2][2], object_runs[2][2], origins[2][2], states[2][3];
	uint64_t gaps[2][3], lengths[2][3];
};

static void fixture_init(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	for (uint32_t i = 0; i < 2; i++) {
		Sealpoint__PageIndex *chunk = &fixture->chunks[i];

		sealpoint__page_index__init(chunk);
		chunk->frame_offset = i * 2 * SP_PAGE_SIZE;
		chunk->frame_size = 2 * SP_PAGE_SIZE;
		chunk->frame_encoding = SP_FRAME_RAW;
		chunk->n_objects = chunk->n_object_runs = 1;
		chunk->objects = fixture->objects[i];
		chunk->object_runs = fixture->object_runs[i];
		chunk->origins = fixture->origins[i];
		chunk->n_gaps = chunk->n_lengths = chunk->n_states = 2;
		chunk->gaps = fixture->gaps[i];
		chunk->lengths = fixture->lengths[i];
		chunk->states = fixture->states[i];
		fixture->objects[i][0] = 1;
		fixture->object_runs[i][0] = 2;
		fixture->gaps[i][0] = 100 + i * 50;
		fixture->lengths[i][0] = 2;
		fixture->states[i][0] = SP_PAGE_DATA;
		fixture->gaps[i][1] = 3;
		fixture->lengths[i][1] = 10;
		fixture->states[i][1] = SP_PAGE_HOLE;
	}
}

/* The second chunk is of object 2, which has pages in common with object 1, and two of its own. */
static void have_in_common(struct fixture *fixture, uint64_t page, uint64_t pages)
{
	fixture->objects[1][0] = 2;
	fixture->chunks[1].n_origins = 1;
	fixture->origins[1][0] = 1;
	fixture->gaps[1][0] = page;
	fixture->lengths[1][0] = pages;
	fixture->states[1][0] = SP_PAGE_COMMON;
	fixture->lengths[1][1] = 2;
	fixture->states[1][1] = SP_PAGE_DATA;
}

static int build(const struct fixture *fixture, struct sp_page_index *index, struct sp_error *err)
{
	int status = 0;

	sp_page_index_init(index, PAGES_SIZE);
	for (size_t i = 0; i < 2 && status == 0; i++)
		status = sp_page_index_add(index, &fixture->chunks[i], err);
	return status < 0 ? status : sp_page_index_complete(index, err);
}

static void pages_are_found_in_their_runs(void **state)
{
	struct fixture fixture;
	struct sp_page_index index;
	struct sp_error err = {0};
	const struct sp_index_run *run;

	fixture_init(&fixture);
	assert_int_equal(build(&fixture, &index, &err), 0);
	run = sp_page_index_run(&index, 1, sp_page_index_search(&index, 1, 101));
	assert_int_equal(run->page, 100);
	assert_int_equal(run->state, SP_PAGE_DATA);
	run = sp_page_index_run(&index, 1, sp_page_index_search(&index, 1, 102)); /* the next one */
	assert_int_equal(run->page, 105);
	assert_int_equal(run->pages, 10);
	run = sp_page_index_run(&index, 1, sp_page_index_search(&index, 1, 150));
	assert_int_equal(run->frame, 1);
	assert_null(sp_page_index_run(&index, 1, sp_page_index_search(&index, 1, 1000)));
	assert_null(sp_page_index_run(&index, 2, sp_page_index_search(&index, 2, 100)));
	assert_int_equal(sp_page_index_count(&index, 1, 101, 110), 1 + 5);
	sp_page_index_release(&index);
}

static void chunks_may_come_in_any_order(void **state)
{
	struct fixture fixture;
	struct sp_page_index index;
	struct sp_error err = {0};

	fixture_init(&fixture);
	fixture.gaps[0][0] = 900;
	assert_int_equal(build(&fixture, &index, &err), 0);
	assert_int_equal(sp_page_index_search(&index, 1, 150), 0);
	assert_int_equal(sp_page_index_search(&index, 1, 900), 2);
	sp_page_index_release(&index);
}

static void a_layer_covers_the_ones_below(void **state)
{
	static const struct {
		uint64_t page, pages;
		uint32_t layer, frame, place;
		enum sp_page_state state;
	} expected[] = {
	        {90, 10, 1, 1, 0, SP_PAGE_PARENT}, {100, 1, 0, 0, 0, SP_PAGE_DATA},
	        {101, 2, 1, 1, 0, SP_PAGE_DATA},   {105, 5, 0, 0, 0, SP_PAGE_HOLE},
	        {110, 10, 1, 0, 0, SP_PAGE_ZERO},
	};
	struct fixture fixture;
	struct sp_page_index index;
	struct sp_error err = {0};

	fixture_init(&fixture);
	fixture.chunks[1].layer = 1; /* PARENT 90-100, DATA 101-102, ZERO 110-119 */
	fixture.chunks[1].n_gaps = fixture.chunks[1].n_lengths = fixture.chunks[1].n_states = 3;
	fixture.object_runs[1][0] = 3;
	memcpy(fixture.gaps[1], (uint64_t[]){90, 0, 7}, sizeof(fixture.gaps[1]));
	memcpy(fixture.lengths[1], (uint64_t[]){11, 2, 10}, sizeof(fixture.lengths[1]));
	memcpy(fixture.states[1], (uint32_t[]){SP_PAGE_PARENT, SP_PAGE_DATA, SP_PAGE_ZERO},
	       sizeof(fixture.states[1]));
	assert_int_equal(build(&fixture, &index, &err), 0);
	assert_int_equal(index.runs.count, sizeof(expected) / sizeof(expected[0]));
	for (size_t i = 0; i < index.runs.count; i++) {
		const struct sp_index_run *run = sp_array_at(&index.runs, i);

		assert_int_equal(run->page, expected[i].page);
		assert_int_equal(run->pages, expected[i].pages);
		assert_int_equal(run->layer, expected[i].layer);
		assert_int_equal(run->state, expected[i].state);
		assert_int_equal(run->frame, expected[i].frame);
		assert_int_equal(run->place, expected[i].place);
	}
	sp_page_index_release(&index);
}

static void what_is_in_common_is_found_at_its_origin(void **state)
{
	struct fixture fixture;
	struct sp_page_index index;
	struct sp_page_stats stats;
	struct sp_error err = {0};
	const struct sp_index_run *run;

	fixture_init(&fixture);
	have_in_common(&fixture, 101, 1);
	assert_int_equal(build(&fixture, &index, &err), 0);
	run = sp_page_index_run(&index, 2, sp_page_index_search(&index, 2, 101));
	assert_int_equal(run->page, 101);
	assert_int_equal(run->pages, 1);
	assert_int_equal(run->state, SP_PAGE_DATA);
	assert_int_equal(run->frame, 0);
	assert_int_equal(run->place, 1);
	run = sp_page_index_run(&index, 2, sp_page_index_search(&index, 2, 105));
	assert_int_equal(run->frame, 1);
	sp_page_index_stats(&index, &stats);
	assert_int_equal(stats.pages[SP_PAGE_DATA], 5);
	assert_int_equal(stats.raw_bytes, 4 * SP_PAGE_SIZE);
	assert_int_equal(stats.superseded_bytes, 0);
	sp_page_index_release(&index);
}

static void what_is_in_common_may_be_in_the_parent(void **state)
{
	struct fixture fixture;
	struct sp_page_index index;
	struct sp_error err = {0};
	const struct sp_index_run *run;

	fixture_init(&fixture);
	have_in_common(&fixture, 105, 4);
	fixture.states[0][1] = SP_PAGE_PARENT;
	assert_int_equal(build(&fixture, &index, &err), 0);
	run = sp_page_index_run(&index, 2, sp_page_index_search(&index, 2, 105));
	assert_int_equal(run->pages, 4);
	assert_int_equal(run->state, SP_PAGE_PARENT);
	assert_int_equal(run->origin, 1);
	sp_page_index_release(&index);
}

static void what_is_outside_of_the_ranges_is_forgotten(void **state)
{
	struct fixture fixture;
	struct sp_page_index index;
	struct sp_error err = {0};
	struct sp_array ranges = SP_ARRAY_OF(struct sp_range);
	struct sp_range list[] = {{0, 50 * SP_PAGE_SIZE},
	                          {101 * SP_PAGE_SIZE, 107 * SP_PAGE_SIZE},
	                          {108 * SP_PAGE_SIZE, 109 * SP_PAGE_SIZE}};
	const struct sp_index_run *run;

	for (size_t i = 0; i < 3; i++)
		sp_array_append(&ranges, &list[i]);
	fixture_init(&fixture);
	fixture.objects[1][0] = 2;
	assert_int_equal(build(&fixture, &index, &err), 0);
	sp_page_index_keep(&index, 1, &ranges);
	assert_int_equal(sp_page_index_count(&index, 1, 0, SP_INDEX_PAGES_END), 1 + 2 + 1);
	assert_int_equal(sp_page_index_count(&index, 1, 101, 109), 1 + 2 + 1);
	assert_int_equal(sp_page_index_count(&index, 2, 0, SP_INDEX_PAGES_END), 12);
	run = sp_page_index_run(&index, 1, sp_page_index_search(&index, 1, 101));
	assert_int_equal(run->place, 1);
	sp_array_release(&ranges);
	sp_page_index_release(&index);
}

static void object_zero(struct fixture *fixture)
{
	fixture->objects[0][0] = 0;
}

static void missing_object_runs(struct fixture *fixture)
{
	fixture->chunks[0].n_object_runs = 0;
}

static void too_many_object_runs(struct fixture *fixture)
{
	fixture->object_runs[0][0] = UINT32_MAX;
}

static void short_column(struct fixture *fixture)
{
	fixture->chunks[0].n_states = 1;
}

static void unknown_state(struct fixture *fixture)
{
	fixture->states[0][1] = SP_PAGE_STATES;
}

static void empty_run(struct fixture *fixture)
{
	fixture->lengths[0][1] = 0;
}

static void run_over_the_end(struct fixture *fixture)
{
	fixture->lengths[0][1] = UINT64_MAX - 3;
}

static void gap_over_the_end(struct fixture *fixture)
{
	fixture->gaps[0][1] = UINT64_MAX - 50;
}

static void large_frame(struct fixture *fixture)
{
	fixture->lengths[0][0] = SP_FRAME_PAGES + 1;
}

static void page_twice(struct fixture *fixture)
{
	fixture->gaps[1][0] = 114;
}

static void frame_without_pages(struct fixture *fixture)
{
	fixture->states[0][0] = SP_PAGE_ZERO;
}

static void pages_without_frame(struct fixture *fixture)
{
	fixture->chunks[0].frame_size = 0;
}

static void unknown_encoding(struct fixture *fixture)
{
	fixture->chunks[0].frame_encoding = 3;
}

static void huge_encoding(struct fixture *fixture)
{
	fixture->chunks[0].frame_encoding = 0x100 + SP_FRAME_RAW;
}

static void huge_frame_size(struct fixture *fixture)
{
	fixture->chunks[0].frame_size = (1ULL << 32) + 2 * SP_PAGE_SIZE;
}

static void raw_size_wrong(struct fixture *fixture)
{
	fixture->chunks[0].frame_size = SP_PAGE_SIZE;
}

static void raw_unaligned(struct fixture *fixture)
{
	fixture->chunks[0].frame_offset = 1;
}

static void frame_outside(struct fixture *fixture)
{
	fixture->chunks[1].frame_offset = 3 * SP_PAGE_SIZE;
}

static void frame_far_outside(struct fixture *fixture)
{
	fixture->chunks[1].frame_offset = UINT64_MAX - SP_PAGE_SIZE + 1;
}

static void frames_overlap(struct fixture *fixture)
{
	fixture->chunks[1].frame_offset = SP_PAGE_SIZE;
}

static void frames_leave_a_gap(struct fixture *fixture)
{
	fixture->chunks[0].frame_encoding = SP_FRAME_ZSTD;
	fixture->chunks[0].frame_size = 100;
}

static void frames_end_early(struct fixture *fixture)
{
	fixture->chunks[1].frame_encoding = SP_FRAME_ZSTD;
	fixture->chunks[1].frame_size = 100;
}

static void layer_too_high(struct fixture *fixture)
{
	fixture->chunks[0].layer = SP_PAGE_LAYERS;
}

static void page_twice_in_a_higher_layer(struct fixture *fixture)
{
	fixture->gaps[1][0] = 114;
	fixture->chunks[0].layer = fixture->chunks[1].layer = 63;
}

static void origin_missing(struct fixture *fixture)
{
	have_in_common(fixture, 100, 2);
	fixture->chunks[1].n_origins = 0;
}

static void origin_is_itself(struct fixture *fixture)
{
	have_in_common(fixture, 100, 2);
	fixture->origins[1][0] = 2;
}

static void origin_has_nothing(struct fixture *fixture)
{
	have_in_common(fixture, 101, 2);
}

static void too_many_origins(struct fixture *fixture)
{
	have_in_common(fixture, 100, 2);
	fixture->chunks[1].n_origins = 2;
}

static void what_cannot_be_is_refused(void **state)
{
	static const struct {
		void (*spoil)(struct fixture *fixture);
		const char *words;
	} cases[] = {
	        {object_zero, "number 0"},
	        {missing_object_runs, "1 objects with 0 numbers"},
	        {too_many_object_runs, "for 4294967295 runs"},
	        {short_column, "columns of 2, 2 and 1"},
	        {unknown_state, "unknown state 7"},
	        {empty_run, "a run of 0 pages"},
	        {run_over_the_end, "which cannot be"},
	        {gap_over_the_end, "which cannot be"},
	        {large_frame, "more than 128 pages"},
	        {page_twice, "page 114 of object 1 has two states"},
	        {page_twice_in_a_higher_layer, "page 114 of object 1 has two states"},
	        {layer_too_high, "layer 64 of at most 64"},
	        {frame_without_pages, "0 DATA pages in a frame"},
	        {pages_without_frame, "2 DATA pages in a frame of 0"},
	        {unknown_encoding, "unknown encoding 3"},
	        {huge_encoding, "in encoding 258"},
	        {huge_frame_size, "which cannot be"},
	        {raw_size_wrong, "2 pages in 4096 bytes"},
	        {raw_unaligned, "which cannot be"},
	        {frame_outside, "outside of pages.img"},
	        {frame_far_outside, "outside of pages.img"},
	        {frames_overlap, "overlap at offset 4096"},
	        {frames_leave_a_gap, "leave a gap at offset 100"},
	        {frames_end_early, "end at offset 8292"},
	        {origin_missing, "in common with object 0, which cannot be"},
	        {origin_is_itself, "in common with object 2, which cannot be"},
	        {origin_has_nothing,
	         "page 102 of object 2 is to be that of object 1, which has none"},
	        {too_many_origins, "1 objects with 1 numbers of runs and 2 origins"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture fixture;
		struct sp_page_index index;
		struct sp_error err = {0};

		fixture_init(&fixture);
		cases[i].spoil(&fixture);
		assert_int_equal(build(&fixture, &index, &err), -EBADMSG);
		if (!strstr(err.message, cases[i].words))
			fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].words);
		sp_page_index_release(&index);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pages_are_found_in_their_runs),
	        cmocka_unit_test(chunks_may_come_in_any_order),
	        cmocka_unit_test(a_layer_covers_the_ones_below),
	        cmocka_unit_test(what_is_in_common_is_found_at_its_origin),
	        cmocka_unit_test(what_is_in_common_may_be_in_the_parent),
	        cmocka_unit_test(what_is_outside_of_the_ranges_is_forgotten),
	        cmocka_unit_test(what_cannot_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
