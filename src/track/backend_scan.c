/*
 * PAGEMAP_SCAN and asynchronous userfaultfd write protection: the kernel keeps the account. The
 * userfaultfd is never read: asynchronous protection sends no messages.
 *
 * Memory that was mapped anew is not registered and would not be protected. A scan without a reset
 * calls it written; a reset finds it by sp_scan_check(), registers it, and takes it as written.
 */
#include "track/backend.h"
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
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

/* The descriptors of a child of fork(2) act on its parent's memory. */
static void close_watch(struct sp_write_watch *watch)
{
	for (size_t i = 0; i < watch->count && *watch->own_process; i++)
		sp_uffd_unregister(watch->uffd, watch->areas[i].range);
	if (watch->uffd >= 0)
		close(watch->uffd);
	if (watch->pagemap >= 0)
		close(watch->pagemap);
}

static int register_new_mappings(struct sp_write_watch *watch, struct sp_range range)
{
	int rc = sp_scan_check(watch->pagemap, range);

	return rc == -EPERM ? sp_uffd_register(watch->uffd, range) : rc;
}

/*
 * Another thread has mapped memory between the check and the scan, which has then protected some pages
 * without a report: everything is reported instead.
 */
static int take_everything(struct sp_write_watch *watch, struct sp_range *range,
                           struct page_region *regions, uint64_t max_pages)
{
	struct sp_range all = *range;
	int rc;

	if (max_pages && sp_range_size(all) / watch->page_size > max_pages)
		all.end = all.start + max_pages * watch->page_size;
	rc = sp_uffd_register(watch->uffd, *range);
	if (rc < 0)
		return rc;
	sp_scan_protect(watch->pagemap, all);
	regions[0] = (struct page_region){all.start, all.end, PAGE_IS_WRITTEN};
	range->start = all.end;
	return 1;
}

static int get(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
               bool reset, struct page_region *regions, size_t room, uint64_t max_pages)
{
	uint64_t limit = max_pages * (watch->page_size / SP_PAGE_SIZE);
	int rc;

	if (!reset)
		return sp_scan_written(watch->pagemap, range, regions, room, limit);
	rc = register_new_mappings(watch, *range);
	if (rc < 0)
		return rc;
	rc = sp_scan_take(watch->pagemap, range, regions, room, limit);
	return rc == -EPERM ? take_everything(watch, range, regions, max_pages) : rc;
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
