/* Tests that look at huge pages: only PAGEMAP_SCAN tells which they are. Include cmocka.h first. */
#ifndef SEALPOINT_TESTS_HUGE_PAGES_H
#define SEALPOINT_TESTS_HUGE_PAGES_H

#include "mem/page_scan.h"
#include "unit/skip.h"

#include <unistd.h>

/** Ends the test that calls it on a kernel without PAGEMAP_SCAN. */
static inline void skip_unless_huge_pages_are_told(void)
{
	struct sp_page_scan scan;
	bool told;

	assert_int_equal(sp_page_scan_open(&scan, getpid(), NULL), 0);
	told = scan.categories != 0;
	sp_page_scan_close(&scan);
	if (!told)
		skip_because("only PAGEMAP_SCAN tells which pages are huge (since Linux 6.7)");
}

#endif
