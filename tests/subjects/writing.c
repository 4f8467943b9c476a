/*
 * Twins that several threads write all the time, scattered and dense, and whose pages come and go.
 *
 * subject: ignore=resident
 */
#include "twins.h"

#include <pthread.h>

#define THREADS 3
#define TWIN_PAGES 4096UL

static struct twins twins[THREADS];

static void *writing(void *argument)
{
	struct twins *pair = argument;
	uint64_t page = 0;

	while (subject_running()) {
		uint64_t choice = twins_random(pair);

		page = choice % 4 ? page + 1 : twins_random(pair);
		page %= TWIN_PAGES;
		if (choice % 32 == 31)
			twins_discard(pair, page, 1);
		else
			twins_write(pair, page);
		if (choice % 64 == 0)
			usleep(50);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (size_t i = 0; i < THREADS; i++) {
		twins[i] = twins_new(TWIN_PAGES, 0, i + 1);
		subject_need(!pthread_create(&threads[i], NULL, writing, &twins[i]), "a thread");
	}
	subject_ready();
	for (size_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		twins_check(&twins[i]);
	}
	return subject_end();
}
