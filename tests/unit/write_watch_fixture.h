/*
 * Tests of the write watch that run once for each backend: each program of such tests gives its list to
 * run_with_each_backend(). A backend that this kernel lacks counts as one test, which is skipped.
 */
#ifndef SEALPOINT_TESTS_WRITE_WATCH_FIXTURE_H
#define SEALPOINT_TESTS_WRITE_WATCH_FIXTURE_H

#include "base/array.h"
#include "base/kernel_abi.h"
#include "base/range.h"
#include "sealpoint/write_watch.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include "unit/skip.h"

#define PAGES 64
#define SIZE (PAGES * SP_PAGE_SIZE)
#define RESET SP_WRITE_WATCH_RESET
#define BIT(n) (1ULL << (n))

struct tested_backend {
	enum sp_write_watch_backend id;
	const char *label; /* in the names of its tests */
	const char *needs;
};

/* In the order in which they are tried. */
static const struct tested_backend backends[] = {
        {SP_WRITE_WATCH_SCAN, "scan", "PAGEMAP_SCAN and asynchronous write protection, Linux 6.7"},
        {SP_WRITE_WATCH_USERFAULT, "userfault",
         "userfaultfd with write protection of unpopulated pages, Linux 6.4"},
        {SP_WRITE_WATCH_SOFT_DIRTY, "soft_dirty", "soft-dirty bits, CONFIG_MEM_SOFT_DIRTY"},
        {SP_WRITE_WATCH_MPROTECT, "mprotect", "mprotect(2)"},
};
#define BACKENDS SP_COUNT_OF(backends)
#define TESTS_MAX 32

/* A test with one of the backends. */
struct trial {
	const struct tested_backend *backend;
	CMUnitTestFunction test;
	char name[96];
};

static inline enum sp_write_watch_backend backend_of(void **state)
{
	return ((const struct trial *)*state)->backend->id;
}

static inline char *map_memory(size_t size, int flags, int fd)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static inline char *map_pages(size_t count)
{
	char *memory = map_memory(count * SP_PAGE_SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	madvise(memory, count * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	memset(memory, 1, count * SP_PAGE_SIZE);
	return memory;
}

static inline struct sp_span pages_of(char *memory, size_t first, size_t count)
{
	return (struct sp_span){memory + first * SP_PAGE_SIZE,
	                        memory + (first + count) * SP_PAGE_SIZE};
}

static inline struct sp_span all(char *memory)
{
	return pages_of(memory, 0, PAGES);
}

static inline struct sp_write_watch *open_watch(void **state, char *memory, size_t count)
{
	struct sp_write_watch *watch;

	assert_int_equal(sp_write_watch_open(&watch, pages_of(memory, 0, count), backend_of(state)),
	                 0);
	assert_int_equal(sp_write_watch_backend(watch), backend_of(state));
	return watch;
}

static inline void write_page(char *memory, size_t page)
{
	((volatile char *)memory)[page * SP_PAGE_SIZE] += 1;
}

/* The written ones of the PAGES pages as bits. */
static inline uint64_t bits(struct sp_write_watch *watch, char *memory, unsigned flags)
{
	uint64_t word = 0;
	ssize_t count = sp_write_watch_bitmap(watch, all(memory), flags, &word);

	assert_int_equal(count, __builtin_popcountll(word));
	return word;
}

static inline uint64_t collect_ranges(struct sp_write_watch *watch, char *memory, size_t room)
{
	struct sp_span left = all(memory), ranges[8];
	uint64_t found = 0;

	while (left.start < left.end) {
		ssize_t count = sp_write_watch_ranges(watch, &left, RESET, ranges, room);

		assert_in_range(count, 0, room);
		for (ssize_t i = 0; i < count; i++)
			for (char *at = ranges[i].start; at < ranges[i].end; at += SP_PAGE_SIZE) {
				uint64_t bit = BIT((at - memory) / SP_PAGE_SIZE);

				assert_int_equal(found & bit, 0);
				found |= bit;
			}
	}
	return found;
}

/* --- each test with each backend --- */

/* cmocka has put its own handler in the place of that of the mprotect backend. */
static struct sigaction fault_handler;

static inline void run_trial(void **state)
{
	sigaction(SIGSEGV, &fault_handler, NULL);
	((const struct trial *)*state)->test(state);
}

static inline void skip_backend(void **state)
{
	const struct trial *trial = *state;
	char reason[160];

	snprintf(reason, sizeof(reason), "this kernel lacks what the backend %s needs: %s",
	         trial->backend->label, trial->backend->needs);
	skip_because(reason);
}

static inline struct CMUnitTest make_test(struct trial *trial, CMUnitTestFunction run)
{
	return (struct CMUnitTest){.name = trial->name, .test_func = run, .initial_state = trial};
}

/* Runs the tests with each backend, and those of `once`, if any, after them. */
static inline int run_with_each_backend(const struct CMUnitTest *each, size_t each_count,
                                        const struct CMUnitTest *once, size_t once_count)
{
	static struct CMUnitTest tests[TESTS_MAX * (BACKENDS + 1)];
	static struct trial trials[TESTS_MAX * BACKENDS];
	struct trial *trial = trials;
	size_t count = 0;

	assert_true(each_count <= TESTS_MAX && once_count <= TESTS_MAX);
	for (size_t k = 0; k < BACKENDS; k++) {
		if (sp_write_watch_probe(backends[k].id, NULL) == -EOPNOTSUPP) {
			*trial = (struct trial){.backend = &backends[k]};
			snprintf(trial->name, sizeof(trial->name), "%s", backends[k].label);
			tests[count++] = make_test(trial++, skip_backend);
			continue;
		}
		for (size_t i = 0; i < each_count; i++) {
			*trial = (struct trial){.backend = &backends[k], .test = each[i].test_func};
			snprintf(trial->name, sizeof(trial->name), "%s_%s", backends[k].label,
			         each[i].name);
			tests[count++] = make_test(trial++, run_trial);
		}
	}
	for (size_t i = 0; i < once_count; i++)
		tests[count++] = once[i];
	sigaction(SIGSEGV, NULL, &fault_handler);
	return _cmocka_run_group_tests("write watch", tests, count, NULL, NULL);
}

#endif
