/*
 * Soft-dirty bits: the kernel sets bit 55 of a page's entry in /proc/PID/pagemap at the first write
 * after "4" was written to /proc/PID/clear_refs, which clears the bits of the whole process
 * (Documentation/admin-guide/mm/soft-dirty.rst).
 *
 * So before a reset, the bits of all watches are noted in their accounts, and a reset of a part takes
 * its pages out of the account. Between noting and clearing, other threads may write, and these writes
 * are lost: the backend is not atomic, and says so.
 */
#include "track/backend.h"
#include "track/watch_list.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define ENTRY_SOFT_DIRTY (1ULL << 55)
#define ENTRIES 512

static int note_dirty(struct sp_write_watch *watch, struct sp_range range)
{
	uint64_t entries[ENTRIES];

	for (uint64_t at = range.start; at < range.end;) {
		uint64_t left = (range.end - at) / SP_PAGE_SIZE;
		size_t count = left < ENTRIES ? (size_t)left : ENTRIES;
		ssize_t got = pread(watch->pagemap, entries, count * sizeof(*entries),
		                    (off_t)(at / SP_PAGE_SIZE * sizeof(*entries)));

		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		for (size_t i = 0; i < (size_t)got / sizeof(*entries); i++, at += SP_PAGE_SIZE)
			if (entries[i] & ENTRY_SOFT_DIRTY)
				sp_watch_note(watch, (struct sp_range){at, at + SP_PAGE_SIZE});
	}
	return 0;
}

static int clear_all(struct sp_write_watch *watch, struct sp_write_watch *list)
{
	int rc = 0;

	for (struct sp_write_watch *other = list; other; other = other->next)
		for (size_t i = 0; i < other->count && rc == 0; i++)
			if (other->backend == watch->backend && *other->own_process)
				rc = note_dirty(other, other->areas[i].range);
	if (rc == 0 && pwrite(watch->clear_refs, "4", 1, 0) != 1)
		rc = -errno;
	return rc;
}

/* The kernel may have the file and not the bits: a written page tells. */
static bool kernel_has_bits(struct sp_write_watch *watch)
{
	volatile char *page = mmap(NULL, SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t entry = 0;

	if (page == MAP_FAILED)
		return false;
	*page = 1;
	if (pread(watch->pagemap, &entry, sizeof(entry),
	          (off_t)((uintptr_t)page / SP_PAGE_SIZE * sizeof(entry))) < 0)
		entry = 0;
	munmap((void *)page, SP_PAGE_SIZE);
	return entry & ENTRY_SOFT_DIRTY;
}

static int open_watch(struct sp_write_watch *watch)
{
	sigset_t mask;

	watch->guarantees =
	        SP_WRITE_WATCH_KERNEL_WRITES | SP_WRITE_WATCH_REMAPS | SP_WRITE_WATCH_NO_SIGNALS;
	watch->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	watch->clear_refs = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	if (watch->pagemap < 0 || watch->clear_refs < 0 || !kernel_has_bits(watch))
		return -EOPNOTSUPP;
	sp_watch_list_lock(&mask);
	sp_watch_list_add(watch);
	sp_watch_list_unlock(&mask);
	return 0;
}

/* Pages of hugetlb have no such bits. MADV_COLD tells them, and refuses locked memory as well. */
static int arm(struct sp_write_watch *watch, struct sp_range range)
{
	struct sp_write_watch *list;
	sigset_t mask;
	int rc;

	if (madvise((void *)range.start, SP_PAGE_SIZE, MADV_COLD) < 0)
		return -EOPNOTSUPP;
	list = sp_watch_list_lock(&mask);
	rc = clear_all(watch, list);
	while (rc == 0 && range.start < range.end) {
		struct page_region region;

		sp_watch_noted(watch, sp_watch_area_at(watch, range.start), &range, true, &region,
		               1, 0);
	}
	sp_watch_list_unlock(&mask);
	return rc;
}

static void close_watch(struct sp_write_watch *watch)
{
	sigset_t mask;

	sp_watch_list_lock(&mask);
	sp_watch_list_remove(watch);
	sp_watch_list_unlock(&mask);
	if (watch->pagemap >= 0)
		close(watch->pagemap);
	if (watch->clear_refs >= 0)
		close(watch->clear_refs);
}

static int get(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
               bool reset, struct page_region *regions, size_t room, uint64_t max_pages)
{
	struct sp_write_watch *list;
	sigset_t mask;
	int rc;

	list = sp_watch_list_lock(&mask);
	rc = reset ? clear_all(watch, list) : note_dirty(watch, *range);
	if (rc == 0)
		rc = sp_watch_noted(watch, area, range, reset, regions, room, max_pages);
	sp_watch_list_unlock(&mask);
	return rc;
}

const struct sp_watch_backend sp_watch_backend_soft_dirty = {
        .id = SP_WRITE_WATCH_SOFT_DIRTY,
        .name = "soft-dirty",
        .accounts = true,
        .open = open_watch,
        .arm = arm,
        .close = close_watch,
        .get = get,
};
