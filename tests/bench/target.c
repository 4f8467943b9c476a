/*
 * The program that is dumped: `target SIZE CONTENTS PAGES` fills its memory, says READY, and checks
 * all of it when its standard input has a byte.
 */
#include "../subjects/subject.h"
#include "contents.h"

int main(int argc, char **argv)
{
	struct memory memory;
	uint8_t expected[PAGE], *start;

	if (argc != 4)
		errx(2, "usage: target SIZE zero|compressible|random 4k|huge");
	memory = parse_memory(argv + 1);
	start = reserve_memory(&memory);
	madvise(start, memory.size, MADV_POPULATE_WRITE);
	for (size_t page = 0; page < memory.size / PAGE; page++)
		if (has_data(&memory, page))
			fill_page(&memory, start + page * PAGE, page);

	subject_ready();

	for (size_t page = 0; page < memory.size / PAGE; page++) {
		memset(expected, 0, PAGE);
		if (has_data(&memory, page))
			fill_page(&memory, expected, page);
		if (!subject_check(memcmp(expected, start + page * PAGE, PAGE) == 0,
		                   "page %zu differs", page))
			break;
	}
	return subject_end();
}
