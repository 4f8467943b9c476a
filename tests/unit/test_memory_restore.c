/*
 * Memory of every sort comes back as it was: programs that set it up, and what must hold of the
 * stub that has taken their place (unit/memory_fixture.h).
 *
 * not sanitized: the program is a copy of the test, and would bring terabytes of shadow memory along
 */
#include "unit/memory_fixture.h"

#include "base/kernel_abi.h"
#include "mem/page_scan.h"

#include <errno.h>
#include <sys/auxv.h>
#include <time.h>

/* --- programs --- */

#define PAGES 64
#define MANY (2 * SP_HUGE_PAGE_SIZE)

static char *map_at(void *hint, size_t size, int prot, int flags, int fd)
{
	char *memory = mmap(hint, size, prot, flags, fd, 0);

	if (memory == MAP_FAILED)
		_exit(1);
	return memory;
}

static char *map_small(int prot, int flags)
{
	char *memory = map_at(NULL, PAGES * SP_PAGE_SIZE, prot, flags | MAP_ANONYMOUS, -1);

	madvise(memory, PAGES * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	return memory;
}

static void fill(char *memory, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		memset(memory + i * SP_PAGE_SIZE, (int)i + 1, SP_PAGE_SIZE);
}

/* Whether a call succeeded. It may fail only because the kernel has none, or with `lacking`. */
static bool made(long result, int lacking)
{
	if (result < 0 && errno != ENOSYS && errno != lacking)
		_exit(1);
	return result >= 0;
}

/* Data, holes and zero pages in anonymous memory of every protection. */
static void anonymous_memory(void)
{
	static const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
	                            PROT_READ | PROT_EXEC, PROT_EXEC};

	for (size_t i = 0; i < sizeof(prots) / sizeof(prots[0]); i++) {
		char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);

		fill(memory, i, 20);
		memset(memory + 30 * SP_PAGE_SIZE, 0, 10 * SP_PAGE_SIZE);
		for (size_t page = 41; page < PAGES; page += 2)
			fill(memory, page, 1);
		if (mprotect(memory, PAGES * SP_PAGE_SIZE, prots[i]) < 0)
			_exit(1);
	}
}

static void file_memory(void)
{
	int fd = memfd_create("contents", MFD_CLOEXEC);
	char *private, *shared;

	if (ftruncate(fd, PAGES * SP_PAGE_SIZE) < 0)
		_exit(1);
	shared = map_at(NULL, PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	fill(shared, 0, 40);
	private = map_at(NULL, PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	fill(private, 5, 3);
	memset(private + 9 * SP_PAGE_SIZE, 0, SP_PAGE_SIZE);
	madvise(private + 20 * SP_PAGE_SIZE, 20 * SP_PAGE_SIZE, MADV_POPULATE_READ);
	madvise(private + 22 * SP_PAGE_SIZE, 2 * SP_PAGE_SIZE, MADV_DONTNEED);
	if (mprotect(private, PAGES * SP_PAGE_SIZE, PROT_READ) < 0)
		_exit(1);
	fill(map_small(PROT_READ | PROT_WRITE, MAP_SHARED), 3, 30);
	map_small(PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void advised_memory(void)
{
	static const int advices[] = {MADV_DONTFORK,   MADV_DONTDUMP, MADV_WIPEONFORK,
	                              MADV_SEQUENTIAL, MADV_RANDOM,   MADV_MERGEABLE,
	                              MADV_HUGEPAGE};

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);

		fill(memory, 7, 2);
		madvise(memory, PAGES * SP_PAGE_SIZE, advices[i]);
	}
}

static void locked_memory(void)
{
	char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *inaccessible = map_small(PROT_NONE, MAP_PRIVATE);

	fill(memory, 1, 1);
	if (mlock2(memory, 4 * SP_PAGE_SIZE, MLOCK_ONFAULT) < 0 ||
	    mlock(memory + 8 * SP_PAGE_SIZE, 4 * SP_PAGE_SIZE) < 0)
		_exit(1);
	mlock(inaccessible, SP_PAGE_SIZE);
}

static void guarded_memory(void)
{
	subject = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	fill(subject, 0, 10);
	if (!made(madvise(subject + 5 * SP_PAGE_SIZE, SP_PAGE_SIZE, MADV_GUARD_INSTALL), EINVAL))
		subject = NULL;
}

static void growing_stack(void)
{
	char *memory = map_at(NULL, 512 * SP_PAGE_SIZE, PROT_NONE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

	subject = memory + 500 * SP_PAGE_SIZE;
	if (munmap(memory + 100 * SP_PAGE_SIZE, 412 * SP_PAGE_SIZE) < 0)
		_exit(1);
	map_at(subject, 10 * SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	       MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1);
	fill(subject - 10 * SP_PAGE_SIZE, 9, 10); /* one page grown */
}

static void sealed_memory(void)
{
	char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);

	fill(memory, 0, PAGES);
	if (mprotect(memory, 8 * SP_PAGE_SIZE, PROT_READ) < 0)
		_exit(1);
	subject = made(syscall(SYS_mseal, memory, 16 * SP_PAGE_SIZE, 0), ENOSYS) ? memory : NULL;
}

/*
 * Keys 1 and 3 are the program's; the kernel takes 2 for execute-only memory, which `subject` is.
 */
static void keyed_memory(void)
{
	char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *readable = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *executable = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	int key = pkey_alloc(0, 0);

	subject = NULL;
	if (key < 0)
		return;
	fill(memory, 0, PAGES);
	fill(executable, 0, PAGES);
	if (key != 1 || mprotect(executable, PAGES * SP_PAGE_SIZE, PROT_EXEC) < 0 ||
	    pkey_alloc(0, 0) != 3 || pkey_mprotect(memory, 8 * SP_PAGE_SIZE, PROT_READ, 1) < 0 ||
	    pkey_mprotect(readable, 8 * SP_PAGE_SIZE, PROT_READ, 3) < 0)
		_exit(1);
	subject = executable;
}

static char *huge_area(size_t size)
{
	char *memory = map_at(NULL, size + SP_HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS, -1);

	return (char *)(((uintptr_t)memory + SP_HUGE_PAGE_SIZE - 1) & ~(SP_HUGE_PAGE_SIZE - 1));
}

/*
 * Huge pages of data, of zeros, small pages among holes, nothing at all; and a huge page without
 * the advice. khugepaged, which turns small pages into huge ones when it likes, is kept away from
 * the small ones. `subject` is NULL if this machine gives no huge pages.
 */
static void huge_memory(void)
{
	char *memory = huge_area(8 * SP_HUGE_PAGE_SIZE);
	char *small = memory + 2 * SP_HUGE_PAGE_SIZE;
	char *collapsed = memory + 4 * SP_HUGE_PAGE_SIZE;

	madvise(memory, 4 * SP_HUGE_PAGE_SIZE, MADV_HUGEPAGE);
	madvise(small, SP_HUGE_PAGE_SIZE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < SP_HUGE_PAGE_SIZE; i += 8 * SP_PAGE_SIZE)
		small[i] = 1;
	for (size_t i = 0; i < SP_HUGE_PAGE_SIZE; i += 64)
		memory[i] = (char)i;
	memory[SP_HUGE_PAGE_SIZE] = 0;
	for (size_t i = 0; i < SP_HUGE_PAGE_SIZE; i += SP_PAGE_SIZE)
		collapsed[i] = 2;
	subject = madvise(collapsed, SP_HUGE_PAGE_SIZE, MADV_COLLAPSE) < 0 ? NULL : memory;
}

static void hugetlb_memory(void)
{
	char *memory = mmap(NULL, 2 * SP_HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	subject = memory == MAP_FAILED ? NULL : memory;
	if (subject)
		memset(subject, 3, SP_PAGE_SIZE);
}

/* Another build of the vDSO, as far as anybody can tell: one byte of its build id differs. */
static void foreign_vdso(void)
{
	static const char owner[] = "GNU";
	char *image = (char *)getauxval(AT_SYSINFO_EHDR);

	subject = NULL;
	if (!image ||
	    !made(mprotect(image, 2 * SP_PAGE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC), EPERM))
		return;
	subject = memmem(image, SP_PAGE_SIZE, owner, sizeof(owner));
	if (!subject)
		_exit(1);
	subject[sizeof(owner)] ^= 1;
	if (mprotect(image, 2 * SP_PAGE_SIZE, PROT_READ | PROT_EXEC) < 0)
		_exit(1);
}

static void no_vdso(void)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};

	sp_vma_list_read(getpid(), &vmas, NULL);
	for (size_t i = 0; i < vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&vmas, i);

		if (vma->kind == SP_VMA_VDSO || vma->kind == SP_VMA_VVAR)
			munmap((void *)(uintptr_t)vma->range.start, sp_range_size(vma->range));
	}
}

/* --- checks that the restored program makes --- */

/* The clocks of the vDSO and of the kernel must agree: reads of one between two of the other. */
static void clock_is_right(void)
{
	struct timespec before, now, after;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &before);
	clock_gettime(CLOCK_MONOTONIC, &now);
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &after);
	_exit((now.tv_sec < before.tv_sec) || (now.tv_sec > after.tv_sec) ||
	      time(NULL) < 1000000000);
}

/* The kernel takes its key away from execute-only memory that becomes readable. */
static void execute_only_memory_can_be_made_readable(void)
{
	if (mprotect(subject, PAGES * SP_PAGE_SIZE, PROT_READ) < 0)
		_exit(2);
	_exit(subject[0] != 1);
}

/* --- tests --- */

static void anonymous_memory_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, anonymous_memory, -1);
	assert_same_memory(&bench);
}

static void it_does_without_a_userfaultfd(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, anonymous_memory, SYS_userfaultfd);
	assert_same_memory(&bench);
}

static void file_memory_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, file_memory, -1);
	assert_same_memory(&bench);
}

static void advice_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, advised_memory, -1);
	assert_same_memory(&bench);
}

static void locks_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, locked_memory, -1);
	assert_same_memory(&bench);
}

static void a_stack_still_grows_down(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, growing_stack, -1);
	assert_same_memory(&bench);
}

static int note_guard(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	if (categories & PAGE_IS_GUARD)
		*(struct sp_range *)context = run;
	return 0;
}

static void guard_regions_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	struct sp_range guard = {0};
	struct sp_range all;

	restore(&bench, guarded_memory, -1);
	skip_unless_made(&bench, "this kernel has no MADV_GUARD_INSTALL (since Linux 6.13)");
	guard_page = (uintptr_t)subject + 5 * SP_PAGE_SIZE;
	all = (struct sp_range){(uintptr_t)subject, (uintptr_t)subject + PAGES * SP_PAGE_SIZE};
	assert_same_memory(&bench);
	assert_int_equal(sp_page_scan_open(&scan, bench.stub, NULL), 0);
	assert_int_equal(sp_page_scan_walk(&scan, all, note_guard, &guard, NULL), 0);
	assert_int_equal(guard.start, guard_page);
	assert_int_equal(guard.end, guard_page + SP_PAGE_SIZE);
	guard_page = 0;
}

static void seals_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, sealed_memory, -1);
	skip_unless_made(&bench, "this kernel has no mseal(2) (since Linux 6.10)");
	assert_same_memory(&bench);
}

static void protection_keys_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, keyed_memory, -1);
	skip_unless_made(&bench, "this processor has no protection keys");
	assert_same_memory(&bench);
	assert_int_equal(run_in_stub(&bench, execute_only_memory_can_be_made_readable), 0);
}

static int add_huge(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	if ((categories & PAGE_IS_HUGE) && (categories & PAGE_IS_PRESENT))
		*(uint64_t *)context += sp_range_size(run);
	return 0;
}

static uint64_t huge_bytes(pid_t pid, struct sp_range range)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	uint64_t huge = 0;

	assert_int_equal(sp_page_scan_open(&scan, pid, NULL), 0);
	assert_int_equal(sp_page_scan_walk(&scan, range, add_huge, &huge, NULL), 0);
	return huge;
}

static void assert_huge_memory(long deny)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, huge_memory, deny);
	skip_unless_made(&bench, "the kernel gives no transparent huge page");
	assert_same_memory(&bench);
	for (size_t i = 0; i < 8; i++) {
		uint64_t start = (uintptr_t)subject + i * SP_HUGE_PAGE_SIZE;
		struct sp_range range = {start, start + SP_HUGE_PAGE_SIZE};

		if (huge_bytes(bench.stub, range) != huge_bytes(bench.program, range))
			fail_msg("2 MiB number %zu", i);
	}
}

static void huge_pages_come_back_huge(void **state)
{
	assert_huge_memory(-1);
}

static void holes_stay_holes_among_huge_pages_without_a_userfaultfd(void **state)
{
	assert_huge_memory(SYS_userfaultfd);
}

static void hugetlb_memory_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, hugetlb_memory, -1);
	skip_unless_made(&bench, "the hugetlb pool has no free pages (vm.nr_hugepages)");
	assert_same_memory(&bench);
}

static void the_same_vdso_goes_home(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, anonymous_memory, -1);
	assert_same_memory(&bench);
	assert_int_equal(run_in_stub(&bench, clock_is_right), 0);
}

static void a_foreign_vdso_is_redirected(void **state)
{
	sp_cleanup(release_bench) struct bench bench;
	sp_cleanup(sp_vma_list_release) struct sp_array now = {0};

	restore(&bench, foreign_vdso, -1);
	skip_unless_made(&bench, "this kernel gives no vDSO, or seals it");
	assert_int_equal(sp_vma_list_read(bench.stub, &now, NULL), 0);
	assert_int_equal(sp_vma_find(&now, getauxval(AT_SYSINFO_EHDR))->kind, SP_VMA_ANONYMOUS);
	assert_int_equal(run_in_stub(&bench, clock_is_right), 0);
}

static void a_program_without_vdso_gets_none(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, no_vdso, -1);
	assert_same_memory(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(anonymous_memory_comes_back),
	        cmocka_unit_test(it_does_without_a_userfaultfd),
	        cmocka_unit_test(file_memory_comes_back),
	        cmocka_unit_test(advice_comes_back),
	        cmocka_unit_test(locks_come_back),
	        cmocka_unit_test(a_stack_still_grows_down),
	        cmocka_unit_test(guard_regions_come_back),
	        cmocka_unit_test(seals_come_back),
	        cmocka_unit_test(protection_keys_come_back),
	        cmocka_unit_test(huge_pages_come_back_huge),
	        cmocka_unit_test(holes_stay_holes_among_huge_pages_without_a_userfaultfd),
	        cmocka_unit_test(hugetlb_memory_comes_back),
	        cmocka_unit_test(the_same_vdso_goes_home),
	        cmocka_unit_test(a_foreign_vdso_is_redirected),
	        cmocka_unit_test(a_program_without_vdso_gets_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
