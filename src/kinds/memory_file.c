/* Files that are memory: see memory_file.h. */
#include "kinds/memory_file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/vfs.h>

unsigned sp_huge_page_shift(int fd)
{
	struct statfs statfs;

	if (fstatfs(fd, &statfs) < 0 || statfs.f_type != HUGETLBFS_MAGIC)
		return 0;
	return (unsigned)__builtin_ctzl((unsigned long)statfs.f_bsize);
}

bool sp_huge_page_shift_valid(uint32_t shift)
{
	return !shift || (shift >= 16 && shift <= 34);
}

int sp_open_mapped(const void *memory, uint64_t size, struct sp_error *err)
{
	char path[80];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)memory,
	         (unsigned long)memory + size);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return sp_fail_errno(
		        err, errno,
		        "cannot open shared memory in /proc/self/map_files (this takes "
		        "CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN)");
	return fd;
}
