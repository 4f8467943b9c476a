/*
 * Guard pages (MADV_GUARD_INSTALL): they guard again, show nothing of what was there, and can be
 * taken away.
 */
#include "mapping.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#define PAGES 64

static bool guarded(size_t page)
{
	return page % 8 == 3 || (page >= 40 && page < 48);
}

int main(void)
{
	uint8_t *start = mapping_new(PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);

	mapping_fill(start, PAGES / 2 * PAGE, 1);
	for (size_t page = 0; page < PAGES; page++)
		if (guarded(page) && madvise(start + page * PAGE, PAGE, MADV_GUARD_INSTALL) != 0)
			subject_skip("this kernel has no MADV_GUARD_INSTALL (since Linux 6.13)");

	subject_ready();

	for (size_t page = 0; page < PAGES; page++) {
		uint8_t *at = start + page * PAGE;
		bool readable = mapping_readable(at);

		subject_check(readable != guarded(page), "page %zu is %s", page,
		              readable ? "readable" : "guarded");
		if (guarded(page)) {
			madvise(at, PAGE, MADV_GUARD_REMOVE);
			subject_check(mapping_is_zero(at, PAGE), "page %zu: guarded contents",
			              page);
		} else if (page < PAGES / 2) {
			mapping_check(at, PAGE, 1 + page * PAGE / 8, "page between guards");
		} else {
			subject_check(mapping_is_zero(at, PAGE), "page %zu is not zero", page);
		}
	}
	return subject_end();
}
