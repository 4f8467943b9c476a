/*
 * Memory that is written all the time, by several threads, scattered and dense, to pages that come
 * and go. Everything is written twice, to two places far apart, so that a page that was saved too
 * early, too late, or not at all differs from its twin.
 *
 * subject: ignore=resident
 */
#include "mapping.h"

#include <pthread.h>

#define THREADS 3
#define TWIN_PAGES 4096UL

struct twins {
	uint64_t seed;
	uint8_t *left, *right;
	uint64_t round; /* of the write that is being made: its page may differ */
	uint64_t page;
};

static struct twins twins[THREADS];

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return *seed >> 33;
}

static void write_both(struct twins *pair, uint64_t page)
{
	pair->page = page;
	pair->round++;
	for (size_t i = 0; i < PAGE; i += 512) {
		memcpy(pair->left + page * PAGE + i, &pair->round, sizeof(pair->round));
		memcpy(pair->right + page * PAGE + i, &pair->round, sizeof(pair->round));
	}
}

static void discard_both(struct twins *pair, uint64_t page)
{
	pair->page = page;
	madvise(pair->left + page * PAGE, PAGE, MADV_DONTNEED);
	madvise(pair->right + page * PAGE, PAGE, MADV_DONTNEED);
}

static void *writing(void *argument)
{
	struct twins *pair = argument;
	uint64_t page = 0;

	while (subject_running()) {
		uint64_t choice = next_random(&pair->seed);

		page = choice % 4 ? page + 1 : next_random(&pair->seed);
		page %= TWIN_PAGES;
		if (choice % 32 == 31)
			discard_both(pair, page);
		else
			write_both(pair, page);
		if (choice % 64 == 0)
			usleep(50);
	}
	return NULL;
}

static void check_twins(const struct twins *pair)
{
	for (uint64_t page = 0; page < TWIN_PAGES; page++)
		if (!subject_check(
		            !memcmp(pair->left + page * PAGE, pair->right + page * PAGE, PAGE),
		            "page %llu differs from its twin", (unsigned long long)page))
			return;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (size_t i = 0; i < THREADS; i++) {
		twins[i].seed = i + 1;
		twins[i].left = mapping_new(TWIN_PAGES * PAGE, PROT_READ | PROT_WRITE,
		                            MAP_PRIVATE | MAP_ANONYMOUS);
		twins[i].right = mapping_new(TWIN_PAGES * PAGE, PROT_READ | PROT_WRITE,
		                             MAP_PRIVATE | MAP_ANONYMOUS);
		subject_need(!pthread_create(&threads[i], NULL, writing, &twins[i]), "a thread");
	}
	subject_ready();
	for (size_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		check_twins(&twins[i]);
	}
	return subject_end();
}
