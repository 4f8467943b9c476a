/*
 * Memory that is swapped out when it is saved: anonymous memory, private and shared, changed pages
 * of a file, a memfd, and pages that nobody may read. It needs a swap device:
 * tests/integration/swap.sh makes one.
 *
 *	subject: modes=none ignore=resident
 */
#include "mapping.h"

#define SIZE (512 * PAGE)
#define NEVER_TOUCHED (SIZE / 2) /* from here on in the anonymous mapping */
#define PAGE_OUT_ATTEMPTS 100

static const struct area {
	const char *name;
	size_t size;
} areas[] = {{"private memory", NEVER_TOUCHED},
             {"memory without access", SIZE},
             {"changed pages of a file", SIZE},
             {"shared memory", SIZE},
             {"a memfd", SIZE}};
#define AREAS (sizeof(areas) / sizeof(areas[0]))

static uint8_t *starts[AREAS];

static uint8_t *map_file(int fd, int flags)
{
	void *start;

	subject_need(fd >= 0 && ftruncate(fd, SIZE) == 0, "a file");
	start = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
	subject_need(start != MAP_FAILED, "mmap");
	return start;
}

/* The kernel passes over pages that it is busy with, so it is asked until all are out. */
static void page_out(uint8_t *start, const struct area *area)
{
	long wanted = (long)(area->size / 1024), swapped = 0;

	for (int attempt = 0; attempt < PAGE_OUT_ATTEMPTS && swapped < wanted; attempt++) {
		subject_need(madvise(start, area->size, MADV_PAGEOUT) == 0, "MADV_PAGEOUT");
		swapped = mapping_smaps_kb(start, "Swap:");
	}
	if (swapped < wanted)
		subject_skip("only %ld of %ld KiB of %s could be swapped out", swapped, wanted,
		             area->name);
}

int main(void)
{
	starts[0] = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	starts[1] = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	starts[2] = map_file(open("changed", O_RDWR | O_CREAT | O_CLOEXEC, 0600), MAP_PRIVATE);
	starts[3] = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED);
	starts[4] = map_file(memfd_create("swapped", MFD_CLOEXEC), MAP_SHARED);
	for (size_t i = 0; i < AREAS; i++)
		mapping_fill(starts[i], areas[i].size, i);
	subject_need(mprotect(starts[1], SIZE, PROT_NONE) == 0, "mprotect");
	for (size_t i = 0; i < AREAS; i++)
		page_out(starts[i], &areas[i]);

	subject_ready();

	for (size_t at = NEVER_TOUCHED; at < SIZE; at += PAGE)
		subject_check(!mapping_populated(starts[0] + at), "page %zu was not there",
		              at / PAGE);
	subject_check(mapping_populated(starts[1]) && !mapping_readable(starts[1]),
	              "memory without access has no contents, or access");
	subject_need(mprotect(starts[1], SIZE, PROT_READ) == 0, "mprotect");
	for (size_t i = 0; i < AREAS; i++)
		mapping_check(starts[i], areas[i].size, i, areas[i].name);
	return subject_end();
}
