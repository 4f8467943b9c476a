/*
 * Pages of one mapping in every state: with contents, written with zeros, only read, never touched,
 * and discarded. Contents come back, and what was resident is resident again and nothing else.
 */
#include "mapping.h"

#define GROUP 16 /* pages of each state, side by side */
#define GROUPS 5
#define PAGES (GROUP * GROUPS * 8)

enum { FILLED, ZEROED, ONLY_READ, UNTOUCHED, DISCARDED };

static int state_of(size_t page)
{
	return (int)(page / GROUP % GROUPS);
}

static void prepare(uint8_t *start)
{
	volatile uint8_t seen;

	for (size_t page = 0; page < PAGES; page++) {
		uint8_t *at = start + page * PAGE;

		switch (state_of(page)) {
		case FILLED:
			mapping_fill(at, PAGE, page);
			break;
		case ZEROED:
			memset(at, 0, PAGE);
			break;
		case ONLY_READ:
			seen = *(volatile uint8_t *)at;
			break;
		case DISCARDED:
			mapping_fill(at, PAGE, page);
			madvise(at, PAGE, MADV_DONTNEED);
			break;
		}
	}
	(void)seen;
}

static void check_residency(const uint8_t *start)
{
	for (size_t page = 0; page < PAGES; page++) {
		int state = state_of(page);
		bool populated = mapping_populated(start + page * PAGE);

		if (state == FILLED || state == ZEROED)
			subject_check(populated, "page %zu was written and is not there", page);
		if (state == UNTOUCHED || state == DISCARDED)
			subject_check(!populated, "page %zu was not there and is now", page);
	}
}

static void check_contents(const uint8_t *start)
{
	for (size_t page = 0; page < PAGES; page++) {
		const uint8_t *at = start + page * PAGE;

		if (state_of(page) == FILLED)
			mapping_check(at, PAGE, page, "filled page");
		else
			subject_check(mapping_is_zero(at, PAGE), "page %zu is not zero", page);
	}
}

int main(void)
{
	uint8_t *start = mapping_new(PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	uint8_t *heap_end = sbrk(64 * PAGE);

	subject_need(heap_end != (void *)-1, "sbrk");
	mapping_fill(heap_end, 64 * PAGE, 4711);
	madvise(start, PAGES * PAGE, MADV_NOHUGEPAGE);
	prepare(start);
	check_residency(start);

	subject_ready();

	check_residency(start);
	check_contents(start);
	mapping_check(heap_end, 64 * PAGE, 4711, "the heap that brk(2) made");
	subject_check(sbrk(0) == heap_end + 64 * PAGE, "the end of the heap has moved");
	subject_check(sbrk((intptr_t)PAGE) == heap_end + 64 * PAGE, "the heap does not grow");
	return subject_end();
}
