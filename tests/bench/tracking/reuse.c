/*
 * Memory that is given back and used again, as allocators and runtimes do it: MADV_DONTNEED, against
 * mapping it anew with PROT_NONE and mprotect, with one and two threads that work on memory of their own
 * in one address space.
 */
#include "bench.h"

#include <pthread.h>

#define SIZE (256 * PAGE)
#define TURNS 1000

static void *discard(void *context)
{
	char *memory = context;

	for (int i = 0; i < TURNS; i++) {
		write_every(memory, SIZE / PAGE, 1);
		die_if(madvise(memory, SIZE, MADV_DONTNEED) < 0, "madvise");
	}
	return NULL;
}

static void *map_anew(void *context)
{
	char *memory = context;

	for (int i = 0; i < TURNS; i++) {
		die_if(mprotect(memory, SIZE, PROT_READ | PROT_WRITE) < 0, "mprotect");
		write_every(memory, SIZE / PAGE, 1);
		die_if(mmap(memory, SIZE, PROT_NONE,
		            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		            0) == MAP_FAILED,
		       "mmap");
	}
	return NULL;
}

static void measure(const char *name, void *(*work)(void *), int threads)
{
	pthread_t thread[2];
	char *memory[2];
	long faults, switches;
	double start, time;

	for (int i = 0; i < threads; i++)
		memory[i] = map_populated(SIZE, false);
	faults = minor_faults();
	switches = context_switches();
	start = now_ns();
	for (int i = 0; i < threads; i++)
		die_if(pthread_create(&thread[i], NULL, work, memory[i]), "pthread_create");
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	time = now_ns() - start;
	printf("%-28s %8d %12.1f %10.1f %12.3f\n", name, threads, time / TURNS / 1e3,
	       (double)(minor_faults() - faults) / TURNS / threads,
	       (double)(context_switches() - switches) / TURNS / threads);
	for (int i = 0; i < threads; i++)
		munmap(memory[i], SIZE);
}

int main(void)
{
	printf("1 MiB written and given back, %d turns\n\n", TURNS);
	printf("%-28s %8s %12s %10s %12s\n", "way", "threads", "us a turn", "faults", "switches");
	for (int threads = 1; threads <= 2; threads++) {
		measure("madvise(MADV_DONTNEED)", discard, threads);
		measure("mprotect, mmap(PROT_NONE)", map_anew, threads);
	}
	return 0;
}
