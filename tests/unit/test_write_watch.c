/*
 * The write watch: the same contract with every backend that this kernel has, as far as its guarantees
 * go (include/sealpoint/write_watch.h). Sorts of memory: test_write_watch_memory.c; threads that write:
 * test_write_watch_threads.c.
 */
#include "unit/write_watch_fixture.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <sys/wait.h>

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
		skip_because("the backend does not promise it");
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
	char *memory, *moved;
	struct sp_write_watch *watch;

	if (backend_of(state) == SP_WRITE_WATCH_MPROTECT)
		skip_because("what mprotect(2) protects stays protected where it is moved to");
	memory = map_pages(PAGES);
	watch = open_watch(state, memory, PAGES);
	moved = mremap(memory + 8 * SP_PAGE_SIZE, SP_PAGE_SIZE, SP_PAGE_SIZE,
	               MREMAP_MAYMOVE | MREMAP_FIXED, map_pages(1));
	assert_ptr_not_equal(moved, MAP_FAILED);
	assert_int_equal(moved[0], 1);
	write_page(moved, 0);
	assert_int_equal(moved[0], 2);
	write_page(memory, 9);
	assert_int_equal(bits(watch, memory, 0) & ~BIT(8), BIT(9));
	munmap(moved, SP_PAGE_SIZE);
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

/* AUTO takes the first backend that works; one that does not says so. */
static void the_first_backend_that_works_is_chosen(void **state)
{
	char *memory = map_pages(PAGES);
	struct sp_write_watch *watch;
	unsigned guarantees = 0;
	size_t i = 0;

	while (sp_write_watch_probe(backends[i].id, &guarantees) == -EOPNOTSUPP)
		i++;
	assert_int_equal(sp_write_watch_open(&watch, all(memory), SP_WRITE_WATCH_AUTO), 0);
	assert_int_equal(sp_write_watch_backend(watch), backends[i].id);
	assert_int_equal(sp_write_watch_guarantees(watch), guarantees);
	sp_write_watch_close(watch);
	assert_int_equal(sp_write_watch_open(&watch, all(memory), 99), -EOPNOTSUPP);
	munmap(memory, SIZE);
	assert_string_equal(sp_write_watch_backend_name(SP_WRITE_WATCH_SCAN), "scan");
	assert_string_equal(sp_write_watch_backend_name(99), "unknown");
}

int main(void)
{
	static const struct CMUnitTest each[] = {
	        cmocka_unit_test(every_form_of_result_tells_the_same),
	        cmocka_unit_test(a_reset_forgets_what_was_reported),
	        cmocka_unit_test(nothing_is_lost_or_told_twice_for_want_of_room),
	        cmocka_unit_test(reading_is_not_writing),
	        cmocka_unit_test(a_page_that_never_existed_is_written_by_its_first_write),
	        cmocka_unit_test(writes_by_the_kernel_count_or_fail),
	        cmocka_unit_test(a_discarded_page_counts_until_the_reset),
	        cmocka_unit_test(memory_mapped_anew_counts_and_is_watched),
	        cmocka_unit_test(moved_memory_is_ordinary_memory),
	        cmocka_unit_test(watches_do_not_disturb_each_other),
	        cmocka_unit_test(memory_is_watched_once),
	        cmocka_unit_test(a_child_of_fork_has_ordinary_memory),
	        cmocka_unit_test(without_privileges),
	        cmocka_unit_test(wrong_arguments_are_refused),
	        cmocka_unit_test(a_closed_watch_leaves_ordinary_memory),
	        cmocka_unit_test(very_many_scattered_writes_are_all_reported),
	};
	const struct CMUnitTest once[] = {
	        cmocka_unit_test(the_first_backend_that_works_is_chosen),
	};

	return run_with_each_backend(each, SP_COUNT_OF(each), once, SP_COUNT_OF(once));
}
