/* The account of written pages that some backends keep, a bit for each page: see backend.h. */
#include "track/backend.h"

struct sp_watch_area *sp_watch_area_at(struct sp_write_watch *watch, uint64_t address)
{
	for (size_t i = 0; i < watch->count; i++)
		if (sp_range_contains(watch->areas[i].range, address))
			return &watch->areas[i];
	return NULL;
}

void sp_watch_note(struct sp_write_watch *watch, struct sp_range range)
{
	for (size_t i = 0; i < watch->count; i++) {
		struct sp_watch_area *area = &watch->areas[i];

		if (!sp_range_overlaps(area->range, range))
			continue;
		for (uint64_t at = range.start < area->range.start ? area->range.start
		                                                   : range.start;
		     at < range.end && at < area->range.end; at += watch->page_size) {
			uint64_t page = (at - area->range.start) / watch->page_size;

			area->written[page / 64] |= 1ULL << page % 64;
		}
	}
}

int sp_watch_noted(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
                   bool forget, struct page_region *regions, size_t room, uint64_t max_pages)
{
	uint64_t page = (range->start - area->range.start) / watch->page_size;
	uint64_t end = (range->end - area->range.start) / watch->page_size;
	uint64_t found = 0;
	size_t count = 0;

	for (; page < end && !(max_pages && found == max_pages); page++) {
		uint64_t *word = &area->written[page / 64], bit = 1ULL << page % 64;
		uint64_t at = area->range.start + page * watch->page_size;

		if (!*word) {
			page |= 63; /* the last one of the word */
			continue;
		}
		if (!(*word & bit))
			continue;
		if (!count || regions[count - 1].end != at) {
			if (count == room)
				break;
			regions[count++] = (struct page_region){at, at, PAGE_IS_WRITTEN};
		}
		regions[count - 1].end = at + watch->page_size;
		found++;
		if (forget)
			*word &= ~bit;
	}
	range->start = page < end ? area->range.start + page * watch->page_size : range->end;
	return (int)count;
}
