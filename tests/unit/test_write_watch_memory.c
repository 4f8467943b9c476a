/*
 * The write watch on memory of every sort: mirrors of a memfd, larger pages, shared memory and files,
 * sealed mappings. Each test runs once for each backend.
 */
#include "unit/write_watch_fixture.h"

#include "base/cleanup.h"

#include <fcntl.h>

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

static void shared_memory_that_is_only_read_is_refused(void **state)
{
	sp_cleanup_close int fd = memfd_create("read", MFD_CLOEXEC), read_only = -1;
	struct sp_write_watch *watch;
	char path[64], *memory;
	int rc;

	assert_int_equal(ftruncate(fd, SIZE), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	memory = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, read_only, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	if (backend_of(state) == SP_WRITE_WATCH_SOFT_DIRTY)
		skip_because("soft-dirty bits need no write");
	rc = sp_write_watch_open(&watch, all(memory), backend_of(state));
	assert_int_equal(rc, backend_of(state) == SP_WRITE_WATCH_MPROTECT ? -EACCES : -EPERM);
	munmap(memory, SIZE);
	close(read_only);
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

int main(void)
{
	static const struct CMUnitTest each[] = {
	        cmocka_unit_test(a_write_through_any_mirror_counts),
	        cmocka_unit_test(steps_of_merging_do_not_show),
	        cmocka_unit_test(hugetlb_memory_is_reported_in_its_pages),
	        cmocka_unit_test(a_write_in_a_transparent_huge_page_counts),
	        cmocka_unit_test(shared_and_file_mappings_are_watched),
	        cmocka_unit_test(shared_memory_that_is_only_read_is_refused),
	        cmocka_unit_test(sealed_memory_is_watched),
	        cmocka_unit_test(shared_memory_is_watched_on_after_a_hole_was_punched),
	};

	return run_with_each_backend(each, SP_COUNT_OF(each), NULL, 0);
}
