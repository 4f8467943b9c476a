/* What the first write to a page costs the program under each backend, in pages of 4 KiB and 2 MiB. */
#include "bench.h"

#include "sealpoint/write_watch.h"

#define SIZE (16 * MIB)
#define ROUNDS 5

static double measure(enum sp_write_watch_backend backend, bool huge, double *again)
{
	size_t pages = SIZE / PAGE, step = huge ? 512 : 1, writes = pages / step;
	double times[ROUNDS], times_again[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		char *memory = map_populated(SIZE, huge);
		struct sp_write_watch *watch = NULL;
		double start;

		if (backend && sp_write_watch_open(&watch, (struct sp_span){memory, memory + SIZE},
		                                   backend) < 0)
			return -1;
		start = now_ns();
		write_every(memory, pages, step);
		times[round] = (now_ns() - start) / (double)writes;
		start = now_ns();
		write_every(memory, pages, step);
		times_again[round] = (now_ns() - start) / (double)writes;
		sp_write_watch_close(watch);
		munmap(memory, SIZE);
	}
	*again = median(times_again, ROUNDS);
	return median(times, ROUNDS);
}

int main(void)
{
	printf("Nanoseconds for the first write to each page, and for the second\n\n");
	printf("%-12s %10s %10s %14s %10s\n", "backend", "4 KiB", "second", "2 MiB", "second");
	for (int backend = 0; backend <= SP_WRITE_WATCH_MPROTECT; backend++) {
		double again[2], first = measure(backend, false, &again[0]);
		double huge = measure(backend, true, &again[1]);

		if (first < 0)
			printf("%-12s %10s\n", sp_write_watch_backend_name(backend), "not here");
		else
			printf("%-12s %10.0f %10.0f %14.0f %10.0f\n",
			       backend ? sp_write_watch_backend_name(backend) : "not watched",
			       first, again[0], huge, again[1]);
	}
	return 0;
}
