/* Files of huge pages. */
#include "kinds/huge_file.h"

#include <linux/magic.h>
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
