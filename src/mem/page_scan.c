/* Populated pages of a process: see page_scan.h. */
#include "mem/page_scan.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "proc/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/ioctl.h>

#define REGIONS_MAX 2048
#define ENTRIES_MAX 1024

#define POPULATED (PAGE_IS_PRESENT | PAGE_IS_SWAPPED)
#define REPORTED (POPULATED | PAGE_IS_FILE | PAGE_IS_PFNZERO | PAGE_IS_HUGE)

/* Entries of /proc/PID/pagemap: Documentation/admin-guide/mm/pagemap.rst. */
#define ENTRY_FRAME_MASK ((1ULL << 55) - 1)
#define ENTRY_SOFT_DIRTY (1ULL << 55)
#define ENTRY_GUARD (1ULL << 58) /* 6.15 */
#define ENTRY_FILE (1ULL << 61)
#define ENTRY_SWAP (1ULL << 62)
#define ENTRY_PRESENT (1ULL << 63)
/*
 * The frame of a swap entry is its type (5 bits) and its offset. The last type is no swap device
 * but a marker, whose offset tells what it marks (include/linux/swapops.h, since 5.19).
 */
#define SWAP_TYPE_BITS 5
#define SWAP_TYPE_MARKER 31
#define MARKER_WRITE_PROTECTED 1
#define MARKER_GUARD 4

static int read_entries(const struct sp_page_scan *scan, uint64_t address, uint64_t *entries,
                        size_t count, struct sp_error *err)
{
	ssize_t got = sp_pread_full(scan->pagemap, entries, count * sizeof(*entries),
	                            (off_t)(address / SP_PAGE_SIZE * sizeof(*entries)));

	if (got < 0)
		return sp_fail_errno(err, (int)-got, "cannot read pagemap at 0x%" PRIx64, address);
	if ((size_t)got != count * sizeof(*entries))
		return sp_fail(err, ESRCH, "pagemap ends at 0x%" PRIx64 ": the process is gone",
		               address);
	return 0;
}

/*
 * The page frame numbers in pagemap tell the zero page from others, once its number is known: that
 * of a page of our own which has only been read. Without CAP_SYS_ADMIN all numbers read as 0.
 */
static uint64_t find_zero_frame(void)
{
	const volatile char *page = mmap(NULL, SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sp_cleanup_close int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	const struct sp_page_scan own = {.pagemap = fd};
	uint64_t entry = 0;

	if (page == MAP_FAILED)
		return 0;
	(void)*page;
	if (fd >= 0 && read_entries(&own, (uintptr_t)page, &entry, 1, NULL) < 0)
		entry = 0;
	munmap((void *)page, SP_PAGE_SIZE);
	return entry & ENTRY_FRAME_MASK;
}

static int scan_once(const struct sp_page_scan *scan, struct sp_range range)
{
	struct pm_scan_arg arg = {
	        .size = sizeof(arg),
	        .start = range.start,
	        .end = range.end,
	        .vec = (uintptr_t)scan->regions,
	        .vec_len = REGIONS_MAX,
	        .category_anyof_mask = scan->categories & (POPULATED | PAGE_IS_GUARD),
	        .return_mask = scan->categories,
	};
	int count = ioctl(scan->pagemap, PAGEMAP_SCAN, &arg);

	return count < 0 ? -errno : count;
}

/* Asks for a page of nothing: the kernel refuses masks that it does not know before it looks. */
static bool knows(struct sp_page_scan *scan, uint64_t categories)
{
	scan->categories = categories;
	return scan_once(scan, (struct sp_range){0, SP_PAGE_SIZE}) >= 0;
}

int sp_page_scan_open(struct sp_page_scan *scan, pid_t pid, struct sp_error *err)
{
	*scan = (struct sp_page_scan){.pagemap = -1};
	scan->pagemap = sp_proc_open(pid, "pagemap", O_RDONLY, err);
	if (scan->pagemap < 0)
		return scan->pagemap;
	scan->regions = sp_alloc(REGIONS_MAX * sizeof(*scan->regions));
	if (!knows(scan, REPORTED | PAGE_IS_GUARD) && !knows(scan, REPORTED))
		sp_page_scan_use_pagemap(scan);
	return 0;
}

void sp_page_scan_use_pagemap(struct sp_page_scan *scan)
{
	scan->categories = 0;
	scan->zero_frame = find_zero_frame();
}

void sp_page_scan_use_soft_dirty(struct sp_page_scan *scan)
{
	sp_page_scan_use_pagemap(scan);
	scan->soft_dirty = true;
}

void sp_page_scan_close(struct sp_page_scan *scan)
{
	if (scan->pagemap >= 0)
		close(scan->pagemap);
	free(scan->regions);
	*scan = (struct sp_page_scan){.pagemap = -1};
}

static uint64_t swap_categories(uint64_t entry)
{
	uint64_t frame = entry & ENTRY_FRAME_MASK;
	uint64_t marker = frame >> SWAP_TYPE_BITS;

	if (entry & ENTRY_GUARD)
		return PAGE_IS_GUARD;
	if ((frame & ((1 << SWAP_TYPE_BITS) - 1)) == SWAP_TYPE_MARKER) {
		if (marker & MARKER_GUARD)
			return PAGE_IS_GUARD;
		if (marker == MARKER_WRITE_PROTECTED)
			return 0;
	}
	return PAGE_IS_SWAPPED | (entry & ENTRY_FILE ? PAGE_IS_FILE : 0);
}

static uint64_t entry_categories(const struct sp_page_scan *scan, uint64_t entry)
{
	bool zero = scan->zero_frame && (entry & ENTRY_FRAME_MASK) == scan->zero_frame;
	uint64_t categories = 0;

	if (entry & ENTRY_PRESENT)
		categories = PAGE_IS_PRESENT | (entry & ENTRY_FILE ? PAGE_IS_FILE : 0) |
		             (zero ? PAGE_IS_PFNZERO : 0);
	else if (entry & ENTRY_SWAP)
		categories = swap_categories(entry);
	if (categories && scan->soft_dirty && entry & ENTRY_SOFT_DIRTY)
		categories |= PAGE_IS_SOFT_DIRTY;
	return categories;
}

/* Visits a range by its pagemap entries, joined to runs of the same categories. */
static int walk_entries(const struct sp_page_scan *scan, struct sp_range range,
                        sp_page_visitor visit, void *context, struct sp_error *err)
{
	struct sp_range run = {range.start, range.start};
	uint64_t entries[ENTRIES_MAX], categories = 0;

	for (uint64_t at = range.start; at < range.end;) {
		uint64_t left = (range.end - at) / SP_PAGE_SIZE;
		size_t count = left < ENTRIES_MAX ? (size_t)left : ENTRIES_MAX;
		int rc = read_entries(scan, at, entries, count, err);

		for (size_t i = 0; rc == 0 && i < count; i++, at += SP_PAGE_SIZE) {
			uint64_t page = entry_categories(scan, entries[i]);

			if (page != categories) {
				run.end = at;
				if (categories)
					rc = visit(context, run, categories, err);
				run.start = at;
				categories = page;
			}
		}
		if (rc < 0)
			return rc;
	}
	run.end = range.end;
	return categories ? visit(context, run, categories, err) : 0;
}

static int visit_region(const struct sp_page_scan *scan, const struct page_region *region,
                        sp_page_visitor visit, void *context, struct sp_error *err)
{
	struct sp_range run = {region->start, region->end};

	if (region->categories & PAGE_IS_GUARD)
		return visit(context, run, PAGE_IS_GUARD, err);
	if (region->categories & PAGE_IS_SWAPPED)
		return walk_entries(scan, run, visit, context, err);
	return visit(context, run, region->categories, err);
}

/*
 * A result that is shorter than the vector means that the walk is complete. Otherwise it goes on
 * behind the last region: walk_end may lie before that one, and going on from there would report
 * pages twice.
 */
int sp_page_scan_walk(struct sp_page_scan *scan, struct sp_range range, sp_page_visitor visit,
                      void *context, struct sp_error *err)
{
	int count = REGIONS_MAX;

	if (!scan->categories)
		return walk_entries(scan, range, visit, context, err);
	while (count == REGIONS_MAX && range.start < range.end) {
		count = scan_once(scan, range);
		if (count < 0)
			return sp_fail_errno(err, -count,
			                     "cannot scan the pages at 0x%" PRIx64 "-0x%" PRIx64,
			                     range.start, range.end);
		for (int i = 0; i < count; i++) {
			int rc = visit_region(scan, &scan->regions[i], visit, context, err);

			if (rc < 0)
				return rc;
			range.start = scan->regions[i].end;
		}
	}
	return 0;
}

/* --- two processes --- */

static bool is_common(uint64_t entry, uint64_t other)
{
	return entry & ENTRY_FRAME_MASK && entry & ENTRY_PRESENT && !(entry & ENTRY_FILE) &&
	       other & ENTRY_PRESENT && !((entry ^ other) & ENTRY_FRAME_MASK);
}

int sp_page_scan_common(const struct sp_page_scan *scan, const struct sp_page_scan *other,
                        struct sp_range range, sp_page_visitor visit, void *context,
                        struct sp_error *err)
{
	uint64_t entries[2][ENTRIES_MAX];
	int rc = 0;

	while (range.start < range.end && !rc) {
		size_t left = sp_range_size(range) / SP_PAGE_SIZE;
		size_t count = left < ENTRIES_MAX ? left : ENTRIES_MAX, end;

		rc = read_entries(scan, range.start, entries[0], count, err);
		if (!rc)
			rc = read_entries(other, range.start, entries[1], count, err);
		for (size_t i = 0; i < count && !rc; i = end + 1) {
			struct sp_range run = {range.start + i * SP_PAGE_SIZE, 0};

			for (end = i; end < count && is_common(entries[0][end], entries[1][end]);)
				end++;
			run.end = range.start + end * SP_PAGE_SIZE;
			if (end > i)
				rc = visit(context, run, 0, err);
		}
		range.start += count * SP_PAGE_SIZE;
	}
	return rc;
}
