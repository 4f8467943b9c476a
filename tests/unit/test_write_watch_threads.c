/*
 * The write watch while threads write, read it and open and close it: no write is lost. Each test runs
 * once for each backend.
 */
#include "unit/write_watch_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define MANY 512
#define WRITERS 3
#define WRITES 20000

struct writer {
	pthread_t thread;
	_Atomic uint64_t *words;
	uint64_t random;
	atomic_bool *stop;
};

static uint64_t next_random(uint64_t *random)
{
	*random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
	return *random >> 33;
}

static void *write_at_random(void *context)
{
	struct writer *writer = context;

	for (int i = 0; writer->stop ? !*writer->stop : i < WRITES; i++) {
		uint64_t word = next_random(&writer->random) % (MANY * SP_PAGE_SIZE / 8);

		atomic_fetch_add_explicit(&writer->words[word], 1, memory_order_relaxed);
	}
	return NULL;
}

static void start_writers(struct writer *writers, char *memory, atomic_bool *stop)
{
	for (int i = 0; i < WRITERS; i++) {
		writers[i].words = (_Atomic uint64_t *)memory;
		writers[i].random = (uint64_t)i + 1;
		writers[i].stop = stop;
		assert_int_equal(
		        pthread_create(&writers[i].thread, NULL, write_at_random, &writers[i]), 0);
	}
}

static void join_writers(struct writer *writers)
{
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i].thread, NULL);
}

/* Copies what was written, as an emulator or a migration does. */
static void copy_written(struct sp_write_watch *watch, char *memory, char *copy)
{
	struct sp_span left = pages_of(memory, 0, MANY), ranges[32];

	while (left.start < left.end) {
		ssize_t count = sp_write_watch_ranges(watch, &left, RESET, ranges, 32);

		assert_true(count >= 0);
		for (ssize_t i = 0; i < count; i++)
			for (char *at = ranges[i].start; at < ranges[i].end; at += 8)
				*(uint64_t *)(copy + (at - memory)) = atomic_load_explicit(
				        (_Atomic uint64_t *)at, memory_order_relaxed);
	}
}

static void no_write_is_lost_between_two_resets(void **state)
{
	struct writer writers[WRITERS] = {0};
	char *memory = map_pages(MANY), *copy = map_pages(MANY);
	struct sp_write_watch *watch = open_watch(state, memory, MANY);
	atomic_bool stop = false;

	start_writers(writers, memory, &stop);
	for (int i = 0; i < 300; i++)
		copy_written(watch, memory, copy);
	stop = true;
	join_writers(writers);
	copy_written(watch, memory, copy);
	if (sp_write_watch_guarantees(watch) & SP_WRITE_WATCH_ATOMIC)
		assert_memory_equal(memory, copy, MANY * SP_PAGE_SIZE);
	write_page(memory, 5);
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 0, MANY), RESET), 1);
	sp_write_watch_close(watch);
	munmap(memory, MANY * SP_PAGE_SIZE);
	munmap(copy, MANY * SP_PAGE_SIZE);
}

static void watches_open_and_close_while_threads_write(void **state)
{
	struct writer writers[WRITERS] = {0};
	char *memory = map_pages(MANY);
	uint64_t sum = 0, before = 0;

	for (size_t i = 0; i < MANY * SP_PAGE_SIZE / 8; i++)
		before += ((uint64_t *)memory)[i];
	start_writers(writers, memory, NULL);
	for (int i = 0; i < 100; i++) {
		struct sp_write_watch *watch = open_watch(state, memory, MANY);

		assert_true(sp_write_watch_count(watch, pages_of(memory, 0, MANY), RESET) >= 0);
		sp_write_watch_close(watch);
	}
	join_writers(writers);
	for (size_t i = 0; i < MANY * SP_PAGE_SIZE / 8; i++)
		sum += ((uint64_t *)memory)[i];
	assert_int_equal(sum - before, WRITERS * WRITES);
	munmap(memory, MANY * SP_PAGE_SIZE);
}

struct taker {
	pthread_t thread;
	struct sp_write_watch *watch;
	char *memory;
	atomic_bool *stop;
	uint64_t seen[MANY / 64];
};

static void *take_until_stopped(void *context)
{
	struct taker *taker = context;
	uint64_t words[MANY / 64];

	while (!*taker->stop) {
		ssize_t count = sp_write_watch_bitmap(
		        taker->watch, pages_of(taker->memory, 0, MANY), RESET, words);

		for (size_t i = 0; count > 0 && i < MANY / 64; i++)
			taker->seen[i] |= words[i];
	}
	return NULL;
}

static void two_threads_may_take_from_one_watch(void **state)
{
	char *memory = map_pages(MANY);
	struct sp_write_watch *watch = open_watch(state, memory, MANY);
	atomic_bool stop = false;
	struct taker takers[2];
	uint64_t words[MANY / 64];

	for (int i = 0; i < 2; i++) {
		takers[i] = (struct taker){.watch = watch, .memory = memory, .stop = &stop};
		pthread_create(&takers[i].thread, NULL, take_until_stopped, &takers[i]);
	}
	for (size_t i = 0; i < MANY; i++)
		write_page(memory, i);
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(takers[i].thread, NULL);
	sp_write_watch_bitmap(watch, pages_of(memory, 0, MANY), RESET, words);
	for (size_t i = 0; i < MANY / 64; i++) {
		uint64_t seen = words[i] | takers[0].seen[i] | takers[1].seen[i];

		if (sp_write_watch_guarantees(watch) & SP_WRITE_WATCH_ATOMIC)
			assert_int_equal(seen, ~0ULL);
	}
	write_page(memory, 5);
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 0, MANY), RESET), 1);
	sp_write_watch_close(watch);
	munmap(memory, MANY * SP_PAGE_SIZE);
}

int main(void)
{
	static const struct CMUnitTest each[] = {
	        cmocka_unit_test(no_write_is_lost_between_two_resets),
	        cmocka_unit_test(watches_open_and_close_while_threads_write),
	        cmocka_unit_test(two_threads_may_take_from_one_watch),
	};

	return run_with_each_backend(each, SP_COUNT_OF(each), NULL, 0);
}
