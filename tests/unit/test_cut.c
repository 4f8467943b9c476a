/* What a cut takes: engine/cut.h. The process whose writes are tracked is this one. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "engine/cut.h"
#include "mem/vma.h"
#include "track/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include "unit/skip.h"

#define PAGES 4

static void begin(struct sp_cut *cut)
{
	struct sp_error err = {0};
	bool user_mode_only;
	int uffd = sp_uffd_open(&user_mode_only);

	if (uffd < 0)
		skip_because("no userfaultfd here");
	sp_cut_init(cut);
	if (sp_session_begin(&cut->session, getpid(), uffd, &err) < 0)
		skip_because("no asynchronous write protection here");
	cut->living = getpid();
	cut->active = true;
}

static struct sp_range map_pages(void)
{
	void *memory = mmap(NULL, PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	memset(memory, 1, PAGES * SP_PAGE_SIZE);
	return (struct sp_range){(uintptr_t)memory, (uintptr_t)memory + PAGES * SP_PAGE_SIZE};
}

/* Takes from a list with this one mapping, which was registered with a userfaultfd when listed. */
static struct sp_vma list_and_take(struct sp_cut *cut, struct sp_range range, bool frozen)
{
	sp_cleanup_array struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
	struct sp_vma *vma = sp_array_push(&vmas);
	struct sp_error err = {0};

	*vma = (struct sp_vma){.range = range,
	                       .kind = SP_VMA_ANONYMOUS,
	                       .prot = PROT_READ | PROT_WRITE,
	                       .flags = SP_VMA_UFFD,
	                       .page_shift = SP_PAGE_SHIFT};
	assert_int_equal(sp_cut_take(cut, &vmas, frozen, 0, &err), 0);
	sp_cut_saved(cut, &vmas);
	return *vma;
}

/* All of it must be reported. */
static struct sp_vma take(struct sp_cut *cut, struct sp_range range)
{
	struct sp_vma vma = list_and_take(cut, range, false);

	assert_int_equal(sp_ranges_total(&cut->changed), sp_range_size(range));
	return vma;
}

static void a_mapping_of_the_session_is_its_own(void **state)
{
	sp_cleanup_cut struct sp_cut cut;
	struct sp_range range;

	begin(&cut);
	range = map_pages();
	assert_int_equal(sp_uffd_register(cut.session.memory, range), 0);
	assert_int_equal(take(&cut, range).flags, 0);
	munmap((void *)(uintptr_t)range.start, sp_range_size(range));
}

/* The program has unmapped it since: no reason to say that its memory cannot be saved. */
static void a_mapping_that_has_gone_is_nobodys(void **state)
{
	sp_cleanup_cut struct sp_cut cut;
	struct sp_range range;

	begin(&cut);
	range = map_pages();
	munmap((void *)(uintptr_t)range.start, sp_range_size(range));
	assert_int_equal(take(&cut, range).flags, 0);
}

static void a_mapping_of_another_userfaultfd_stays_marked(void **state)
{
	sp_cleanup_cut struct sp_cut cut;
	sp_cleanup_close int other = -1;
	struct sp_range range;
	bool user_mode_only;

	begin(&cut);
	range = map_pages();
	other = sp_uffd_open(&user_mode_only);
	assert_int_equal(sp_uffd_enable(other, SP_UFFD_ASYNC), 0);
	assert_int_equal(sp_uffd_register(other, range), 0);
	assert_int_equal(take(&cut, range).flags, SP_VMA_UFFD);
	munmap((void *)(uintptr_t)range.start, sp_range_size(range));
}

/*
 * The kernel makes one mapping of both, ends the registration of all of it, and leaves the page that
 * is written meanwhile protected: when it joins again, its next write must be seen all the same.
 */
static void writes_next_to_memory_that_was_moved_are_found(void **state)
{
	sp_cleanup_cut struct sp_cut cut;
	struct sp_range range;
	const size_t half = PAGES / 2 * SP_PAGE_SIZE;
	char *low, *high, *away;

	begin(&cut);
	range = map_pages();
	low = (char *)(uintptr_t)range.start;
	high = low + half;
	away = mmap(NULL, half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_equal(mremap(high, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, away), away);
	take(&cut, (struct sp_range){range.start, range.start + half});
	take(&cut, (struct sp_range){(uintptr_t)away, (uintptr_t)away + half});
	assert_ptr_equal(mremap(away, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, high), high);
	low[0] = 2;
	take(&cut, range);
	list_and_take(&cut, range, false);
	assert_int_equal(sp_ranges_total(&cut.changed), 0);
	low[0] = 3;
	list_and_take(&cut, range, false);
	assert_int_equal(sp_ranges_total(&cut.changed), SP_PAGE_SIZE);
	munmap(low, sp_range_size(range));
}

static bool is_changed(const struct sp_cut *cut, struct sp_range range)
{
	size_t i = sp_ranges_search(&cut->changed, range.start);
	struct sp_range found;

	if (i == cut->changed.count)
		return false;
	found = *(struct sp_range *)sp_array_at(&cut->changed, i);
	return found.start <= range.start && found.end >= range.end;
}

/* The last take does not look for holes again: it must not lose what has appeared in one, nor hide it. */
static void page_that_appears_in_a_hole_is_taken(void **state)
{
	sp_cleanup_cut struct sp_cut cut;
	uint64_t size = 8 * SP_HUGE_PAGE_SIZE;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t start = (uintptr_t)memory;
	struct sp_range all = {start, start + size};
	struct sp_range first = {start, start + SP_PAGE_SIZE};
	struct sp_range inside = {start + size / 2, start + size / 2 + SP_PAGE_SIZE};

	begin(&cut);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(madvise(memory, size, MADV_NOHUGEPAGE), 0);
	memory[0] = 1;
	list_and_take(&cut, all, false);
	list_and_take(&cut, all, false);
	assert_false(is_changed(&cut, first));
	memory[0] = 2;
	memory[size / 2] = 1;
	list_and_take(&cut, all, true);
	assert_true(is_changed(&cut, first));
	assert_true(is_changed(&cut, inside));
	memory[size / 2] = 2;
	list_and_take(&cut, all, false);
	assert_false(is_changed(&cut, first));
	assert_true(is_changed(&cut, inside));
	list_and_take(&cut, all, true);
	assert_false(is_changed(&cut, inside));
	memory[size / 2] = 3;
	list_and_take(&cut, all, true);
	assert_true(is_changed(&cut, inside));
	munmap(memory, size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(page_that_appears_in_a_hole_is_taken),
	        cmocka_unit_test(a_mapping_of_the_session_is_its_own),
	        cmocka_unit_test(a_mapping_that_has_gone_is_nobodys),
	        cmocka_unit_test(a_mapping_of_another_userfaultfd_stays_marked),
	        cmocka_unit_test(writes_next_to_memory_that_was_moved_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
