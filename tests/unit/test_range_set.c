/* Sets of addresses, against a plain array of flags. */
#include "base/range_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define END 200

static void add_random(struct sp_array *ranges, bool *flags)
{
	for (int i = rand() % 12; i > 0; i--) {
		uint64_t start = (uint64_t)(rand() % END), size = (uint64_t)(rand() % 20);
		uint64_t end = start + size < END ? start + size : END;

		sp_ranges_add(ranges, (struct sp_range){start, end});
		for (uint64_t at = start; at < end; at++)
			flags[at] = true;
	}
	sp_ranges_normalize(ranges);
}

static void assert_same(const struct sp_array *ranges, const bool *flags)
{
	uint64_t total = 0, before = 0;

	for (uint64_t at = 0; at < END; at++) {
		size_t index = sp_ranges_search(ranges, at);
		const struct sp_range *found =
		        index < ranges->count ? sp_array_at(ranges, index) : NULL;

		assert_int_equal(found && sp_range_contains(*found, at), flags[at]);
		total += flags[at];
	}
	assert_int_equal(sp_ranges_total(ranges), total);
	for (size_t i = 0; i < ranges->count; i++) {
		const struct sp_range *range = sp_array_at(ranges, i);

		assert_true(range->start < range->end && (i == 0 || range->start > before));
		before = range->end;
	}
}

static void sets_hold_what_was_added_and_not_taken_out(void **state)
{
	srand(1);
	for (int round = 0; round < 2000; round++) {
		sp_cleanup_array struct sp_array left = SP_ARRAY_OF(struct sp_range);
		sp_cleanup_array struct sp_array right = SP_ARRAY_OF(struct sp_range);
		bool in_left[END] = {false}, in_right[END] = {false};

		add_random(&left, in_left);
		assert_same(&left, in_left);
		add_random(&right, in_right);
		sp_ranges_subtract(&left, &right);
		for (size_t at = 0; at < END; at++)
			in_left[at] = in_left[at] && !in_right[at];
		assert_same(&left, in_left);
		sp_ranges_add_all(&left, &right);
		sp_ranges_normalize(&left);
		for (size_t at = 0; at < END; at++)
			in_left[at] = in_left[at] || in_right[at];
		assert_same(&left, in_left);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sets_hold_what_was_added_and_not_taken_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
