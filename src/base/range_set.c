/* Sets of addresses: see range_set.h. */
#include "base/range_set.h"

void sp_ranges_add(struct sp_array *ranges, struct sp_range range)
{
	struct sp_range *last = ranges->count ? sp_array_at(ranges, ranges->count - 1) : NULL;

	if (last && last->end == range.start)
		last->end = range.end;
	else
		sp_array_append(ranges, &range);
}

void sp_ranges_add_all(struct sp_array *ranges, const struct sp_array *others)
{
	for (size_t i = 0; i < others->count; i++)
		sp_ranges_add(ranges, *(struct sp_range *)sp_array_at(others, i));
}

void sp_ranges_normalize(struct sp_array *ranges)
{
	struct sp_range *items = ranges->items;
	size_t kept = 0;

	sp_array_sort(ranges, sp_range_compare);
	for (size_t i = 0; i < ranges->count; i++) {
		if (items[i].start >= items[i].end)
			continue;
		if (kept > 0 && items[kept - 1].end >= items[i].start) {
			if (items[kept - 1].end < items[i].end)
				items[kept - 1].end = items[i].end;
		} else {
			items[kept++] = items[i];
		}
	}
	ranges->count = kept;
}

void sp_ranges_subtract(struct sp_array *ranges, const struct sp_array *what)
{
	struct sp_array rest = SP_ARRAY_OF(struct sp_range);
	size_t taken = 0;

	for (size_t i = 0; i < ranges->count; i++) {
		struct sp_range left = *(struct sp_range *)sp_array_at(ranges, i);

		for (; taken < what->count; taken++) {
			const struct sp_range *cut = sp_array_at(what, taken);

			if (cut->end <= left.start)
				continue;
			if (cut->start >= left.end)
				break;
			if (cut->start > left.start)
				sp_ranges_add(&rest, (struct sp_range){left.start, cut->start});
			left.start = cut->end < left.end ? cut->end : left.end;
			if (cut->end > left.end)
				break; /* it reaches into the next range */
		}
		if (left.start < left.end)
			sp_ranges_add(&rest, left);
	}
	sp_array_release(ranges);
	*ranges = rest;
}

size_t sp_ranges_search(const struct sp_array *ranges, uint64_t address)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct sp_range *range = sp_array_at(ranges, middle);

		if (range->end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool sp_ranges_have(const struct sp_array *ranges, struct sp_range range)
{
	for (size_t i = 0; i < ranges->count; i++)
		if (((struct sp_range *)sp_array_at(ranges, i))->start == range.start)
			return true;
	return false;
}

uint64_t sp_ranges_total_within(const struct sp_array *ranges, struct sp_range within)
{
	uint64_t total = 0;

	for (size_t i = sp_ranges_search(ranges, within.start); i < ranges->count; i++) {
		struct sp_range part = *(struct sp_range *)sp_array_at(ranges, i);

		if (part.start >= within.end)
			break;
		total += sp_range_size(sp_range_within(part, within));
	}
	return total;
}

uint64_t sp_ranges_total(const struct sp_array *ranges)
{
	uint64_t total = 0;

	for (size_t i = 0; i < ranges->count; i++)
		total += sp_range_size(*(struct sp_range *)sp_array_at(ranges, i));
	return total;
}
