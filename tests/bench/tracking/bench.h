/* What the tracking benchmarks share: time, medians, memory. Each program prints one table. */
#ifndef SEALPOINT_BENCH_TRACKING_H
#define SEALPOINT_BENCH_TRACKING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)

static inline double now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static inline int compare_doubles(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static inline double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare_doubles);
	return values[count / 2];
}

static inline void die_if(bool failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

/* Populated memory, aligned to 2 MiB, in huge pages or not. */
static inline char *map_populated(size_t size, bool huge)
{
	char *area = mmap(NULL, size + 2 * MIB, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *memory = (char *)(((uintptr_t)area + 2 * MIB - 1) & ~(2 * MIB - 1));

	die_if(area == MAP_FAILED, "mmap");
	madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(memory, 1, size);
	return memory;
}

static inline void write_every(char *memory, size_t pages, size_t step)
{
	for (size_t page = 0; page < pages; page += step)
		((volatile char *)memory)[page * PAGE] = 2;
}

static inline long minor_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static inline long context_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

#endif
