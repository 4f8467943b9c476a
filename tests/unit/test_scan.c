/* The facts about PAGEMAP_SCAN and userfaultfd that write tracking relies on: track/scan.h. */
#include "base/cleanup.h"
#include "track/scan.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cmocka.h>
#include "unit/skip.h"

#define PAGES 16
#define ROOM 4096

static int uffd, pagemap;
static struct page_region regions[ROOM];

static struct sp_range pages_of(const char *memory, size_t first, size_t count)
{
	uint64_t start = (uintptr_t)memory + first * SP_PAGE_SIZE;

	return (struct sp_range){start, start + count * SP_PAGE_SIZE};
}

static char *map_shared(size_t count, int fd)
{
	char *memory = mmap(NULL, count * SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                    fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	madvise(memory, count * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	return memory;
}

static char *map_pages(size_t count)
{
	return map_shared(count, -1);
}

/* Registers and protects pages. */
static char *watch(char *memory, size_t count)
{
	assert_int_equal(sp_uffd_register(uffd, pages_of(memory, 0, count)), 0);
	assert_int_equal(sp_scan_protect(pagemap, pages_of(memory, 0, count)), 0);
	return memory;
}

static char *watched_pages(size_t count)
{
	char *memory = map_pages(count);

	memset(memory, 1, count * SP_PAGE_SIZE);
	return watch(memory, count);
}

static void write_page(char *memory, size_t page)
{
	((volatile char *)memory)[page * SP_PAGE_SIZE] = 2;
}

typedef int scan_function(int, struct sp_range *, struct page_region *, size_t, uint64_t);

/* The written ones of up to 64 pages as bits; `room` regions at a time. */
static uint64_t bits_in(scan_function *scan, const char *memory, size_t count, size_t room,
                        uint64_t max_pages)
{
	struct sp_range range = pages_of(memory, 0, count);
	uint64_t bits = 0;

	while (range.start < range.end) {
		int got = scan(pagemap, &range, regions, room, max_pages);

		assert_true(got >= 0);
		for (int i = 0; i < got; i++)
			for (uint64_t at = regions[i].start; at < regions[i].end;
			     at += SP_PAGE_SIZE)
				bits |= 1ULL << (at - (uintptr_t)memory) / SP_PAGE_SIZE;
	}
	return bits;
}

static uint64_t written(const char *memory)
{
	return bits_in(sp_scan_written, memory, PAGES, ROOM, 0);
}

static uint64_t take(const char *memory)
{
	return bits_in(sp_scan_take, memory, PAGES, ROOM, 0);
}

static void only_written_pages_are_reported(void **state)
{
	char *memory = watched_pages(PAGES);

	assert_int_equal(written(memory), 0);
	write_page(memory, 3);
	write_page(memory, 4);
	write_page(memory, 9);
	assert_int_equal(written(memory), 1 << 3 | 1 << 4 | 1 << 9);
	assert_int_equal(written(memory), 1 << 3 | 1 << 4 | 1 << 9);
	assert_int_equal(take(memory), 1 << 3 | 1 << 4 | 1 << 9);
	assert_int_equal(written(memory), 0);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void protection_without_result_clears_a_part(void **state)
{
	char *memory = watched_pages(PAGES);

	write_page(memory, 2);
	write_page(memory, 12);
	assert_int_equal(sp_scan_protect(pagemap, pages_of(memory, 0, 8)), 0);
	assert_int_equal(written(memory), 1 << 12);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void a_small_vector_is_gone_on_from(void **state)
{
	char *memory = watched_pages(PAGES);

	for (size_t room = 1; room < 6; room++) {
		for (size_t i = 0; i < PAGES; i += 3)
			write_page(memory, i);
		assert_int_equal(bits_in(sp_scan_written, memory, PAGES, room, 0), 0x9249);
		assert_int_equal(bits_in(sp_scan_take, memory, PAGES, room, 0), 0x9249);
		assert_int_equal(written(memory), 0);
	}
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void a_limit_of_pages_is_gone_on_from(void **state)
{
	char *memory = watched_pages(PAGES);

	for (uint64_t limit = 1; limit < 9; limit++) {
		memset(memory + SP_PAGE_SIZE, 3, 7 * SP_PAGE_SIZE);
		write_page(memory, 12);
		assert_int_equal(bits_in(sp_scan_written, memory, PAGES, ROOM, limit), 0x10fe);
		assert_int_equal(bits_in(sp_scan_take, memory, PAGES, ROOM, limit), 0x10fe);
		assert_int_equal(written(memory), 0);
	}
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

/* 600 regions fill a vector of 600 exactly: the kernel's walk_end is that of its 512th region. */
static void a_stale_walk_end_reports_no_page_twice(void **state)
{
	size_t count = 4096, room = 600, total = 0;
	char *memory = watched_pages(count);
	struct sp_range range = pages_of(memory, 0, count);
	uint64_t last = 0;

	for (size_t i = 0; i < room; i++)
		write_page(memory, 2 * i);
	while (range.start < range.end) {
		int got = sp_scan_written(pagemap, &range, regions, room, 0);

		assert_true(got >= 0);
		for (int i = 0; i < got; i++) {
			assert_true(regions[i].start >= last);
			last = regions[i].end;
			total++;
		}
	}
	assert_int_equal(total, room);
	munmap(memory, count * SP_PAGE_SIZE);
}

static void unpopulated_pages_are_written_until_protected(void **state)
{
	char *memory = map_pages(PAGES);

	assert_int_equal(sp_uffd_register(uffd, pages_of(memory, 0, PAGES)), 0);
	assert_int_equal(take(memory), 0xffff);
	assert_int_equal(written(memory), 0);
	write_page(memory, 5);
	assert_int_equal(written(memory), 1 << 5);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void reading_an_unpopulated_page_is_not_writing(void **state)
{
	char *memory = watch(map_pages(PAGES), PAGES);

	assert_int_equal(((volatile char *)memory)[0], 0);
	assert_int_equal(written(memory), 0);
	write_page(memory, 0);
	assert_int_equal(written(memory), 1);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void a_discarded_page_is_written_until_protected(void **state)
{
	char *memory = watched_pages(PAGES);

	madvise(memory + 6 * SP_PAGE_SIZE, SP_PAGE_SIZE, MADV_DONTNEED);
	assert_int_equal(take(memory), 1 << 6);
	assert_int_equal(written(memory), 0);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void unregistered_memory_is_written_and_cannot_be_taken(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_range range = pages_of(memory, 0, PAGES);

	memset(memory, 1, PAGES * SP_PAGE_SIZE);
	assert_int_equal(written(memory), 0xffff);
	assert_int_equal(sp_scan_check(pagemap, range), -EPERM);
	assert_int_equal(sp_scan_take(pagemap, &range, regions, ROOM, 0), -EPERM);
	assert_int_equal(sp_scan_protect(pagemap, range), -EPERM);
	watch(memory, PAGES);
	assert_int_equal(sp_scan_check(pagemap, range), 0);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void a_mapping_made_over_the_range_is_noticed(void **state)
{
	char *memory = watched_pages(PAGES);

	assert_ptr_equal(mmap(memory + 8 * SP_PAGE_SIZE, SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
	                 memory + 8 * SP_PAGE_SIZE);
	assert_int_equal(sp_scan_check(pagemap, pages_of(memory, 0, PAGES)), -EPERM);
	assert_int_equal(written(memory), 1 << 8);
	munmap(memory + 8 * SP_PAGE_SIZE, SP_PAGE_SIZE);
	assert_int_equal(sp_scan_check(pagemap, pages_of(memory, 0, PAGES)), 0);
	assert_int_equal(take(memory), 0);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void moved_memory_is_no_longer_registered(void **state)
{
	char *memory = watched_pages(PAGES);
	char *place = map_pages(PAGES);
	char *moved = mremap(memory, PAGES * SP_PAGE_SIZE, PAGES * SP_PAGE_SIZE,
	                     MREMAP_MAYMOVE | MREMAP_FIXED, place);

	assert_ptr_equal(moved, place);
	assert_int_equal(sp_scan_check(pagemap, pages_of(moved, 0, PAGES)), -EPERM);
	munmap(moved, PAGES * SP_PAGE_SIZE);
}

static void writes_by_the_kernel_count(void **state)
{
	char *memory = watched_pages(PAGES);
	struct iovec from = {(char[]){7}, 1}, to = {memory + 4 * SP_PAGE_SIZE, 1};
	sp_cleanup_close int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	assert_int_equal(read(zero, memory + 2 * SP_PAGE_SIZE, 1), 1);
	assert_int_equal(process_vm_writev(getpid(), &from, 1, &to, 1, 0), 1);
	assert_int_equal(written(memory), 1 << 2 | 1 << 4);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void a_file_mapped_twice_is_tracked_per_mapping(void **state)
{
	sp_cleanup_close int fd = memfd_create("twice", MFD_CLOEXEC);
	char *one, *other;

	assert_int_equal(ftruncate(fd, PAGES * SP_PAGE_SIZE), 0);
	one = watch(map_shared(PAGES, fd), PAGES);
	other = watch(map_shared(PAGES, fd), PAGES);
	write_page(one, 3);
	assert_int_equal(pwrite(fd, "x", 1, 5 * SP_PAGE_SIZE), 1);
	assert_int_equal(written(one), 1 << 3);
	assert_int_equal(written(other), 0);
	munmap(one, PAGES * SP_PAGE_SIZE);
	munmap(other, PAGES * SP_PAGE_SIZE);
}

static void a_hole_in_shared_memory_is_not_written(void **state)
{
	sp_cleanup_close int fd = memfd_create("hole", MFD_CLOEXEC);
	char *memory;

	assert_int_equal(ftruncate(fd, PAGES * SP_PAGE_SIZE), 0);
	memory = map_shared(PAGES, fd);
	memset(memory, 1, PAGES * SP_PAGE_SIZE);
	watch(memory, PAGES);
	assert_int_equal(madvise(memory + 3 * SP_PAGE_SIZE, SP_PAGE_SIZE, MADV_REMOVE), 0);
	assert_int_equal(written(memory), 0);
	write_page(memory, 3);
	assert_int_equal(written(memory), 1 << 3);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void sealed_memory_is_tracked(void **state)
{
	char *memory = watched_pages(PAGES);

	if (syscall(SYS_mseal, memory, PAGES * SP_PAGE_SIZE, 0) < 0)
		skip_because("no mseal(2)");
	write_page(memory, 1);
	assert_int_equal(take(memory), 1 << 1);
	assert_int_equal(sp_uffd_unregister(uffd, pages_of(memory, 0, PAGES)), 0);
	watch(memory, PAGES);
	write_page(memory, 2);
	assert_int_equal(written(memory), 1 << 2);
}

static void a_huge_page_is_written_as_a_whole_and_then_in_parts(void **state)
{
	size_t size = SP_HUGE_PAGE_SIZE, pages = size / SP_PAGE_SIZE;
	char *area =
	        mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *memory = (char *)(((uintptr_t)area + size - 1) & ~(size - 1));
	struct sp_range range = pages_of(memory, 0, pages), rest;

	madvise(memory, size, MADV_HUGEPAGE);
	memset(memory, 1, size);
	assert_int_equal(sp_uffd_register(uffd, range), 0);
	rest = range;
	assert_int_equal(sp_scan_take(pagemap, &rest, regions, ROOM, 0), 1);
	assert_int_equal(regions[0].end - regions[0].start, size);
	write_page(memory, 100);
	rest = range;
	assert_int_equal(sp_scan_take(pagemap, &rest, regions, ROOM, 0), 1);
	assert_int_equal(regions[0].start, (uintptr_t)memory + 100 * SP_PAGE_SIZE);
	assert_int_equal(regions[0].end, (uintptr_t)memory + 101 * SP_PAGE_SIZE);
	munmap(area, 2 * size);
}

/* A child that hands over its memory, writes pages when it is told to, and ends with its parent. */
struct other {
	pid_t pid;
	int go, done;
};

static struct other start_other(char *memory)
{
	struct other other;
	int go[2], done[2];
	char page;

	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	assert_int_equal(pipe2(done, O_CLOEXEC), 0);
	other.pid = fork();
	if (other.pid == 0) {
		int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

		close(go[1]);
		if (write(done[1], &fd, sizeof(fd)) != sizeof(fd))
			_exit(1);
		while (read(go[0], &page, 1) == 1) {
			write_page(memory, (size_t)page);
			if (write(done[1], &page, 1) != 1)
				break;
		}
		_exit(0);
	}
	close(go[0]);
	close(done[1]);
	other.go = go[1];
	other.done = done[0];
	return other;
}

static void the_memory_of_another_process_is_tracked_from_outside(void **state)
{
	char *memory = map_pages(PAGES), path[64], page = 5;
	int own = pagemap, its_fd, pidfd, gone;
	struct sp_range range;
	struct other other;

	memset(memory, 1, PAGES * SP_PAGE_SIZE);
	other = start_other(memory);
	assert_int_equal(read(other.done, &its_fd, sizeof(its_fd)), sizeof(its_fd));
	pidfd = (int)syscall(SYS_pidfd_open, other.pid, 0);
	its_fd = (int)syscall(SYS_pidfd_getfd, pidfd, its_fd, 0);
	assert_true(its_fd >= 0);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", other.pid);
	pagemap = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(sp_uffd_enable(its_fd, SP_UFFD_ASYNC), 0);
	assert_int_equal(sp_uffd_register(its_fd, pages_of(memory, 0, PAGES)), 0);
	assert_int_equal(take(memory), 0xffff);
	write_page(memory, 9); /* one's own copy: of no concern */
	assert_int_equal(write(other.go, &page, 1), 1);
	assert_int_equal(read(other.done, &page, 1), 1);
	assert_int_equal(take(memory), 1 << 5);
	close(other.go);
	waitpid(other.pid, NULL, 0);
	/* Nothing is written where nothing is mapped; only newer kernels say ESRCH. */
	range = pages_of(memory, 0, PAGES);
	gone = sp_scan_written(pagemap, &range, regions, ROOM, 0);
	assert_true(gone == 0 || gone == -ESRCH);
	close(pagemap);
	pagemap = own;
	close(its_fd);
	close(pidfd);
	close(other.done);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void a_child_of_fork_has_nothing_registered(void **state)
{
	char *memory = watched_pages(PAGES);
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int its = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

		_exit(sp_scan_check(its, pages_of(memory, 0, PAGES)) == -EPERM ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(written(memory), 0);
	write_page(memory, 7);
	assert_int_equal(written(memory), 1 << 7);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void closing_the_userfaultfd_ends_the_registration(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_range range = pages_of(memory, 0, PAGES);
	bool user_mode_only;
	int second = sp_uffd_open(&user_mode_only);

	assert_true(second >= 0);
	assert_int_equal(sp_uffd_enable(second, SP_UFFD_ASYNC), 0);
	assert_int_equal(sp_uffd_enable(second, SP_UFFD_ASYNC), -EINVAL);
	assert_int_equal(sp_uffd_register(second, range), 0);
	assert_int_equal(sp_uffd_register(uffd, range), -EBUSY);
	assert_int_equal(sp_scan_check(pagemap, range), 0);
	close(second);
	assert_int_equal(sp_scan_check(pagemap, range), -EPERM);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void protection_by_userfaultfd_is_the_same(void **state)
{
	char *memory = watched_pages(PAGES);

	write_page(memory, 1);
	write_page(memory, 2);
	assert_int_equal(sp_uffd_protect(uffd, pages_of(memory, 0, 2)), 0);
	assert_int_equal(written(memory), 1 << 2);
	assert_int_equal(sp_uffd_unprotect(uffd, pages_of(memory, 14, 2)), 0);
	assert_int_equal(written(memory), 1 << 2 | 3 << 14);
	assert_int_equal(sp_uffd_unregister(uffd, pages_of(memory, 0, PAGES)), 0);
	assert_int_equal(sp_uffd_protect(uffd, pages_of(memory, 0, 2)), -ENOENT);
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static bool open_both(void)
{
	bool user_mode_only;

	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uffd = sp_uffd_open(&user_mode_only);
	return uffd >= 0 && sp_uffd_enable(uffd, SP_UFFD_ASYNC) == 0;
}

static void asynchronous_protection(void **state)
{
	skip_because("this kernel has no asynchronous write protection (since Linux 6.7)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(only_written_pages_are_reported),
	        cmocka_unit_test(protection_without_result_clears_a_part),
	        cmocka_unit_test(a_small_vector_is_gone_on_from),
	        cmocka_unit_test(a_limit_of_pages_is_gone_on_from),
	        cmocka_unit_test(a_stale_walk_end_reports_no_page_twice),
	        cmocka_unit_test(unpopulated_pages_are_written_until_protected),
	        cmocka_unit_test(reading_an_unpopulated_page_is_not_writing),
	        cmocka_unit_test(a_discarded_page_is_written_until_protected),
	        cmocka_unit_test(unregistered_memory_is_written_and_cannot_be_taken),
	        cmocka_unit_test(a_mapping_made_over_the_range_is_noticed),
	        cmocka_unit_test(moved_memory_is_no_longer_registered),
	        cmocka_unit_test(writes_by_the_kernel_count),
	        cmocka_unit_test(a_file_mapped_twice_is_tracked_per_mapping),
	        cmocka_unit_test(a_hole_in_shared_memory_is_not_written),
	        cmocka_unit_test(sealed_memory_is_tracked),
	        cmocka_unit_test(a_huge_page_is_written_as_a_whole_and_then_in_parts),
	        cmocka_unit_test(the_memory_of_another_process_is_tracked_from_outside),
	        cmocka_unit_test(a_child_of_fork_has_nothing_registered),
	        cmocka_unit_test(closing_the_userfaultfd_ends_the_registration),
	        cmocka_unit_test(protection_by_userfaultfd_is_the_same),
	};
	const struct CMUnitTest none[] = {cmocka_unit_test(asynchronous_protection)};

	return open_both() ? cmocka_run_group_tests(tests, NULL, NULL)
	                   : cmocka_run_group_tests(none, NULL, NULL);
}
