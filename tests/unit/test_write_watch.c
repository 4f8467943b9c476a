/*
 * The write watch: the same contract with every backend that this kernel has, as far as its guarantees
 * go (include/sealpoint/write_watch.h). Each test runs once for each backend.
 */
#include "sealpoint/write_watch.h"

#include "base/cleanup.h"
#include "base/kernel_abi.h"
#include "base/range.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cmocka.h>
#include "unit/skip.h"

#define PAGES 64
#define SIZE (PAGES * SP_PAGE_SIZE)
#define RESET SP_WRITE_WATCH_RESET

/* A test of the contract with one of the backends. */
struct trial {
	enum sp_write_watch_backend backend;
	CMUnitTestFunction test;
	char name[96];
};

static enum sp_write_watch_backend backend_of(void **state)
{
	return ((const struct trial *)*state)->backend;
}

static char *map_memory(size_t size, int flags, int fd)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static char *map_pages(size_t count)
{
	char *memory = map_memory(count * SP_PAGE_SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	madvise(memory, count * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	memset(memory, 1, count * SP_PAGE_SIZE);
	return memory;
}

static struct sp_span pages_of(char *memory, size_t first, size_t count)
{
	return (struct sp_span){memory + first * SP_PAGE_SIZE,
	                        memory + (first + count) * SP_PAGE_SIZE};
}

static struct sp_span all(char *memory)
{
	return pages_of(memory, 0, PAGES);
}

static struct sp_write_watch *open_watch(void **state, char *memory, size_t count)
{
	struct sp_write_watch *watch;

	assert_int_equal(sp_write_watch_open(&watch, pages_of(memory, 0, count), backend_of(state)),
	                 0);
	assert_int_equal(sp_write_watch_backend(watch), backend_of(state));
	return watch;
}

static void write_page(char *memory, size_t page)
{
	((volatile char *)memory)[page * SP_PAGE_SIZE] += 1;
}

/* The written ones of the PAGES pages as bits. */
static uint64_t bits(struct sp_write_watch *watch, char *memory, unsigned flags)
{
	uint64_t word = 0;
	ssize_t count = sp_write_watch_bitmap(watch, all(memory), flags, &word);

	assert_int_equal(count, __builtin_popcountll(word));
	return word;
}

#define BIT(n) (1ULL << (n))

static void every_form_of_result_tells_the_same(void **state)
{
	char *memory = map_pages(PAGES), *addresses[PAGES];
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);
	struct sp_span ranges[PAGES], left = all(memory);

	assert_int_equal(sp_write_watch_granularity(watch), SP_PAGE_SIZE);
	assert_int_equal(sp_write_watch_count(watch, left, 0), 0);
	write_page(memory, 3);
	write_page(memory, 4);
	write_page(memory, 63);
	assert_int_equal(bits(watch, memory, 0), BIT(3) | BIT(4) | BIT(63));
	assert_int_equal(sp_write_watch_count(watch, all(memory), 0), 3);
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 4, 10), 0), 1);
	assert_int_equal(sp_write_watch_ranges(watch, &left, 0, ranges, PAGES), 2);
	assert_ptr_equal(left.start, left.end);
	assert_ptr_equal(ranges[0].start, memory + 3 * SP_PAGE_SIZE);
	assert_ptr_equal(ranges[0].end, memory + 5 * SP_PAGE_SIZE);
	assert_ptr_equal(ranges[1].end, memory + SIZE);
	left = all(memory);
	assert_int_equal(sp_write_watch_addresses(watch, &left, 0, addresses, PAGES), 3);
	assert_ptr_equal(addresses[1], memory + 4 * SP_PAGE_SIZE);
	assert_ptr_equal(addresses[2], memory + 63 * SP_PAGE_SIZE);
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void a_reset_forgets_what_was_reported(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);

	write_page(memory, 7);
	assert_int_equal(bits(watch, memory, RESET), BIT(7));
	assert_int_equal(bits(watch, memory, RESET), 0);
	write_page(memory, 7);
	write_page(memory, 8);
	assert_int_equal(bits(watch, memory, 0), BIT(7) | BIT(8));
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 0, 8), RESET), 1);
	assert_int_equal(bits(watch, memory, 0), BIT(8));
	write_page(memory, 20);
	assert_int_equal(sp_write_watch_reset(watch, pages_of(memory, 8, 4)), 0);
	assert_int_equal(bits(watch, memory, 0), BIT(20));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static uint64_t collect_ranges(struct sp_write_watch *watch, char *memory, size_t room)
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

static uint64_t collect_addresses(struct sp_write_watch *watch, char *memory, size_t room)
{
	struct sp_span left = all(memory);
	char *addresses[8];
	uint64_t found = 0;

	while (left.start < left.end) {
		ssize_t count = sp_write_watch_addresses(watch, &left, RESET, addresses, room);

		assert_in_range(count, 0, room);
		for (ssize_t i = 0; i < count; i++) {
			uint64_t bit = BIT((addresses[i] - memory) / SP_PAGE_SIZE);

			assert_int_equal(found & bit, 0);
			found |= bit;
		}
	}
	return found;
}

static void nothing_is_lost_or_told_twice_for_want_of_room(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);
	uint64_t wanted = 0;

	for (size_t i = 0; i < PAGES; i++)
		wanted |= i % 3 || i > 40 ? BIT(i) : 0;
	for (size_t room = 1; room <= 16; room++) {
		for (size_t i = 0; i < PAGES; i++)
			if (wanted & BIT(i))
				write_page(memory, i);
		assert_int_equal(room <= 8 ? collect_ranges(watch, memory, room)
		                           : collect_addresses(watch, memory, room - 8),
		                 wanted);
		assert_int_equal(bits(watch, memory, 0), 0);
	}
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void reading_is_not_writing(void **state)
{
	char *memory = map_memory(SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct sp_write_watch *watch;

	madvise(memory, SIZE, MADV_NOHUGEPAGE);
	watch = open_watch(state, memory, PAGES);
	for (size_t i = 0; i < PAGES; i++)
		assert_int_equal(((volatile char *)memory)[i * SP_PAGE_SIZE], 0);
	assert_int_equal(bits(watch, memory, 0), 0);
	write_page(memory, 5); /* one that reading has populated */
	assert_int_equal(bits(watch, memory, RESET), BIT(5));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void a_page_that_never_existed_is_written_by_its_first_write(void **state)
{
	char *memory = map_memory(SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct sp_write_watch *watch;

	madvise(memory, SIZE, MADV_NOHUGEPAGE);
	watch = open_watch(state, memory, PAGES);
	assert_int_equal(bits(watch, memory, RESET), 0);
	write_page(memory, 9);
	assert_int_equal(bits(watch, memory, RESET), BIT(9));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

/* They count, or they fail, but they are never lost. */
static bool kernel_writes_as_guaranteed(struct sp_write_watch *watch, char *memory)
{
	sp_cleanup_close int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	ssize_t got = read(zero, memory + 2 * SP_PAGE_SIZE, 1);
	int error = errno;
	uint64_t word = bits(watch, memory, 0);

	if (sp_write_watch_guarantees(watch) & SP_WRITE_WATCH_KERNEL_WRITES)
		return got == 1 && word == BIT(2);
	return got == -1 && error == EFAULT && word == 0;
}

static void writes_by_the_kernel_count_or_fail(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);

	assert_true(kernel_writes_as_guaranteed(watch, memory));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void a_discarded_page_counts_until_the_reset(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);
	bool counts = sp_write_watch_guarantees(watch) & SP_WRITE_WATCH_DISCARDS;

	assert_int_equal(madvise(memory + 6 * SP_PAGE_SIZE, SP_PAGE_SIZE, MADV_DONTNEED), 0);
	assert_int_equal(bits(watch, memory, RESET), counts ? BIT(6) : 0);
	assert_int_equal(bits(watch, memory, 0), 0);
	write_page(memory, 6);
	assert_int_equal(bits(watch, memory, 0), BIT(6));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

/* The hole itself is a change of the file, and may count or not. */
static void shared_memory_is_watched_on_after_a_hole_was_punched(void **state)
{
	sp_cleanup_close int fd = memfd_create("holes", MFD_CLOEXEC);
	struct sp_write_watch *watch;
	char *memory;

	assert_int_equal(ftruncate(fd, SIZE), 0);
	memory = map_memory(SIZE, MAP_SHARED, fd);
	memset(memory, 1, SIZE);
	watch = open_watch(state, memory, PAGES);
	assert_int_equal(madvise(memory + 6 * SP_PAGE_SIZE, SP_PAGE_SIZE, MADV_REMOVE), 0);
	assert_int_equal(memory[6 * SP_PAGE_SIZE], 0);
	assert_int_equal(bits(watch, memory, RESET) & ~BIT(6), 0);
	assert_int_equal(bits(watch, memory, 0), 0);
	write_page(memory, 6);
	assert_int_equal(bits(watch, memory, 0), BIT(6));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void map_again(char *memory, size_t page)
{
	assert_ptr_equal(mmap(memory + page * SP_PAGE_SIZE, SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
	                 memory + page * SP_PAGE_SIZE);
}

static void memory_mapped_anew_counts_and_is_watched(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);

	if (!(sp_write_watch_guarantees(watch) & SP_WRITE_WATCH_REMAPS)) {
		sp_write_watch_close(watch);
		munmap(memory, SIZE);
		return;
	}
	map_again(memory, 10);
	munmap(memory + 30 * SP_PAGE_SIZE, SP_PAGE_SIZE);
	bits(watch, memory, RESET); /* whether a page that is not there counts is left open */
	map_again(memory, 30);
	map_again(memory, 31);
	assert_int_equal(bits(watch, memory, RESET) & ~BIT(10), BIT(30) | BIT(31));
	bits(watch, memory, RESET);
	assert_int_equal(bits(watch, memory, 0), 0);
	write_page(memory, 10);
	write_page(memory, 30);
	write_page(memory, 31);
	assert_int_equal(bits(watch, memory, RESET), BIT(10) | BIT(30) | BIT(31));
	write_page(memory, 3); /* found before the new mapping is */
	map_again(memory, 41);
	write_page(memory, 60);
	assert_int_equal(bits(watch, memory, RESET), BIT(3) | BIT(41) | BIT(60));
	map_again(memory, 40);
	assert_int_equal(sp_write_watch_reset(watch, all(memory)), 0);
	assert_int_equal(bits(watch, memory, 0), 0);
	write_page(memory, 40);
	assert_int_equal(bits(watch, memory, 0), BIT(40));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void moved_memory_is_ordinary_memory(void **state)
{
	char *memory = map_pages(PAGES), *moved;
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);

	if (backend_of(state) != SP_WRITE_WATCH_MPROTECT) { /* whose protection moves along */
		moved = mremap(memory + 8 * SP_PAGE_SIZE, SP_PAGE_SIZE, SP_PAGE_SIZE,
		               MREMAP_MAYMOVE | MREMAP_FIXED, map_pages(1));
		assert_ptr_not_equal(moved, MAP_FAILED);
		assert_int_equal(moved[0], 1);
		write_page(moved, 0);
		assert_int_equal(moved[0], 2);
		write_page(memory, 9);
		assert_int_equal(bits(watch, memory, 0) & ~BIT(8), BIT(9));
		munmap(moved, SP_PAGE_SIZE);
	}
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void watches_do_not_disturb_each_other(void **state)
{
	char *memory = map_pages(2 * PAGES), *second = memory + SIZE;
	struct sp_write_watch *watch = open_watch(state, memory, PAGES), *other;

	write_page(memory, 1);
	other = open_watch(state, second, PAGES);
	write_page(second, 2);
	assert_int_equal(bits(watch, memory, RESET), BIT(1));
	assert_int_equal(bits(other, second, 0), BIT(2));
	write_page(memory, 3);
	sp_write_watch_close(other);
	write_page(second, 4);
	assert_int_equal(bits(watch, memory, 0), BIT(3));
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 0, 2 * PAGES), 0), -EINVAL);
	sp_write_watch_close(watch);
	munmap(memory, 2 * SIZE);
}

static void memory_is_watched_once(void **state)
{
	char *before = map_pages(PAGES + 1), *memory = before + SP_PAGE_SIZE;
	struct sp_write_watch *watch = open_watch(state, memory, PAGES), *other;

	if (backend_of(state) != SP_WRITE_WATCH_SOFT_DIRTY) {
		assert_int_equal(
		        sp_write_watch_open(&other, pages_of(memory, 5, 1), backend_of(state)),
		        -EBUSY);
		assert_null(other);
		assert_int_equal(
		        sp_write_watch_open(&other, pages_of(before, 0, 3), backend_of(state)),
		        -EBUSY);
	}
	assert_int_equal(bits(watch, memory, 0), 0);
	write_page(memory, 0);
	write_page(memory, 5);
	assert_int_equal(bits(watch, memory, 0), BIT(0) | BIT(5));
	write_page(before, 0);
	sp_write_watch_close(watch);
	watch = open_watch(state, memory, PAGES);
	assert_int_equal(bits(watch, memory, 0), 0);
	sp_write_watch_close(watch);
	munmap(before, SIZE + SP_PAGE_SIZE);
}

static void a_write_through_any_mirror_counts(void **state)
{
	sp_cleanup_close int fd = memfd_create("mirrors", MFD_CLOEXEC);
	struct sp_write_watch *watch;
	struct sp_span left;
	char *mirrors[3], *addresses[2];

	assert_int_equal(ftruncate(fd, SIZE), 0);
	for (int i = 0; i < 3; i++)
		mirrors[i] = map_memory(SIZE, MAP_SHARED, fd);
	memset(mirrors[0], 1, SIZE);
	assert_int_equal(sp_write_watch_open_mirrored(&watch, mirrors, 3, SIZE, backend_of(state)),
	                 0);
	assert_int_equal(bits(watch, mirrors[0], 0), 0);
	write_page(mirrors[0], 1);
	write_page(mirrors[1], 2);
	write_page(mirrors[2], 2);
	write_page(mirrors[2], 50);
	assert_int_equal(bits(watch, mirrors[0], 0), BIT(1) | BIT(2) | BIT(50));
	assert_int_equal(sp_write_watch_reset(watch, pages_of(mirrors[0], 2, 1)), 0);
	assert_int_equal(bits(watch, mirrors[0], RESET), BIT(1) | BIT(50));
	assert_int_equal(bits(watch, mirrors[0], 0), 0);
	for (size_t i = 0; i < PAGES; i += 2)
		write_page(mirrors[i % 3], i);
	assert_int_equal(collect_ranges(watch, mirrors[0], 3), 0x5555555555555555);
	write_page(mirrors[1], 5);
	left = all(mirrors[0]);
	while (left.start < left.end)
		if (sp_write_watch_addresses(watch, &left, RESET, addresses, 2) == 1)
			assert_ptr_equal(addresses[0], mirrors[0] + 5 * SP_PAGE_SIZE);
	assert_int_equal(bits(watch, mirrors[0], 0), 0);
	assert_int_equal(sp_write_watch_count(watch, all(mirrors[1]), 0), -EINVAL);
	sp_write_watch_close(watch);
	for (int i = 0; i < 3; i++)
		munmap(mirrors[i], SIZE);
}

/* Mirrors are merged in steps of a few thousand pages; room for one range makes steps of one page. */
static void steps_of_merging_do_not_show(void **state)
{
	size_t pages = 5000, size = pages * SP_PAGE_SIZE;
	sp_cleanup_close int fd = memfd_create("mirrors", MFD_CLOEXEC);
	struct sp_write_watch *watch;
	char *mirrors[2];

	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	mirrors[0] = map_memory(size, MAP_SHARED, fd);
	mirrors[1] = map_memory(size, MAP_SHARED, fd);
	assert_int_equal(sp_write_watch_open_mirrored(&watch, mirrors, 2, size, backend_of(state)),
	                 0);
	for (size_t room = 2; room >= 1; room--) {
		struct sp_span left = {mirrors[0], mirrors[0] + size}, ranges[2];

		for (size_t i = 0; i < pages; i++)
			write_page(mirrors[i % 512 < 100], i);
		assert_int_equal(sp_write_watch_ranges(watch, &left, SP_WRITE_WATCH_RESET, ranges,
		                                       room == 2 ? 2 : 1),
		                 1);
		assert_ptr_equal(ranges[0].start, mirrors[0]);
		if (room == 2)
			assert_ptr_equal(ranges[0].end, mirrors[0] + size);
		else
			assert_ptr_equal(ranges[0].end, left.start);
	}
	sp_write_watch_close(watch);
	munmap(mirrors[0], size);
	munmap(mirrors[1], size);
}

static int in_child(struct sp_write_watch *watch, char *memory, enum sp_write_watch_backend backend)
{
	struct sp_write_watch *own;
	uint64_t word = 0;

	write_page(memory, 11);
	if (sp_write_watch_count(watch, all(memory), RESET) != -ECHILD ||
	    sp_write_watch_reset(watch, all(memory)) != -ECHILD)
		return 1;
	sp_write_watch_close(watch);
	write_page(memory, 12);
	if (sp_write_watch_open(&own, all(memory), backend) < 0)
		return 2;
	write_page(memory, 13);
	if (sp_write_watch_bitmap(own, all(memory), RESET, &word) != 1 || word != BIT(13))
		return 3;
	sp_write_watch_close(own);
	return memory[12 * SP_PAGE_SIZE] == 2 ? 0 : 4;
}

static void a_child_of_fork_has_ordinary_memory(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch = open_watch(state, memory, PAGES);
	int status = -1;
	pid_t pid;

	write_page(memory, 1);
	pid = fork();
	if (pid == 0)
		_exit(in_child(watch, memory, backend_of(state)));
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(bits(watch, memory, RESET), BIT(1));
	write_page(memory, 2);
	assert_int_equal(bits(watch, memory, RESET), BIT(2));
	sp_write_watch_close(watch);
	munmap(memory, SIZE);
}

static void without_privileges(void **state)
{
	char *memory = map_pages(PAGES);
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		struct sp_write_watch *watch;

		if (setgid(65534) < 0 || setuid(65534) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0)
			_exit(1);
		if (sp_write_watch_open(&watch, all(memory), backend_of(state)) < 0)
			_exit(2);
		write_page(memory, 4);
		if (sp_write_watch_count(watch, all(memory), RESET) != 1)
			_exit(3);
		_exit(kernel_writes_as_guaranteed(watch, memory) ? 0 : 4);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	munmap(memory, SIZE);
}

static void hugetlb_memory_is_reported_in_its_pages(void **state)
{
	size_t huge = SP_HUGE_PAGE_SIZE, size = 4 * huge;
	struct sp_write_watch *watch;
	uint64_t word = 0;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	struct sp_span span = {memory, memory + size}, part = {memory, memory + SP_PAGE_SIZE};
	int rc;

	if (memory == MAP_FAILED)
		skip_because("no hugetlb pages");
	memset(memory, 1, 2 * huge);
	rc = sp_write_watch_open(&watch, span, backend_of(state));
	if (backend_of(state) == SP_WRITE_WATCH_SOFT_DIRTY) {
		assert_int_equal(rc, -EOPNOTSUPP);
		munmap(memory, size);
		return;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(sp_write_watch_granularity(watch), huge);
	assert_int_equal(sp_write_watch_count(watch, span, 0), 0);
	memory[huge + 5000] = 2;
	memory[3 * huge] = 2; /* one that was not populated */
	assert_int_equal(sp_write_watch_bitmap(watch, span, RESET, &word), 2);
	assert_int_equal(word, BIT(1) | BIT(3));
	assert_int_equal(sp_write_watch_count(watch, span, 0), 0);
	assert_int_equal(sp_write_watch_count(watch, part, 0), -EINVAL);
	sp_write_watch_close(watch);
	memory[0] = 3;
	munmap(memory, size);
}

static void a_write_in_a_transparent_huge_page_counts(void **state)
{
	size_t huge = SP_HUGE_PAGE_SIZE, pages = huge / SP_PAGE_SIZE;
	char *area = map_memory(2 * huge, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *memory = (char *)(((uintptr_t)area + huge - 1) & ~(huge - 1));
	struct sp_write_watch *watch;
	uint64_t words[8] = {0};

	madvise(memory, huge, MADV_HUGEPAGE);
	memset(memory, 1, huge);
	watch = open_watch(state, memory, pages);
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 0, pages), 0), 0);
	write_page(memory, 100);
	sp_write_watch_bitmap(watch, pages_of(memory, 0, pages), RESET, words);
	assert_true(words[1] & BIT(100 - 64));
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 0, pages), 0), 0);
	sp_write_watch_close(watch);
	munmap(area, 2 * huge);
}

static void shared_and_file_mappings_are_watched(void **state)
{
	char path[] = "/tmp/sealpoint-watch.XXXXXX";
	sp_cleanup_close int fd = memfd_create("shared", MFD_CLOEXEC);
	sp_cleanup_close int file = mkstemp(path);

	unlink(path);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	assert_int_equal(ftruncate(file, SIZE), 0);
	for (int i = 0; i < 4; i++) {
		int flags = i % 2 ? MAP_SHARED : MAP_PRIVATE;
		char *memory = map_memory(SIZE, i == 3 ? flags | MAP_ANONYMOUS : flags,
		                          i == 3   ? -1
		                          : i == 2 ? file
		                                   : fd);
		struct sp_write_watch *watch;
		int rc = sp_write_watch_open(&watch, all(memory), backend_of(state));

		if (rc < 0) { /* only anonymous and shmem memory can be protected synchronously */
			assert_int_equal(backend_of(state), SP_WRITE_WATCH_USERFAULT);
			assert_int_equal(rc, -EINVAL);
			munmap(memory, SIZE);
			continue;
		}
		write_page(memory, 3);
		assert_int_equal(bits(watch, memory, RESET), BIT(3));
		write_page(memory, 3);
		write_page(memory, 4);
		assert_int_equal(bits(watch, memory, RESET), BIT(3) | BIT(4));
		sp_write_watch_close(watch);
		munmap(memory, SIZE);
	}
}

static void sealed_memory_is_watched(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch;

	if (syscall(SYS_mseal, memory, SIZE, 0) < 0)
		skip_because("no mseal(2)");
	if (backend_of(state) == SP_WRITE_WATCH_MPROTECT) {
		assert_int_equal(sp_write_watch_open(&watch, all(memory), backend_of(state)),
		                 -EPERM);
		return;
	}
	watch = open_watch(state, memory, PAGES);
	write_page(memory, 3);
	assert_int_equal(bits(watch, memory, RESET), BIT(3));
	sp_write_watch_close(watch);
}

static void wrong_arguments_are_refused(void **state)
{
	enum sp_write_watch_backend backend = backend_of(state);
	char *memory = map_pages(PAGES + 1), *address;
	struct sp_write_watch *watch;
	struct sp_span left = {memory, memory + 1}, range;

	assert_int_equal(sp_write_watch_open(&watch, left, backend), -EINVAL);
	assert_int_equal(sp_write_watch_open(&watch, pages_of(memory, 0, 0), backend), -EINVAL);
	assert_int_equal(
	        sp_write_watch_open(&watch, (struct sp_span){memory + SIZE, memory}, backend),
	        -EINVAL);
	assert_int_equal(
	        sp_write_watch_open_mirrored(&watch, (char *[]){memory, memory}, 2, SIZE, backend),
	        -EINVAL);
	munmap(memory + SIZE, SP_PAGE_SIZE);
	assert_int_equal(sp_write_watch_open(&watch, pages_of(memory, 0, PAGES + 1), backend),
	                 -ENOMEM);
	watch = open_watch(state, memory, PAGES);
	assert_int_equal(sp_write_watch_count(watch, left, 0), -EINVAL);
	assert_int_equal(sp_write_watch_count(watch, all(memory), 2), -EINVAL);
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 1, PAGES), 0), -EINVAL);
	assert_int_equal(sp_write_watch_reset(watch, left), -EINVAL);
	left = all(memory);
	assert_int_equal(sp_write_watch_ranges(watch, &left, 0, &range, 0), -EINVAL);
	assert_int_equal(sp_write_watch_addresses(watch, &left, 0, &address, 0), -EINVAL);
	left.end = left.start;
	assert_int_equal(sp_write_watch_ranges(watch, &left, 0, &range, 1), 0);
	assert_int_equal(sp_write_watch_count(watch, left, RESET), 0);
	assert_int_equal(sp_write_watch_reset(watch, left), 0);
	sp_write_watch_close(watch);
	sp_write_watch_close(NULL);
	munmap(memory, SIZE);
}

static void a_closed_watch_leaves_ordinary_memory(void **state)
{
	char *memory = map_pages(PAGES);
	sp_cleanup_close int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	sp_write_watch_close(open_watch(state, memory, PAGES));
	write_page(memory, 1);
	assert_int_equal(read(zero, memory, SIZE), SIZE);
	munmap(memory, SIZE);
}

/* --- with threads that write --- */

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
	sp_write_watch_close(watch);
	munmap(memory, MANY * SP_PAGE_SIZE);
}

/* With mprotect(2), every other page writable takes more mappings than a process may have. */
static void very_many_scattered_writes_are_all_reported(void **state)
{
	size_t pages = backend_of(state) == SP_WRITE_WATCH_MPROTECT ? 140000 : 4000;
	size_t size = pages * SP_PAGE_SIZE;
	char *memory = map_memory(size, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	struct sp_write_watch *watch;
	ssize_t count;

	madvise(memory, size, MADV_NOHUGEPAGE);
	watch = open_watch(state, memory, pages);
	for (size_t i = 0; i < pages; i += 2)
		write_page(memory, i);
	count = sp_write_watch_count(watch, pages_of(memory, 0, pages), RESET);
	if (backend_of(state) == SP_WRITE_WATCH_MPROTECT)
		assert_in_range(count, pages / 2, pages);
	else
		assert_int_equal(count, pages / 2);
	write_page(memory, 1);
	assert_int_equal(sp_write_watch_count(watch, pages_of(memory, 0, pages), 0), 1);
	sp_write_watch_close(watch);
	munmap(memory, size);
}

/* --- each test with each backend --- */

static const struct CMUnitTest contract[] = {
        cmocka_unit_test(every_form_of_result_tells_the_same),
        cmocka_unit_test(a_reset_forgets_what_was_reported),
        cmocka_unit_test(nothing_is_lost_or_told_twice_for_want_of_room),
        cmocka_unit_test(reading_is_not_writing),
        cmocka_unit_test(a_page_that_never_existed_is_written_by_its_first_write),
        cmocka_unit_test(writes_by_the_kernel_count_or_fail),
        cmocka_unit_test(a_discarded_page_counts_until_the_reset),
        cmocka_unit_test(shared_memory_is_watched_on_after_a_hole_was_punched),
        cmocka_unit_test(memory_mapped_anew_counts_and_is_watched),
        cmocka_unit_test(moved_memory_is_ordinary_memory),
        cmocka_unit_test(watches_do_not_disturb_each_other),
        cmocka_unit_test(memory_is_watched_once),
        cmocka_unit_test(a_write_through_any_mirror_counts),
        cmocka_unit_test(steps_of_merging_do_not_show),
        cmocka_unit_test(a_child_of_fork_has_ordinary_memory),
        cmocka_unit_test(without_privileges),
        cmocka_unit_test(hugetlb_memory_is_reported_in_its_pages),
        cmocka_unit_test(a_write_in_a_transparent_huge_page_counts),
        cmocka_unit_test(shared_and_file_mappings_are_watched),
        cmocka_unit_test(sealed_memory_is_watched),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_closed_watch_leaves_ordinary_memory),
        cmocka_unit_test(no_write_is_lost_between_two_resets),
        cmocka_unit_test(watches_open_and_close_while_threads_write),
        cmocka_unit_test(two_threads_may_take_from_one_watch),
        cmocka_unit_test(very_many_scattered_writes_are_all_reported),
};
#define TESTS (sizeof(contract) / sizeof(*contract))

static const enum sp_write_watch_backend backends[] = {
        SP_WRITE_WATCH_SCAN,
        SP_WRITE_WATCH_USERFAULT,
        SP_WRITE_WATCH_SOFT_DIRTY,
        SP_WRITE_WATCH_MPROTECT,
};
static const char *const labels[] = {"scan", "userfault", "soft_dirty", "mprotect"};
#define BACKENDS (sizeof(backends) / sizeof(*backends))

/* AUTO takes the first backend that works; one that does not says so. */
static void the_first_backend_that_works_is_chosen(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch;
	unsigned guarantees = 0;
	size_t i = 0;

	while (sp_write_watch_probe(backends[i], &guarantees) == -EOPNOTSUPP)
		i++;
	assert_int_equal(sp_write_watch_open(&watch, all(memory), SP_WRITE_WATCH_AUTO), 0);
	assert_int_equal(sp_write_watch_backend(watch), backends[i]);
	assert_int_equal(sp_write_watch_guarantees(watch), guarantees);
	sp_write_watch_close(watch);
	assert_int_equal(sp_write_watch_open(&watch, all(memory), 99), -EOPNOTSUPP);
	munmap(memory, SIZE);
	assert_string_equal(sp_write_watch_backend_name(SP_WRITE_WATCH_SCAN), "scan");
	assert_string_equal(sp_write_watch_backend_name(99), "unknown");
}

/* cmocka has put its own handler in the place of that of the mprotect backend. */
static struct sigaction fault_handler;

static void run_trial(void **state)
{
	sigaction(SIGSEGV, &fault_handler, NULL);
	((const struct trial *)*state)->test(state);
}

int main(void)
{
	static struct CMUnitTest tests[TESTS * BACKENDS + 1];
	static struct trial trials[TESTS * BACKENDS];
	size_t count = 0;

	for (size_t k = 0; k < BACKENDS; k++) {
		if (sp_write_watch_probe(backends[k], NULL) == -EOPNOTSUPP)
			continue;
		for (size_t i = 0; i < TESTS; i++, count++) {
			struct trial *trial = &trials[count];
			trial->backend = backends[k];
			trial->test = contract[i].test_func;
			snprintf(trial->name, sizeof(trial->name), "%s_%s", labels[k],
			         contract[i].name);
			tests[count] = (struct CMUnitTest){
			        .name = trial->name,
			        .test_func = run_trial,
			        .initial_state = trial,
			};
		}
	}
	sigaction(SIGSEGV, NULL, &fault_handler);
	tests[count++] =
	        (struct CMUnitTest)cmocka_unit_test(the_first_backend_that_works_is_chosen);
	return _cmocka_run_group_tests("write watch", tests, count, NULL, NULL);
}
