/*
 * The first write to a restored page costs no page fault: the page is there, and writable at once.
 * Counted by the kernel (getrusage(2), minor faults), for each sort of memory.
 */
#include "mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGES 2048
#define SIZE (PAGES * PAGE)
#define ALLOWED 2 /* of the counting itself */

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static void write_all(uint8_t *start, uint8_t value)
{
	for (size_t at = 0; at < SIZE; at += PAGE)
		*(volatile uint8_t *)(start + at) = value;
}

static void check_faults(uint8_t *start, const char *what)
{
	long before = faults(), made;

	write_all(start, 2);
	made = faults() - before;
	subject_check(made <= ALLOWED, "%s: %ld page faults for the first writes to %d pages", what,
	              made, PAGES);
}

static uint8_t *map_private_file(void)
{
	int fd = open("first_write.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint8_t *start;

	subject_need(fd >= 0 && !ftruncate(fd, SIZE), "a file");
	start = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	subject_need(start != MAP_FAILED, "mmap");
	close(fd);
	return start;
}

int main(void)
{
	uint8_t *anonymous = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	uint8_t *shared = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED);
	uint8_t *file = map_private_file();

	madvise(anonymous, SIZE, MADV_NOHUGEPAGE);
	write_all(anonymous, 1);
	write_all(shared, 1);
	write_all(file, 1);
	subject_ready();
	check_faults(anonymous, "anonymous memory");
	check_faults(shared, "shared anonymous memory");
	check_faults(file, "a private mapping of a file");
	return subject_end();
}
