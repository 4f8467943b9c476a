/*
 * Memory that is written all the time, everything twice, to two places far apart: a page that was
 * saved too early, too late, or not at all differs from its twin.
 */
#ifndef SEALPOINT_TESTS_TWINS_H
#define SEALPOINT_TESTS_TWINS_H

#include "mapping.h"

struct twins {
	size_t pages; /* on each side */
	uint8_t *left, *right;
	uint64_t seed, round; /* of one thread, which writes them */
};

/* `room` more bytes lie behind the left ones. */
static inline struct twins twins_new(size_t pages, size_t room, uint64_t seed)
{
	return (struct twins){
	        .pages = pages,
	        .left = mapping_new(pages * PAGE + room, PROT_READ | PROT_WRITE, MAP_PRIVATE),
	        .right = mapping_new(pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE),
	        .seed = seed,
	};
}

static inline uint64_t twins_random(struct twins *twins)
{
	twins->seed = twins->seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return twins->seed >> 33;
}

static inline void twins_write(struct twins *twins, uint64_t page)
{
	twins->round++;
	for (size_t i = page * PAGE; i < (page + 1) * PAGE; i += 512) {
		memcpy(twins->left + i, &twins->round, sizeof(twins->round));
		memcpy(twins->right + i, &twins->round, sizeof(twins->round));
	}
}

static inline void twins_discard(const struct twins *twins, uint64_t page, size_t count)
{
	madvise(twins->left + page * PAGE, count * PAGE, MADV_DONTNEED);
	madvise(twins->right + page * PAGE, count * PAGE, MADV_DONTNEED);
}

/* When nobody writes any more. Says the first page that differs. */
static inline void twins_check(const struct twins *twins)
{
	for (uint64_t page = 0; page < twins->pages; page++)
		if (!subject_check(
		            !memcmp(twins->left + page * PAGE, twins->right + page * PAGE, PAGE),
		            "page %llu differs from its twin", (unsigned long long)page))
			return;
}

#endif
