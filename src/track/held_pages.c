/* The account of held memory: see held_pages.h. */
#include "track/held_pages.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/range_set.h"
#include "proc/stat.h"
#include "track/scan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What is put aside together, when one in BLOCK_SHARE of its pages was written. */
#define BLOCK SP_HELD_PART
#define BLOCK_SHARE 4

enum state {
	PAGE_HELD,   /* protected, not copied */
	PAGE_TAKEN,  /* the reader has it */
	PAGE_MEMORY, /* in the stash */
	PAGE_FILE,   /* in the stash */
};

/* Some pages that are held, and follow one another. */
struct run {
	struct sp_range range;
	uint64_t number; /* of its first page */
};

static int fail(struct sp_held_pages *held, int code, uint64_t address)
{
	if (!held->failure.code && code == ESTALE)
		sp_fail(&held->failure, code,
		        "%s has changed the mapping at 0x%" PRIx64
		        " before the memory there was saved",
		        sp_process_name(held->pid).text, address);
	else if (!held->failure.code)
		sp_fail_errno(&held->failure, code,
		              "cannot put aside memory at 0x%" PRIx64 " of %s", address,
		              sp_process_name(held->pid).text);
	return -held->failure.code;
}

/* --- which pages --- */

void sp_held_begin(struct sp_held_pages *held, const struct sp_array *ranges)
{
	uint64_t count = 0;

	sp_ranges_add_all(&held->ranges, ranges);
	held->numbers = sp_alloc_zeroed(ranges->count + 1, sizeof(*held->numbers));
	for (size_t i = 0; i < ranges->count; i++) {
		held->numbers[i] = count;
		count += sp_range_size(*(struct sp_range *)sp_array_at(ranges, i)) / SP_PAGE_SIZE;
	}
	held->states = sp_alloc_zeroed(count + 1, sizeof(*held->states)); /* PAGE_HELD */
}

static bool is_empty(const struct run *run)
{
	return run->range.start >= run->range.end;
}

static uint64_t count_of(const struct run *run)
{
	return sp_range_size(run->range) / SP_PAGE_SIZE;
}

static enum state state_of(const struct sp_held_pages *held, const struct run *run)
{
	return held->states[run->number];
}

static void set_state(struct sp_held_pages *held, const struct run *run, enum state state)
{
	memset(held->states + run->number, state, count_of(run));
}

/* The first held range that ends behind `address`, cut to `within`; empty, at the end of that, if there is none. */
static struct run run_at(const struct sp_held_pages *held, uint64_t address, struct sp_range within)
{
	struct run run = {.range = {within.end, within.end}};
	size_t i = sp_ranges_search(&held->ranges, address);

	if (i == held->ranges.count)
		return run;
	run.range = *(struct sp_range *)sp_array_at(&held->ranges, i);
	run.number = held->numbers[i];
	if (run.range.start < within.start) {
		run.number += (within.start - run.range.start) / SP_PAGE_SIZE;
		run.range.start = within.start;
	}
	if (run.range.end > within.end)
		run.range.end = within.end;
	if (is_empty(&run))
		run.range = (struct sp_range){within.end, within.end};
	return run;
}

/* Its beginning, as far as the pages are in the same state, and SP_HELD_PART at most. */
static struct run beginning(const struct sp_held_pages *held, const struct run *whole)
{
	uint64_t pages = count_of(whole), same = 1;
	struct run run = *whole;

	if (pages > SP_HELD_PART / SP_PAGE_SIZE)
		pages = SP_HELD_PART / SP_PAGE_SIZE;
	while (same < pages && held->states[run.number + same] == held->states[run.number])
		same++;
	run.range.end = run.range.start + same * SP_PAGE_SIZE;
	return run;
}

/* --- copying, and letting go --- */

/*
 * Copies pages of which none was let go, and makes sure that they were what they are since the hold
 * began. /proc/PID/mem belongs to the address space, not to whatever the process executes next.
 */
static int copy_held(struct sp_held_pages *held, struct sp_range range, void *buffer)
{
	ssize_t got = sp_pread_full(held->memory, buffer, sp_range_size(range), (off_t)range.start);
	struct page_region written;
	struct sp_range left = range;
	int rc;

	if (got != (ssize_t)sp_range_size(range))
		return fail(held, ESTALE, range.start + (got > 0 ? (uint64_t)got : 0));
	rc = sp_scan_written(held->pagemap, &left, &written, 1, 0);
	return rc == 0 ? 0
	               : fail(held, rc < 0 ? -rc : ESTALE, rc < 0 ? range.start : written.start);
}

/*
 * While a mapping is being changed this fails with EAGAIN, and at one that is not held any more with
 * ENOENT, when it has let go what is before: whoever waits is woken, faults again, and asks for his page.
 */
static void let_go(struct sp_held_pages *held, struct sp_range range)
{
	if (sp_uffd_unprotect(held->uffd, range) < 0)
		sp_uffd_wake(held->uffd, range);
}

static int stash(struct sp_held_pages *held, const struct run *run)
{
	int rc = sp_stash_put(&held->stash, run->number, held->copy, count_of(run));

	if (rc < 0)
		return rc;
	set_state(held, run, rc == SP_STASH_MEMORY ? PAGE_MEMORY : PAGE_FILE);
	return 0;
}

/* Pages in the same state, SP_HELD_PART at most: if that is held, they are put aside. */
static int put_aside(struct sp_held_pages *held, const struct run *run)
{
	int rc;

	if (state_of(held, run) != PAGE_HELD)
		return 0;
	rc = copy_held(held, run->range, held->copy);
	if (rc == 0)
		rc = stash(held, run);
	return rc < 0 ? fail(held, -rc, run->range.start) : 0;
}

int sp_held_put_aside(struct sp_held_pages *held, struct sp_range *range)
{
	struct run run = run_at(held, range->start, *range);
	int rc = 0;

	if (!is_empty(&run)) {
		run = beginning(held, &run);
		rc = put_aside(held, &run);
	}
	range->start = run.range.end;
	return rc;
}

/* --- a write --- */

/* Whether so much of a block was put aside that the rest will be written, too. */
static bool is_busy(const struct sp_held_pages *held, const struct run *block)
{
	uint64_t pages = count_of(block), aside = 0;

	for (uint64_t i = 0; i < pages; i++)
		aside += held->states[block->number + i] == PAGE_MEMORY ||
		         held->states[block->number + i] == PAGE_FILE;
	return aside * BLOCK_SHARE >= pages;
}

/* What is held around a page, as far as its block goes. */
static struct run block_of(const struct sp_held_pages *held, uint64_t page)
{
	uint64_t start = page & ~(BLOCK - 1);

	return run_at(held, page, (struct sp_range){start, start + BLOCK});
}

/*
 * To wait costs a program, and us, as much as the copying of many pages. So one that writes everywhere
 * waits a few times for each block, and not for each page.
 */
void sp_held_write(struct sp_held_pages *held, uint64_t address)
{
	struct sp_range page = {sp_page_down(address), sp_page_down(address) + SP_PAGE_SIZE};
	struct run run = run_at(held, page.start, page);

	if (!is_empty(&run) && state_of(held, &run) == PAGE_HELD && put_aside(held, &run) == 0) {
		struct run block = block_of(held, page.start);
		struct sp_range left = block.range;

		if (is_busy(held, &block)) {
			while (left.start < left.end && sp_held_put_aside(held, &left) == 0)
				;
			let_go(held, block.range);
		}
	}
	let_go(held, page);
}

/* They were protected with all others. */
int sp_held_spare(struct sp_held_pages *held, const struct sp_array *words)
{
	int rc = 0;

	for (size_t i = 0; i < words->count && rc == 0; i++) {
		uint64_t address = sp_page_down(*(remote_addr *)sp_array_at(words, i));
		struct sp_range page = {address, address + SP_PAGE_SIZE};
		struct run run = run_at(held, address, page);

		sp_uffd_unprotect(held->uffd, page);
		if (is_empty(&run) || state_of(held, &run) != PAGE_HELD)
			continue;
		if (sp_pread_full(held->memory, held->copy, SP_PAGE_SIZE, (off_t)address) !=
		    SP_PAGE_SIZE)
			return -EIO;
		rc = stash(held, &run);
	}
	return rc;
}

void sp_held_gone(struct sp_held_pages *held, struct sp_range range)
{
	struct run run = run_at(held, range.start, range);

	for (; !is_empty(&run); run = run_at(held, range.start, range)) {
		if (state_of(held, &run) == PAGE_HELD) {
			fail(held, ESTALE, run.range.start);
			return;
		}
		range.start = run.range.start + SP_PAGE_SIZE;
	}
}

/* --- reading --- */

static int take(struct sp_held_pages *held, const struct run *run, uint8_t *buffer)
{
	enum state state = state_of(held, run);
	int rc;

	if (state == PAGE_TAKEN)
		return fail(held, EINVAL, run->range.start);
	if (state == PAGE_HELD)
		rc = copy_held(held, run->range, buffer);
	else
		rc = sp_stash_get(&held->stash, run->number,
		                  state == PAGE_MEMORY ? SP_STASH_MEMORY : SP_STASH_FILE, buffer,
		                  count_of(run));
	set_state(held, run, PAGE_TAKEN);
	if (rc < 0)
		return fail(held, -rc, run->range.start);
	if (state == PAGE_HELD)
		let_go(held, run->range);
	return 0;
}

int sp_held_read(struct sp_held_pages *held, struct sp_range *range, uint8_t *buffer)
{
	struct run run = run_at(held, range->start, *range);
	int rc;

	if (held->failure.code)
		return -held->failure.code;
	if (run.range.start != range->start || is_empty(&run))
		return fail(held, EINVAL, range->start);
	run = beginning(held, &run);
	rc = take(held, &run, buffer);
	range->start = run.range.end;
	return rc;
}

/* --- the account as a whole --- */

void sp_held_init(struct sp_held_pages *held, pid_t pid, int uffd)
{
	*held = (struct sp_held_pages){
	        .pid = pid,
	        .uffd = uffd,
	        .memory = -1,
	        .pagemap = -1,
	        .stash = SP_STASH_NONE,
	        .ranges = SP_ARRAY_OF(struct sp_range),
	};
}

void sp_held_release(struct sp_held_pages *held)
{
	sp_close_scope(&held->uffd);
	sp_close_scope(&held->memory);
	sp_close_scope(&held->pagemap);
	sp_stash_close(&held->stash);
	sp_array_release(&held->ranges);
	free(held->numbers);
	free(held->states);
}
