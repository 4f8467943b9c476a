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
static struct sp_vma take(struct sp_cut *cut, struct sp_range range)
{
	sp_cleanup_array struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
	struct sp_vma *vma = sp_array_push(&vmas);
	struct sp_error err = {0};

	*vma = (struct sp_vma){.range = range,
	                       .kind = SP_VMA_ANONYMOUS,
	                       .prot = PROT_READ | PROT_WRITE,
	                       .flags = SP_VMA_UFFD,
	                       .page_shift = SP_PAGE_SHIFT};
	assert_int_equal(sp_cut_take(cut, &vmas, &err), 0);
	assert_int_equal(sp_ranges_total(&cut->changed), sp_range_size(range));
	return *vma;
}

static void a_mapping_of_the_session_is_its_own(void **state)
{
	sp_cleanup_cut struct sp_cut cut;
	struct sp_range range;

	begin(&cut);
	range = map_pages();
	assert_int_equal(sp_uffd_register(cut.session.uffd, range), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_mapping_of_the_session_is_its_own),
	        cmocka_unit_test(a_mapping_that_has_gone_is_nobodys),
	        cmocka_unit_test(a_mapping_of_another_userfaultfd_stays_marked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
