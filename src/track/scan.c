/* Thin functions over PAGEMAP_SCAN and userfaultfd write protection: see scan.h. */
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* --- userfaultfd --- */

static int open_from_device(void)
{
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int fd;

	if (device < 0)
		return -1;
	fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(device);
	return fd;
}

int sp_uffd_open(bool *user_mode_only)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	*user_mode_only = false;
	if (fd < 0 && errno == EPERM)
		fd = open_from_device();
	if (fd >= 0)
		return fd;
	*user_mode_only = true;
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	return fd < 0 ? -errno : fd;
}

int sp_uffd_enable(int uffd, uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	return ioctl(uffd, UFFDIO_API, &api) < 0 ? -errno : 0;
}

static struct uffdio_range uffdio_range(struct sp_range range)
{
	return (struct uffdio_range){.start = range.start, .len = sp_range_size(range)};
}

int sp_uffd_register(int uffd, struct sp_range range)
{
	struct uffdio_register args = {
	        .range = uffdio_range(range),
	        .mode = UFFDIO_REGISTER_MODE_WP,
	};

	return ioctl(uffd, UFFDIO_REGISTER, &args) < 0 ? -errno : 0;
}

int sp_uffd_unregister(int uffd, struct sp_range range)
{
	struct uffdio_range args = uffdio_range(range);

	return ioctl(uffd, UFFDIO_UNREGISTER, &args) < 0 ? -errno : 0;
}

static int write_protect(int uffd, struct sp_range range, uint64_t mode)
{
	struct uffdio_writeprotect args = {.range = uffdio_range(range), .mode = mode};

	return ioctl(uffd, UFFDIO_WRITEPROTECT, &args) < 0 ? -errno : 0;
}

int sp_uffd_protect(int uffd, struct sp_range range)
{
	return write_protect(uffd, range, UFFDIO_WRITEPROTECT_MODE_WP);
}

int sp_uffd_unprotect(int uffd, struct sp_range range)
{
	return write_protect(uffd, range, 0);
}

int sp_uffd_wake(int uffd, struct sp_range range)
{
	struct uffdio_range args = uffdio_range(range);

	return ioctl(uffd, UFFDIO_WAKE, &args) < 0 ? -errno : 0;
}

/* --- PAGEMAP_SCAN --- */

/*
 * A result shorter than the vector means that the walk is complete, if the number of pages was not
 * limited. After a full one the walk goes on at walk_end, where the kernel stopped for lack of room.
 * But it sets walk_end each time its own buffer of 512 regions is full, and not when the walk then
 * comes to the end: if that exactly fills the vector, walk_end still says where the last buffer was
 * full, before regions that have been reported. Hence never before the end of the last region.
 */
static int scan(int pagemap, struct sp_range *range, struct page_region *regions, size_t room,
                struct pm_scan_arg args)
{
	uint64_t pages = 0;
	int count;

	if (!room)
		return -EINVAL;
	args.size = sizeof(args);
	args.start = range->start;
	args.end = range->end;
	args.vec = (uintptr_t)regions;
	args.vec_len = room;
	args.return_mask = PAGE_IS_WRITTEN;
	count = ioctl(pagemap, PAGEMAP_SCAN, &args);
	if (count < 0)
		return -errno;
	for (int i = 0; args.max_pages && i < count; i++)
		pages += (regions[i].end - regions[i].start) / SP_PAGE_SIZE;
	if ((size_t)count < room && (!args.max_pages || pages < args.max_pages)) {
		range->start = range->end;
	} else {
		uint64_t last = regions[count - 1].end;

		range->start = args.walk_end > last ? args.walk_end : last;
	}
	return count;
}

int sp_scan_written(int pagemap, struct sp_range *range, struct page_region *regions, size_t room,
                    uint64_t max_pages)
{
	return scan(pagemap, range, regions, room,
	            (struct pm_scan_arg){.max_pages = max_pages, .category_mask = PAGE_IS_WRITTEN});
}

int sp_scan_take(int pagemap, struct sp_range *range, struct page_region *regions, size_t room,
                 uint64_t max_pages)
{
	return scan(pagemap, range, regions, room,
	            (struct pm_scan_arg){.flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
	                                 .max_pages = max_pages,
	                                 .category_mask = PAGE_IS_WRITTEN});
}

/* Guard pages are told apart since Linux 6.15; before, the kernel refuses their bit. */
int sp_scan_dirty(int pagemap, struct sp_range *range, struct page_region *regions, size_t room,
                  unsigned flags)
{
	uint64_t absent = PAGE_IS_PFNZERO | (flags & SP_SCAN_DIRTY_FILE ? PAGE_IS_FILE : 0);
	struct pm_scan_arg args = {
	        .flags = flags & SP_SCAN_DIRTY_TAKE ? PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC
	                                            : 0,
	        .category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
	        .category_mask = PAGE_IS_WRITTEN | absent | PAGE_IS_GUARD,
	        .category_inverted = absent | PAGE_IS_GUARD,
	};
	int count = scan(pagemap, range, regions, room, args);

	if (count != -EINVAL)
		return count;
	args.category_mask = PAGE_IS_WRITTEN | absent;
	args.category_inverted = absent;
	return scan(pagemap, range, regions, room, args);
}

int sp_scan_protect(int pagemap, struct sp_range range)
{
	struct pm_scan_arg args = {
	        .size = sizeof(args),
	        .flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
	        .start = range.start,
	        .end = range.end,
	        .category_mask = PAGE_IS_WRITTEN,
	        .return_mask = PAGE_IS_WRITTEN,
	};

	return ioctl(pagemap, PAGEMAP_SCAN, &args) < 0 ? -errno : 0;
}

/* Asks for pages that cannot be protected: the kernel passes over mappings where all can. */
int sp_scan_check(int pagemap, struct sp_range range)
{
	struct pm_scan_arg args = {
	        .size = sizeof(args),
	        .flags = PM_SCAN_CHECK_WPASYNC,
	        .start = range.start,
	        .end = range.end,
	        .category_inverted = PAGE_IS_WPALLOWED,
	        .category_mask = PAGE_IS_WPALLOWED,
	        .return_mask = PAGE_IS_WRITTEN,
	};

	return ioctl(pagemap, PAGEMAP_SCAN, &args) < 0 ? -errno : 0;
}
