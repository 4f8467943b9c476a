/*
 * The first write to each page of a program that is saved and restored: restored DIRECTORY. It fills memory
 * of several sorts, says "ready", waits for SIGUSR1, writes to each page, and prints a table of the page
 * faults that the kernel has counted, and of the time. Without a restore in between it is the same program.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 16384UL
#define SIZE (PAGES * PAGE)

static void write_all(uint8_t *memory, uint8_t value)
{
	for (size_t at = 0; at < SIZE; at += PAGE)
		*(volatile uint8_t *)(memory + at) = value;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

static void *map(int flags, int fd)
{
	void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(memory, SIZE, MADV_NOHUGEPAGE);
	write_all(memory, 1);
	return memory;
}

int main(int argc, char **argv)
{
	/* What it has inherited may be half of something that cannot be saved. */
	int fd = close_range(3, ~0U, 0) == 0 && chdir(argv[argc - 1]) == 0
	                 ? open("restored.data", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)
	                 : -1;
	sigset_t asked;
	int number;

	if (fd < 0 || ftruncate(fd, SIZE) < 0) {
		perror(argv[argc - 1]);
		return 1;
	}
	const struct {
		const char *name;
		uint8_t *memory;
	} sorts[] = {
	        {"private", map(MAP_PRIVATE | MAP_ANONYMOUS, -1)},
	        {"private, of a file", map(MAP_PRIVATE, fd)},
	        {"shared, without a file", map(MAP_SHARED | MAP_ANONYMOUS, -1)},
	};
	sigemptyset(&asked);
	sigaddset(&asked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &asked, NULL);
	printf("ready\n");
	fflush(stdout);
	sigwait(&asked, &number);
	for (size_t i = 0; i < sizeof(sorts) / sizeof(*sorts); i++) {
		long before = faults();
		uint64_t start = now();

		write_all(sorts[i].memory, 2);
		start = now() - start;
		printf("%-24s %10lu %10ld %10.0f\n", sorts[i].name, PAGES, faults() - before,
		       (double)start / PAGES);
	}
	printf("end\n");
	fflush(stdout);
	return 0;
}
