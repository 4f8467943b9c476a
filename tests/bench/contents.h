/*
 * The contents of a benchmark's memory, the same for the program that is dumped and for what it is
 * compared with: a page is zero or has data, and data can be compressed or not.
 */
#ifndef SEALPOINT_BENCH_CONTENTS_H
#define SEALPOINT_BENCH_CONTENTS_H

#include <err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define HUGE_PAGE (2UL << 20)

enum contents { MOSTLY_ZERO, COMPRESSIBLE, RANDOM };

struct memory {
	size_t size;
	enum contents contents;
	bool huge;
};

/** From the words SIZE (bytes), zero|compressible|random, 4k|huge. */
static inline struct memory parse_memory(char **words)
{
	struct memory memory = {.size = strtoull(words[0], NULL, 10)};

	if (strcmp(words[1], "compressible") == 0)
		memory.contents = COMPRESSIBLE;
	else if (strcmp(words[1], "random") == 0)
		memory.contents = RANDOM;
	else if (strcmp(words[1], "zero") != 0)
		errx(2, "contents: zero, compressible or random, not %s", words[1]);
	memory.huge = strcmp(words[2], "huge") == 0;
	return memory;
}

/** Of mostly zero memory, one page of 16 has data. */
static inline bool has_data(const struct memory *memory, size_t page)
{
	return memory->contents != MOSTLY_ZERO || page % 16 == 0;
}

/** Compressible data are like a table of records: a counter, a few flags, repeated text. */
static inline void fill_page(const struct memory *memory, void *start, size_t page)
{
	uint64_t *words = start, state = page * 0x9e3779b97f4a7c15ULL + 1;

	for (size_t i = 0; i < PAGE / sizeof(*words); i++) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		if (memory->contents != COMPRESSIBLE)
			words[i] = state ^ state >> 29;
		else if (i % 4 == 0)
			words[i] = page * PAGE + i;
		else if (i % 4 == 1)
			words[i] = state >> 60;
		else
			memcpy(&words[i], i % 4 == 2 ? "a record" : "\0\0\0\0text", 8);
	}
}

/** Address space of the wanted kind of pages, aligned to a huge page, nothing populated. */
static inline uint8_t *reserve_memory(const struct memory *memory)
{
	uint8_t *start = mmap(NULL, memory->size + HUGE_PAGE, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED)
		err(1, "mmap");
	start = (uint8_t *)(((uintptr_t)start + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	madvise(start, memory->size, memory->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return start;
}

#endif
