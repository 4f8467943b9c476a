/*
 * The public write watch: checks arguments, chooses a backend, merges mirrors, gives results the form
 * that was asked for. See include/sealpoint/write_watch.h for the contract, backend.h for what does the
 * work.
 */
#include "sealpoint/write_watch.h"

#include "track/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Regions of one step: as many as the kernel collects at a time. */
#define BATCH 512
/* Pages of one step where mirrors are merged. */
#define MERGED_PAGES 4096
/* Below that, looking ahead is cheaper than crossing unwritten memory in small steps. */
#define SMALL_STEP 512
#define MIRRORS_MAX 64

/* In the order in which they are tried. */
static const struct sp_watch_backend *const backends[] = {
        &sp_watch_backend_scan,
        &sp_watch_backend_userfault,
        &sp_watch_backend_soft_dirty,
        &sp_watch_backend_mprotect,
};
#define BACKENDS (sizeof(backends) / sizeof(*backends))

/* --- opening and closing --- */

/* A page that a child of fork(2) finds empty. */
static const bool *map_own_process(void)
{
	bool *page = mmap(NULL, SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                  -1, 0);

	if (page == MAP_FAILED)
		return NULL;
	if (madvise(page, SP_PAGE_SIZE, MADV_WIPEONFORK) < 0) {
		munmap(page, SP_PAGE_SIZE);
		return NULL;
	}
	*page = true;
	return page;
}

static void release(struct sp_write_watch *watch)
{
	for (size_t i = 0; i < watch->count; i++)
		free(watch->areas[i].written);
	if (watch->own_process)
		munmap((void *)watch->own_process, SP_PAGE_SIZE);
	free(watch);
}

static struct sp_write_watch *allocate(char *const *starts, size_t count, size_t size,
                                       const struct sp_watch_backend *backend)
{
	struct sp_write_watch *watch = calloc(1, sizeof(*watch) + count * sizeof(*watch->areas));
	bool complete = watch;

	if (!watch)
		return NULL;
	watch->backend = backend;
	watch->uffd = watch->pagemap = watch->clear_refs = watch->stop = -1;
	watch->page_size = SP_PAGE_SIZE;
	watch->own_process = map_own_process();
	watch->count = count;
	pthread_mutex_init(&watch->lock, NULL);
	for (size_t i = 0; i < count; i++) {
		struct sp_watch_area *area = &watch->areas[i];

		area->range.start = (uintptr_t)starts[i];
		area->range.end = area->range.start + size;
		if (backend->accounts)
			area->written = calloc(size / SP_PAGE_SIZE / 64 + 1, sizeof(uint64_t));
		complete = complete && (area->written || !backend->accounts);
	}
	if (!complete || !watch->own_process) {
		release(watch);
		return NULL;
	}
	return watch;
}

/* Memory in larger pages cannot be armed in smaller parts. */
static int arm(struct sp_write_watch *watch)
{
	static const uint64_t sizes[] = {SP_PAGE_SIZE, SP_HUGE_PAGE_SIZE, 1 << 30};
	struct sp_range first = watch->areas[0].range, page = first;
	int rc = -EINVAL;

	for (size_t i = 0; rc == -EINVAL && i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (first.start % sizes[i] || sp_range_size(first) % sizes[i])
			break;
		if (i)
			watch->page_size = sizes[i];
		page.end = page.start + sizes[i];
		rc = watch->backend->arm(watch, page);
	}
	for (size_t i = 0; rc == 0 && i < watch->count; i++) {
		rc = watch->backend->arm(watch, watch->areas[i].range);
		if (rc == 0)
			watch->armed = i + 1;
	}
	return rc;
}

static int open_with(struct sp_write_watch **watch, char *const *starts, size_t count, size_t size,
                     const struct sp_watch_backend *backend)
{
	struct sp_write_watch *made = allocate(starts, count, size, backend);
	int rc;

	if (!made)
		return -ENOMEM;
	rc = backend->open(made);
	if (rc == 0)
		rc = arm(made);
	if (rc < 0)
		sp_write_watch_close(made);
	else
		*watch = made;
	return rc;
}

/* msync(2) with MS_ASYNC does nothing but look whether all is mapped. */
static int check_memory(char *const *starts, size_t count, size_t size)
{
	if (!count || count > MIRRORS_MAX || !size || size % SP_PAGE_SIZE)
		return -EINVAL;
	for (size_t i = 0; i < count; i++) {
		if ((uintptr_t)starts[i] % SP_PAGE_SIZE || (uintptr_t)starts[i] + size < size)
			return -EINVAL;
		for (size_t k = 0; k < i; k++)
			if (starts[i] < starts[k] + size && starts[k] < starts[i] + size)
				return -EINVAL;
		if (msync(starts[i], size, MS_ASYNC) < 0)
			return -errno;
	}
	return 0;
}

int sp_write_watch_open_mirrored(struct sp_write_watch **watch, char *const *starts, size_t count,
                                 size_t size, enum sp_write_watch_backend backend)
{
	int rc = check_memory(starts, count, size);

	*watch = NULL;
	if (rc < 0)
		return rc;
	rc = -EOPNOTSUPP;
	for (size_t i = 0; i < BACKENDS; i++)
		if (backend == SP_WRITE_WATCH_AUTO || backend == backends[i]->id) {
			rc = open_with(watch, starts, count, size, backends[i]);
			if (rc != -EOPNOTSUPP && rc != -EPERM)
				break;
		}
	return rc;
}

int sp_write_watch_open(struct sp_write_watch **watch, struct sp_span memory,
                        enum sp_write_watch_backend backend)
{
	if (memory.end < memory.start)
		return -EINVAL;
	return sp_write_watch_open_mirrored(watch, &memory.start, 1,
	                                    (size_t)(memory.end - memory.start), backend);
}

void sp_write_watch_close(struct sp_write_watch *watch)
{
	if (!watch)
		return;
	watch->backend->close(watch);
	pthread_mutex_destroy(&watch->lock);
	release(watch);
}

/* --- written pages as regions --- */

static int check_span(const struct sp_write_watch *watch, struct sp_span span, unsigned flags,
                      struct sp_range *range)
{
	const struct sp_range *memory = &watch->areas[0].range;

	*range = (struct sp_range){(uintptr_t)span.start, (uintptr_t)span.end};
	if (!*watch->own_process)
		return -ECHILD;
	if (flags & ~SP_WRITE_WATCH_RESET || range->start > range->end ||
	    range->start < memory->start || range->end > memory->end ||
	    (range->start | range->end) % watch->page_size)
		return -EINVAL;
	return 0;
}

/* One of the mirrors: its written pages as bits, from the start of `range`, added to `bits`. */
static int merge_area(struct sp_write_watch *watch, struct sp_watch_area *area,
                      struct sp_range range, bool reset, uint64_t *bits)
{
	uint64_t shift = area->range.start - watch->areas[0].range.start;
	struct sp_range left = {range.start + shift, range.end + shift};
	struct page_region regions[64];

	while (left.start < left.end) {
		uint64_t start = range.start + shift;
		int count = watch->backend->get(watch, area, &left, reset, regions, 64, 0);

		if (count < 0)
			return count;
		for (int i = 0; i < count; i++)
			for (uint64_t page = (regions[i].start - start) / watch->page_size;
			     page < (regions[i].end - start) / watch->page_size; page++)
				bits[page / 64] |= 1ULL << page % 64;
	}
	return 0;
}

static int regions_of_bits(const struct sp_write_watch *watch, const uint64_t *bits,
                           struct sp_range range, struct page_region *regions)
{
	int count = 0;

	for (uint64_t at = range.start, page = 0; at < range.end; at += watch->page_size, page++) {
		if (!(bits[page / 64] >> page % 64 & 1))
			continue;
		if (!count || regions[count - 1].end != at)
			regions[count++] = (struct page_region){at, at, PAGE_IS_WRITTEN};
		regions[count - 1].end = at + watch->page_size;
	}
	return count;
}

static struct sp_range first_pages(const struct sp_write_watch *watch, struct sp_range range,
                                   uint64_t pages)
{
	if (sp_range_size(range) / watch->page_size > pages)
		range.end = range.start + pages * watch->page_size;
	return range;
}

/* All mirrors. After an error in the middle, some have been reset: then all pages are reported. */
static int merge(struct sp_write_watch *watch, struct sp_range range, bool reset,
                 uint64_t bits[MERGED_PAGES / 64])
{
	memset(bits, 0, MERGED_PAGES / 8);
	for (size_t i = 0; i < watch->count; i++) {
		int rc = merge_area(watch, &watch->areas[i], range, reset, bits);

		if (rc < 0 && !(reset && i))
			return rc;
		if (rc < 0)
			memset(bits, 0xff, MERGED_PAGES / 8);
	}
	return 0;
}

/* Moves on to the next written page, at most a step far: what was not written needs no reset. */
static int skip_unwritten(struct sp_write_watch *watch, struct sp_range *range)
{
	struct sp_range step = first_pages(watch, *range, MERGED_PAGES);
	uint64_t bits[MERGED_PAGES / 64];
	int rc = merge(watch, step, false, bits);

	for (uint64_t page = 0; rc == 0 && step.start < step.end; page++) {
		if (bits[page / 64] >> page % 64 & 1)
			break;
		step.start += watch->page_size;
	}
	range->start = step.start;
	return rc;
}

/* So many pages that the result has room whatever it is: every other page may be written. */
static int get_merged(struct sp_write_watch *watch, struct sp_range *range, bool reset,
                      struct page_region *regions, size_t room, uint64_t max_pages)
{
	uint64_t bits[MERGED_PAGES / 64], pages = 2 * room - 1;
	struct sp_range part;
	int rc = 0;

	if (max_pages && max_pages < pages)
		pages = max_pages;
	if (pages < SMALL_STEP)
		rc = skip_unwritten(watch, range);
	if (rc < 0 || range->start == range->end)
		return rc;
	part = first_pages(watch, *range, pages < MERGED_PAGES ? pages : MERGED_PAGES);
	rc = merge(watch, part, reset, bits);
	if (rc < 0)
		return rc;
	range->start = part.end;
	return regions_of_bits(watch, bits, part, regions);
}

static int get(struct sp_write_watch *watch, struct sp_range *range, unsigned flags,
               struct page_region *regions, size_t room, uint64_t max_pages)
{
	bool reset = flags & SP_WRITE_WATCH_RESET;

	room = room < BATCH ? room : BATCH;
	if (watch->count > 1)
		return get_merged(watch, range, reset, regions, room, max_pages);
	return watch->backend->get(watch, &watch->areas[0], range, reset, regions, room, max_pages);
}

/* --- results in the form that was asked for --- */

/*
 * Appends regions to `filled` ranges; returns by how many there are more. Regions of one step are not
 * adjacent to each other: only the first may go on where the last range has ended.
 */
static size_t append(const struct page_region *regions, int count, struct sp_span *ranges,
                     size_t filled)
{
	struct sp_span *to = ranges + filled;
	bool joins = filled && count && to[-1].end == (char *)regions[0].start;

	if (joins)
		to[-1].end = (char *)regions[0].end;
	for (int i = joins; i < count; i++, to++)
		*to = (struct sp_span){(char *)regions[i].start, (char *)regions[i].end};
	return (size_t)(to - ranges) - filled;
}

ssize_t sp_write_watch_ranges(struct sp_write_watch *watch, struct sp_span *left, unsigned flags,
                              struct sp_span *ranges, size_t room)
{
	struct page_region regions[BATCH];
	struct sp_range range;
	size_t filled = 0;
	int count = check_span(watch, *left, flags, &range);

	if (count < 0 || !room)
		return count < 0 ? count : -EINVAL;
	while (filled < room && range.start < range.end) {
		count = get(watch, &range, flags, regions, room - filled, 0);
		if (count < 0)
			return filled ? (ssize_t)filled : count;
		filled += append(regions, count, ranges, filled);
		left->start = (char *)range.start;
	}
	return (ssize_t)filled;
}

/* A short rest of the array is left free rather than filled in steps of a few pages. */
ssize_t sp_write_watch_addresses(struct sp_write_watch *watch, struct sp_span *left, unsigned flags,
                                 char **addresses, size_t room)
{
	struct page_region regions[BATCH];
	struct sp_range range;
	size_t filled = 0;
	int count = check_span(watch, *left, flags, &range);

	if (count < 0 || !room)
		return count < 0 ? count : -EINVAL;
	while (filled <= room / 2 && range.start < range.end) {
		count = get(watch, &range, flags, regions, BATCH, room - filled);
		if (count < 0)
			return filled ? (ssize_t)filled : count;
		for (int i = 0; i < count; i++)
			for (uint64_t at = regions[i].start; at < regions[i].end;
			     at += watch->page_size)
				addresses[filled++] = (char *)at;
		left->start = (char *)range.start;
	}
	return (ssize_t)filled;
}

static void set_bits(uint64_t *bits, uint64_t first, uint64_t end)
{
	while (first < end) {
		uint64_t count = 64 - first % 64 < end - first ? 64 - first % 64 : end - first;

		bits[first / 64] |= (count < 64 ? (1ULL << count) - 1 : ~0ULL) << first % 64;
		first += count;
	}
}

/* After an error, what has been reset is lost to the caller: so all the rest is called written. */
static ssize_t count_pages(struct sp_write_watch *watch, struct sp_range range, unsigned flags,
                           uint64_t *bits)
{
	struct page_region regions[BATCH];
	uint64_t start = range.start, pages = 0;
	int count;

	while (range.start < range.end) {
		uint64_t before = range.start;

		count = get(watch, &range, flags, regions, BATCH, 0);
		if (count < 0 && (before == start || !flags))
			return count;
		if (count < 0) {
			regions[0] = (struct page_region){before, range.end, PAGE_IS_WRITTEN};
			range.start = range.end;
			count = 1;
		}
		for (int i = 0; i < count; i++) {
			uint64_t first = (regions[i].start - start) / watch->page_size;
			uint64_t end = (regions[i].end - start) / watch->page_size;

			pages += end - first;
			if (bits)
				set_bits(bits, first, end);
		}
	}
	return (ssize_t)pages;
}

ssize_t sp_write_watch_bitmap(struct sp_write_watch *watch, struct sp_span span, unsigned flags,
                              uint64_t *bits)
{
	struct sp_range range;
	int rc = check_span(watch, span, flags, &range);

	if (rc < 0)
		return rc;
	memset(bits, 0, (sp_range_size(range) / watch->page_size + 63) / 64 * sizeof(*bits));
	return count_pages(watch, range, flags, bits);
}

ssize_t sp_write_watch_count(struct sp_write_watch *watch, struct sp_span span, unsigned flags)
{
	struct sp_range range;
	int rc = check_span(watch, span, flags, &range);

	return rc < 0 ? rc : count_pages(watch, range, flags, NULL);
}

int sp_write_watch_reset(struct sp_write_watch *watch, struct sp_span span)
{
	struct sp_range range;
	int rc = check_span(watch, span, 0, &range);
	uint64_t first = watch->areas[0].range.start;

	if (rc < 0)
		return rc;
	if (!watch->backend->reset) {
		ssize_t pages = count_pages(watch, range, SP_WRITE_WATCH_RESET, NULL);

		return pages < 0 ? (int)pages : 0;
	}
	for (size_t i = 0; i < watch->count && rc == 0; i++) {
		uint64_t shift = watch->areas[i].range.start - first;

		rc = watch->backend->reset(
		        watch, (struct sp_range){range.start + shift, range.end + shift});
	}
	return rc;
}

/* --- about a watch --- */

enum sp_write_watch_backend sp_write_watch_backend(const struct sp_write_watch *watch)
{
	return watch->backend->id;
}

unsigned sp_write_watch_guarantees(const struct sp_write_watch *watch)
{
	return watch->guarantees;
}

size_t sp_write_watch_granularity(const struct sp_write_watch *watch)
{
	return watch->page_size;
}

const char *sp_write_watch_backend_name(enum sp_write_watch_backend backend)
{
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i]->id == backend)
			return backends[i]->name;
	return "unknown";
}

int sp_write_watch_probe(enum sp_write_watch_backend backend, unsigned *guarantees)
{
	char *page = mmap(NULL, SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                  -1, 0);
	struct sp_write_watch *watch = NULL;
	int rc;

	if (page == MAP_FAILED)
		return -ENOMEM;
	rc = sp_write_watch_open(&watch, (struct sp_span){page, page + SP_PAGE_SIZE}, backend);
	if (rc == 0 && guarantees)
		*guarantees = watch->guarantees;
	sp_write_watch_close(watch);
	munmap(page, SP_PAGE_SIZE);
	return rc;
}
