/*
 * PAGEMAP_SCAN and asynchronous userfaultfd write protection: the kernel keeps the account. The
 * userfaultfd is never read: asynchronous protection sends no messages.
 *
 * Memory that was mapped anew is not registered and cannot be protected. A scan without a reset calls
 * it written; one with a reset fails there, registers it, and then takes it as written.
 */
#include "track/backend.h"
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int open_watch(struct sp_write_watch *watch)
{
	bool user_mode_only; /* makes no difference under asynchronous protection */
	int rc;

	watch->guarantees = SP_WRITE_WATCH_ATOMIC | SP_WRITE_WATCH_KERNEL_WRITES |
	                    SP_WRITE_WATCH_DISCARDS | SP_WRITE_WATCH_REMAPS | SP_WRITE_WATCH_LOCAL |
	                    SP_WRITE_WATCH_NO_SIGNALS;
	watch->uffd = sp_uffd_open(&user_mode_only);
	if (watch->uffd < 0)
		return watch->uffd == -ENOSYS || watch->uffd == -EINVAL ? -EOPNOTSUPP : watch->uffd;
	rc = sp_uffd_enable(watch->uffd, SP_UFFD_ASYNC);
	if (rc < 0)
		return rc == -EINVAL ? -EOPNOTSUPP : rc;
	watch->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	return watch->pagemap < 0 ? -errno : 0;
}

static int arm(struct sp_write_watch *watch, struct sp_range range)
{
	int rc = sp_uffd_register(watch->uffd, range);

	return rc < 0 ? rc : sp_scan_protect(watch->pagemap, range);
}

/*
 * Closing the last descriptor ends all of its registrations, but children of fork(2) may hold others.
 * Those of a child act on its parent's memory.
 */
static void close_watch(struct sp_write_watch *watch)
{
	for (size_t i = 0; i < watch->armed && *watch->own_process; i++)
		sp_uffd_unregister(watch->uffd, watch->areas[i].range);
	if (watch->uffd >= 0)
		close(watch->uffd);
	if (watch->pagemap >= 0)
		close(watch->pagemap);
}

/*
 * Where a scan meets memory that was mapped anew, it fails, and the pages before that have been
 * protected. But the kernel has stored them: in an array that was cleared before, they end at the first
 * empty region. They are reported now, and the rest by the next call, when all is registered.
 */
static int take(struct sp_write_watch *watch, struct sp_range *range, struct page_region *regions,
                size_t room, uint64_t max_pages)
{
	int rc, count = 0;

	memset(regions, 0, room * sizeof(*regions));
	rc = sp_scan_take(watch->pagemap, range, regions, room, max_pages);
	if (rc != -EPERM)
		return rc;
	rc = sp_uffd_register(watch->uffd, *range);
	while ((size_t)count < room && regions[count].end)
		count++;
	if (count)
		range->start = regions[count - 1].end;
	return count ? count : rc;
}

static int get(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
               bool reset, struct page_region *regions, size_t room, uint64_t max_pages)
{
	uint64_t limit = max_pages * (watch->page_size / SP_PAGE_SIZE);

	return reset ? take(watch, range, regions, room, limit)
	             : sp_scan_written(watch->pagemap, range, regions, room, limit);
}

static int reset_pages(struct sp_write_watch *watch, struct sp_range range)
{
	int rc = sp_scan_protect(watch->pagemap, range);

	return rc == -EPERM ? arm(watch, range) : rc;
}

const struct sp_watch_backend sp_watch_backend_scan = {
        .id = SP_WRITE_WATCH_SCAN,
        .name = "scan",
        .open = open_watch,
        .arm = arm,
        .close = close_watch,
        .get = get,
        .reset = reset_pages,
};
