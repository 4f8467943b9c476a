/*
 * mprotect(PROT_NONE), mprotect(PROT_READ | PROT_WRITE) over 131,072 bytes, with every page written in
 * between, as a runtime does with its guard or code pages: does the kernel make the pages writable at
 * once, or does each first write fault?
 */
#include "bench.h"

#define SIZE ((size_t)131072)
#define TURNS 2000

static void turn(char *memory, int away)
{
	die_if(mprotect(memory, SIZE, away) < 0, "mprotect");
	die_if(mprotect(memory, SIZE, PROT_READ | PROT_WRITE) < 0, "mprotect");
	write_every(memory, SIZE / PAGE, 1);
}

static void measure(const char *name, int away, bool turning)
{
	char *memory = map_populated(SIZE, false);
	long faults = minor_faults();
	double start = now_ns(), time;

	for (int i = 0; i < TURNS; i++)
		if (turning)
			turn(memory, away);
		else
			write_every(memory, SIZE / PAGE, 1);
	time = now_ns() - start;
	printf("%-44s %12.2f %12.2f\n", name, time / TURNS / 1e3,
	       (double)(minor_faults() - faults) / TURNS);
	munmap(memory, SIZE);
}

int main(void)
{
	printf("131,072 bytes, 32 pages, %d turns\n\n", TURNS);
	printf("%-44s %12s %12s\n", "in each turn", "us a turn", "faults");
	measure("32 writes", 0, false);
	measure("PROT_NONE, PROT_READ | PROT_WRITE, 32 writes", PROT_NONE, true);
	measure("PROT_READ, PROT_READ | PROT_WRITE, 32 writes", PROT_READ, true);
	return 0;
}
