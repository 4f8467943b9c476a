/* Populated pages: both ways of asking the kernel give the same, true answer. */
#include "base/cleanup.h"
#include "base/error.h"
#include "mem/page_scan.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include <cmocka.h>
#include "unit/huge_pages.h"

#define PAGES 16

static char *map_pages(size_t count)
{
	char *memory = mmap(NULL, count * SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	madvise(memory, count * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	return memory;
}

/* --- what a scan says, page by page --- */

struct pages {
	uint64_t start;
	uint64_t end; /* of the last run, to see that they ascend */
	size_t runs;
	uint64_t categories[8192];
};

static int note(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	struct pages *pages = context;

	assert_true(run.start < run.end);
	assert_true(run.start >= pages->end);
	pages->end = run.end;
	pages->runs++;
	for (uint64_t at = run.start; at < run.end; at += SP_PAGE_SIZE)
		pages->categories[(at - pages->start) / SP_PAGE_SIZE] = categories;
	return 0;
}

/* `way`: 1 asks PAGEMAP_SCAN if there is one, 0 only pagemap. */
static void scan(struct pages *pages, const void *memory, size_t count, int way)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan page_scan;
	struct sp_range range = {(uintptr_t)memory, (uintptr_t)memory + count * SP_PAGE_SIZE};
	struct sp_error err = {0};

	memset(pages, 0, sizeof(*pages));
	pages->start = range.start;
	if (sp_page_scan_open(&page_scan, getpid(), &err) < 0)
		fail_msg("%s", err.message);
	if (!way)
		sp_page_scan_use_pagemap(&page_scan);
	if (sp_page_scan_walk(&page_scan, range, note, pages, &err) < 0)
		fail_msg("%s", err.message);
}

static struct pages pages;

static void holes_zero_pages_and_contents_differ(void **state)
{
	char *memory = map_pages(PAGES);

	memory[2 * SP_PAGE_SIZE] = 1;
	memory[3 * SP_PAGE_SIZE] = 1;
	*(volatile char *)(memory + 5 * SP_PAGE_SIZE);
	for (int way = 0; way < 2; way++) {
		scan(&pages, memory, PAGES, way);
		assert_int_equal(pages.runs, 2);
		assert_int_equal(pages.categories[1], 0);
		assert_int_equal(pages.categories[2], PAGE_IS_PRESENT);
		assert_int_equal(pages.categories[3], PAGE_IS_PRESENT);
		assert_int_equal(pages.categories[5], PAGE_IS_PRESENT | PAGE_IS_PFNZERO);
	}
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void guard_regions_are_no_contents(void **state)
{
	char *memory = map_pages(PAGES);

	if (madvise(memory + 4 * SP_PAGE_SIZE, 2 * SP_PAGE_SIZE, MADV_GUARD_INSTALL) < 0)
		skip_because("this kernel has no MADV_GUARD_INSTALL (since Linux 6.13)");
	memory[6 * SP_PAGE_SIZE] = 1;
	for (int way = 0; way < 2; way++) {
		scan(&pages, memory, PAGES, way);
		assert_int_equal(pages.categories[3], 0);
		assert_int_equal(pages.categories[4], PAGE_IS_GUARD);
		assert_int_equal(pages.categories[5], PAGE_IS_GUARD);
		assert_int_equal(pages.categories[6], PAGE_IS_PRESENT);
	}
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

/* Protects pages, populated or not; returns the userfaultfd, or -1 if this kernel has no such. */
static int protect_pages(char *memory)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_UNPOPULATED};
	struct uffdio_range range = {(uintptr_t)memory, PAGES * SP_PAGE_SIZE};
	struct uffdio_register request = {.range = range, .mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_writeprotect protect = {.range = range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
		return -1;
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &request), 0);
	assert_int_equal(ioctl(fd, UFFDIO_WRITEPROTECT, &protect), 0);
	return fd;
}

/* Protecting an unpopulated page leaves a marker, which PAGEMAP_SCAN calls swapped. */
static void markers_of_write_protection_are_holes(void **state)
{
	char *memory = map_pages(PAGES);
	sp_cleanup_close int fd = -1;

	memory[7 * SP_PAGE_SIZE] = 1;
	fd = protect_pages(memory);
	if (fd < 0)
		skip_because("asynchronous write protection is not allowed here");
	for (int way = 0; way < 2; way++) {
		scan(&pages, memory, PAGES, way);
		assert_int_equal(pages.runs, 1);
		assert_int_equal(pages.categories[7], PAGE_IS_PRESENT);
	}
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

/* Asks until the kernel, which passes over pages that it is busy with, has swapped the page out. */
static bool swap_out(char *page)
{
	for (int attempt = 0; attempt < 100; attempt++) {
		madvise(page, SP_PAGE_SIZE, MADV_PAGEOUT);
		scan(&pages, page, 1, 0);
		if (pages.categories[0] == PAGE_IS_SWAPPED)
			return true;
	}
	print_message("nothing is swapped out (tests/integration/swap.sh makes a swap device)\n");
	return false;
}

static void swapped_pages_are_told_from_markers(void **state)
{
	char *memory = map_pages(PAGES);
	sp_cleanup_close int fd = -1;

	memory[3 * SP_PAGE_SIZE] = 1;
	memory[4 * SP_PAGE_SIZE] = 1;
	memory[6 * SP_PAGE_SIZE] = 1;
	fd = protect_pages(memory);
	if (fd < 0 || !swap_out(memory + 3 * SP_PAGE_SIZE) || !swap_out(memory + 6 * SP_PAGE_SIZE))
		skip_because("there is no swap, or no asynchronous write protection");
	for (int way = 0; way < 2; way++) {
		scan(&pages, memory, PAGES, way);
		assert_int_equal(pages.runs, 3);
		assert_int_equal(pages.categories[3], PAGE_IS_SWAPPED);
		assert_int_equal(pages.categories[4], PAGE_IS_PRESENT);
		assert_int_equal(pages.categories[6], PAGE_IS_SWAPPED);
	}
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void pages_of_files_are_told_from_copies(void **state)
{
	sp_cleanup_close int fd = memfd_create("scan", MFD_CLOEXEC);
	char *memory;

	assert_int_equal(ftruncate(fd, 4 * SP_PAGE_SIZE), 0);
	assert_int_equal(pwrite(fd, "x", 1, 2 * SP_PAGE_SIZE), 1);
	memory = mmap(NULL, 4 * SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	memory[SP_PAGE_SIZE] = 1;
	*(volatile char *)(memory + 2 * SP_PAGE_SIZE);
	for (int way = 0; way < 2; way++) {
		scan(&pages, memory, 4, way);
		assert_int_equal(pages.categories[1], PAGE_IS_PRESENT);
		assert_int_equal(pages.categories[2], PAGE_IS_PRESENT | PAGE_IS_FILE);
	}
	munmap(memory, 4 * SP_PAGE_SIZE);
}

/* More runs than the kernel gives at a time: none is lost, none comes twice (note() checks). */
static void many_runs_come_once_each(void **state)
{
	const size_t count = 8192;
	char *memory = map_pages(count);

	for (size_t i = 0; i < count; i += 2)
		memory[i * SP_PAGE_SIZE] = 1;
	for (int way = 0; way < 2; way++) {
		scan(&pages, memory, count, way);
		assert_int_equal(pages.runs, count / 2);
		for (size_t i = 0; i < count; i++)
			assert_int_equal(pages.categories[i], i % 2 ? 0 : PAGE_IS_PRESENT);
	}
	munmap(memory, count * SP_PAGE_SIZE);
}

static void huge_pages_are_told(void **state)
{
	const size_t count = 2 * SP_HUGE_PAGE_SIZE / SP_PAGE_SIZE;
	char *memory = mmap(NULL, 2 * SP_HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t huge = ((uintptr_t)memory + SP_HUGE_PAGE_SIZE - 1) & ~(SP_HUGE_PAGE_SIZE - 1);

	assert_ptr_not_equal(memory, MAP_FAILED);
	if (madvise((void *)huge, SP_HUGE_PAGE_SIZE, MADV_POPULATE_WRITE) < 0 ||
	    madvise((void *)huge, SP_HUGE_PAGE_SIZE, MADV_COLLAPSE) < 0)
		skip_because("the kernel gives no transparent huge page");
	skip_unless_huge_pages_are_told();
	scan(&pages, memory, count, 1);
	assert_int_equal(pages.categories[(huge - (uintptr_t)memory) / SP_PAGE_SIZE],
	                 PAGE_IS_PRESENT | PAGE_IS_HUGE);
	munmap(memory, 2 * SP_HUGE_PAGE_SIZE);
}

static void a_process_that_is_gone_is_an_error(void **state)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan page_scan;
	struct sp_error err = {0};

	assert_int_equal(sp_page_scan_open(&page_scan, 0x3fffffff, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(holes_zero_pages_and_contents_differ),
	        cmocka_unit_test(guard_regions_are_no_contents),
	        cmocka_unit_test(markers_of_write_protection_are_holes),
	        cmocka_unit_test(swapped_pages_are_told_from_markers),
	        cmocka_unit_test(pages_of_files_are_told_from_copies),
	        cmocka_unit_test(many_runs_come_once_each),
	        cmocka_unit_test(huge_pages_are_told),
	        cmocka_unit_test(a_process_that_is_gone_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
