/* Held memory: what a hold reads is what was there when it began, whoever writes meanwhile. */
#include "track/hold.h"

#include "base/error.h"
#include "base/range.h"
#include "skip.h"
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGES 5120UL /* some more than the stash keeps in memory */
#define ALIGNED (2UL << 20)

struct held {
	void *mapping;
	uint8_t *memory; /* aligned */
	struct sp_range range;
	struct sp_hold *hold;
	struct sp_stash stash;
};

/* The byte at the beginning of a page, before anybody writes to it again. */
static uint8_t first_byte(size_t page)
{
	return (uint8_t)(page * 7 + 1);
}

static void hold_pages(struct held *held)
{
	sp_cleanup_array struct sp_array areas = SP_ARRAY_OF(struct sp_range);
	sp_cleanup_array struct sp_array spared = SP_ARRAY_OF(remote_addr);
	struct sp_error err = {0};
	bool user_mode_only;
	struct sp_hold_request request = {
	        .pid = getpid(),
	        .asynchronous = -1,
	        .stash = &held->stash,
	        .areas = &areas,
	};

	held->mapping = mmap(NULL, PAGES * SP_PAGE_SIZE + ALIGNED, PROT_READ | PROT_WRITE,
	                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(held->mapping, MAP_FAILED);
	held->memory = (uint8_t *)(((uintptr_t)held->mapping + ALIGNED - 1) & ~(ALIGNED - 1));
	madvise(held->memory, PAGES * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < PAGES; i++)
		held->memory[i * SP_PAGE_SIZE] = first_byte(i);
	held->range.start = (uintptr_t)held->memory;
	held->range.end = held->range.start + PAGES * SP_PAGE_SIZE;
	sp_array_append(&areas, &held->range);
	assert_int_equal(sp_stash_open(&held->stash, AT_FDCWD), 0);
	request.uffd = sp_uffd_open(&user_mode_only);
	if (request.uffd < 0)
		skip_because("there is no userfaultfd");
	assert_int_equal(sp_hold_open(&held->hold, &request, &err), 0);
	assert_int_equal(sp_hold_protect(held->hold, &areas, NULL, NULL), 0);
	assert_int_equal(sp_hold_begin(held->hold, &areas, &spared, &err), 0);
}

static void write_to(struct held *held, size_t page)
{
	((volatile uint8_t *)held->memory)[page * SP_PAGE_SIZE] = 0;
}

static void assert_held_as_it_was(struct held *held)
{
	static uint8_t copy[PAGES * SP_PAGE_SIZE];

	assert_int_equal(sp_hold_read(held->hold, held->range.start, copy, sizeof(copy), NULL), 0);
	for (size_t i = 0; i < PAGES; i++)
		assert_int_equal(copy[i * SP_PAGE_SIZE], first_byte(i));
}

static void let_go(struct held *held)
{
	sp_hold_end(held->hold);
	munmap(held->mapping, PAGES * SP_PAGE_SIZE + ALIGNED);
}

/* Each wait costs the program, and sealpoint, as much as the copying of many pages. */
static void program_that_writes_everywhere_waits_for_few_of_its_writes(void **state)
{
	struct held held = {0};

	hold_pages(&held);
	for (size_t i = 0; i < PAGES; i++)
		write_to(&held, i * 389 % PAGES); /* each, in an order that jumps about */
	assert_in_range(sp_hold_faults(held.hold), 1, PAGES / 4);
	assert_held_as_it_was(&held);
	let_go(&held);
}

/* Memory and disk space are not spent on what is hardly written: its neighbours stay protected. */
static void few_writes_put_few_pages_aside(void **state)
{
	struct held held = {0};

	hold_pages(&held);
	for (size_t i = 0; i < PAGES; i += 5)
		write_to(&held, i);
	assert_int_equal(sp_hold_faults(held.hold), (PAGES + 4) / 5);
	assert_held_as_it_was(&held);
	let_go(&held);
}

/*
 * A mapping that has grown where it is is one mapping, and mremap(2) may have it as one, also when the hold
 * has failed: to let go of the part that was held would cut it in two.
 */
static void mapping_that_has_grown_is_not_cut_in_two(void **state)
{
	size_t size = PAGES * SP_PAGE_SIZE;
	struct held held = {0};
	void *moved;
	uint8_t page[SP_PAGE_SIZE];

	hold_pages(&held);
	munmap(held.memory + size, ALIGNED - (size_t)(held.memory - (uint8_t *)held.mapping));
	assert_ptr_equal(mremap(held.memory, size, size + SP_PAGE_SIZE, 0), held.memory);
	munmap(held.memory, SP_PAGE_SIZE); /* it was not read */
	assert_int_equal(sp_hold_read(held.hold, held.range.start, page, sizeof(page), NULL),
	                 -ESTALE);
	write_to(&held, 1); /* is served behind all that came before it, or nobody protects it */
	moved = mremap(held.memory + SP_PAGE_SIZE, size, size + SP_PAGE_SIZE, MREMAP_MAYMOVE);
	assert_ptr_not_equal(moved, MAP_FAILED);
	munmap(moved, size + SP_PAGE_SIZE);
	let_go(&held);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(program_that_writes_everywhere_waits_for_few_of_its_writes),
	        cmocka_unit_test(few_writes_put_few_pages_aside),
	        cmocka_unit_test(mapping_that_has_grown_is_not_cut_in_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
