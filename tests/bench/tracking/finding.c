/*
 * Finding what was written in 64 MiB to 4 GiB, and the whole price of it: what it takes to ask, and what
 * tracking added to the writes. Beside it, hashing every page and comparing with the hash of before, and
 * mprotect with a handler for SIGSEGV.
 */
#include "bench.h"

#include "sealpoint/write_watch.h"

#include <xxhash.h>

#define MAPPINGS_MAX 60000 /* vm.max_map_count is 65530 by default */

static uint64_t *hashes;

static size_t hash_all(const char *memory, size_t pages)
{
	size_t different = 0;

	for (size_t page = 0; page < pages; page++) {
		uint64_t hash = XXH3_64bits(memory + page * PAGE, PAGE);

		different += hash != hashes[page];
		hashes[page] = hash;
	}
	return different;
}

/* Writes `percent` of the pages: in one run, or evenly spread. */
static double write_some(char *memory, size_t pages, size_t percent, bool scattered)
{
	size_t count = pages * percent / 100;
	double start = now_ns();

	for (size_t i = 0; i < count; i++)
		++((volatile char *)memory)[(scattered ? i * 100 / percent : i) * PAGE];
	return now_ns() - start;
}

/* Milliseconds to ask, and to write; for a watch in the second of two turns. */
static bool measure(enum sp_write_watch_backend backend, char *memory, size_t pages, size_t percent,
                    bool scattered, double *ask, double *writing)
{
	struct sp_span all = {memory, memory + pages * PAGE};
	struct sp_write_watch *watch = NULL;

	if (backend && sp_write_watch_open(&watch, all, backend) < 0)
		return false;
	for (int turn = 0; turn < (watch ? 2 : 1); turn++) {
		double start;

		*writing = write_some(memory, pages, percent, scattered) / 1e6;
		start = now_ns();
		if (watch)
			sp_write_watch_count(watch, all, SP_WRITE_WATCH_RESET);
		else
			hash_all(memory, pages);
		*ask = (now_ns() - start) / 1e6;
	}
	sp_write_watch_close(watch);
	return true;
}

static void row(char *memory, size_t size, size_t percent, bool scattered)
{
	static const int backends[] = {SP_WRITE_WATCH_SCAN, SP_WRITE_WATCH_MPROTECT,
	                               SP_WRITE_WATCH_AUTO /* hashing */};
	size_t pages = size / PAGE;

	printf("%5zu MiB %5zu %% %-10s", size / MIB, percent,
	       percent % 100 == 0 ? ""
	       : scattered        ? "scattered"
	                          : "dense");
	for (int i = 0; i < 3; i++) {
		double ask = 0, writing = 0;

		/* minutes; or more runs of pages than a process may have mappings */
		if (backends[i] == SP_WRITE_WATCH_MPROTECT &&
		    (size > 512 * MIB || (scattered && 2 * pages * percent / 100 > MAPPINGS_MAX)))
			printf(" %9s %9s", "-", "-");
		else if (measure(backends[i], memory, pages, percent, scattered, &ask, &writing))
			printf(" %9.2f %9.2f", ask, writing);
		fflush(stdout);
	}
	printf("\n");
}

int main(void)
{
	static const size_t sizes[] = {64, 512, 4096}, percents[] = {0, 1, 10, 100};
	size_t largest = sizes[2] * MIB;
	char *memory = map_populated(largest, false);

	hashes = calloc(largest / PAGE, sizeof(*hashes));
	die_if(!hashes, "calloc");
	printf("Finding written pages of 4 KiB, milliseconds: to ask with a reset, and to write "
	       "them\n\n");
	printf("%26s %19s %19s %19s\n", "", "scan", "mprotect", "hash every page");
	printf("%9s %7s %-8s", "memory", "written", "");
	for (int i = 0; i < 3; i++)
		printf(" %9s %9s", "ask", "write");
	printf("\n");
	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < 4; k++)
			for (int scattered = 0; scattered < (percents[k] % 100 ? 2 : 1);
			     scattered++)
				row(memory, sizes[i] * MIB, percents[k], scattered);
	return 0;
}
