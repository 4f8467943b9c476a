/*
 * Pages from the hugetlb pool, which tests/run.sh enlarges: a private anonymous mapping and a
 * memfd.
 */
#include "mapping.h"

#define HUGE (2UL << 20)

static void *map(int flags, int fd)
{
	void *start = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (start == MAP_FAILED)
		subject_skip("the hugetlb pool has not got 4 free pages (vm.nr_hugepages)");
	return start;
}

int main(void)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);

	subject_need(fd >= 0 && ftruncate(fd, 2 * HUGE) == 0, "memfd_create");
	uint8_t *private = map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	uint8_t *shared = map(MAP_SHARED, fd);

	mapping_fill(private, HUGE, 1); /* the second page stays unpopulated */
	mapping_fill(shared, 2 * HUGE, 2);

	subject_ready();

	mapping_check(private, HUGE, 1, "private");
	mapping_check(shared, 2 * HUGE, 2, "memfd");
	subject_check(!mapping_populated(private + HUGE), "an untouched huge page is populated");
	subject_check(mapping_smaps_kb(private, "KernelPageSize:") == 2048, "private: page size");
	subject_check(mapping_smaps_kb(shared, "KernelPageSize:") == 2048, "memfd: page size");
	return subject_end();
}
