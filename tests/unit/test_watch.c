/*
 * The sampler of `sealpoint watch`: a child writes known pages in step with the test, and what the
 * sampler counts is compared page by page. No case depends on time.
 */
#include "base/cleanup.h"
#include "base/interrupt.h"
#include "engine/engine.h"
#include "engine/watch.h"
#include "proc/file.h"
#include "unit/remote_target.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define PAGES 200
#define INTERVAL_NS 10000000 /* the shortest; writes are made between two calls */

/* --- a child that does as it is told --- */

enum order { WRITE, READ, MAP, UNMAP, AWAY, BACK, EXEC };

struct command {
	enum order order;
	size_t first, count; /* pages */
};

static int commands[2], answers[2];
static char *memory, *file_memory; /* at the same addresses in the child */
static pid_t child;

/* With room around it, so that it does not become one with a neighbour. */
static char *map_pages(int fd)
{
	char *room = mmap(NULL, (PAGES + 2) * SP_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
	                  -1, 0);
	char *start = mmap(room + SP_PAGE_SIZE, PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	assert_ptr_not_equal(start, MAP_FAILED);
	madvise(start, PAGES * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	return start;
}

static void touch(char *start, const struct command *command)
{
	for (size_t page = command->first; page < command->first + command->count; page++) {
		volatile char *at = start + page * SP_PAGE_SIZE;

		if (command->order == WRITE)
			*at = 1;
		else
			(void)*at;
	}
}

/* Moves the last pages to another place, or back, where they become one with the others again. */
static void move_end(bool back)
{
	static char *away;
	size_t size = 50 * SP_PAGE_SIZE;
	char *at = memory + (PAGES - 50) * SP_PAGE_SIZE, *from = back ? away : at, *to = at;

	if (!back)
		to = away = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
		_exit(94);
}

static void obey(const struct command *command)
{
	size_t size = PAGES * SP_PAGE_SIZE;

	switch (command->order) {
	case WRITE:
	case READ:
		touch(memory, command);
		touch(file_memory, command);
		break;
	case MAP:
		if (mmap(memory, size, PROT_READ | PROT_WRITE,
		         MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			_exit(96);
		break;
	case UNMAP:
		munmap(memory, size);
		break;
	case AWAY:
	case BACK:
		move_end(command->order == BACK);
		break;
	case EXEC:
		execl("/bin/sleep", "sleep", "100", NULL);
		_exit(97);
	}
}

static void child_body(int ready)
{
	struct command command;

	report(ready);
	while (read(commands[0], &command, sizeof(command)) == sizeof(command)) {
		obey(&command);
		if (write(answers[1], "", 1) != 1)
			_exit(95);
	}
}

static void tell(enum order order, size_t first, size_t count)
{
	struct command command = {order, first, count};
	char byte;

	assert_int_equal(write(commands[1], &command, sizeof(command)), sizeof(command));
	/* An exec closes the pipe. */
	assert_int_equal(read(answers[0], &byte, 1), order == EXEC ? 0 : 1);
}

static int start_child(void **state)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, PAGES * SP_PAGE_SIZE), 0);
	assert_int_equal(pipe2(commands, O_CLOEXEC), 0);
	assert_int_equal(pipe2(answers, O_CLOEXEC), 0);
	memory = map_pages(-1);
	file_memory = map_pages(fd);
	close(fd);
	child = start(child_body);
	close(answers[1]);
	return 0;
}

static int end_child(void **state)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(commands[0]);
	close(commands[1]);
	close(answers[0]);
	munmap(memory - SP_PAGE_SIZE, (PAGES + 2) * SP_PAGE_SIZE);
	munmap(file_memory - SP_PAGE_SIZE, (PAGES + 2) * SP_PAGE_SIZE);
	return 0;
}

/* --- sampling --- */

static void open_watch(struct sp_watch *watch)
{
	struct sp_error err = {0};

	if (sp_watch_open(watch, child, &err))
		fail_msg("%s", err.message);
}

/* Of the child. */
static const struct sp_sample *sample_of(const struct sp_watch *watch)
{
	return &sp_watch_sampler(watch, 0)->sample;
}

static const struct sp_sample *next(struct sp_watch *watch)
{
	struct sp_error err = {0};

	if (sp_watch_next(watch, INTERVAL_NS, &err) != 1)
		fail_msg("%s", err.message);
	return sample_of(watch);
}

/* The mapping at an address: there has to be one. */
static const struct sp_sample_mapping *find(const struct sp_sample *sample, const char *start)
{
	uint64_t address = (uintptr_t)start;
	const struct sp_sample_mapping *mapping =
	        sp_array_search(&sample->mappings, &address, sp_range_locate);

	assert_non_null(mapping);
	return mapping;
}

static void expect(const struct sp_sample *sample, uint64_t pages)
{
	assert_int_equal(find(sample, memory)->dirtied, pages);
	assert_int_equal(find(sample, file_memory)->dirtied, pages);
}

static bool is_registered(void)
{
	sp_cleanup_free char *text = NULL;

	assert_int_equal(sp_proc_read(child, "smaps", &text, NULL, NULL), 0);
	return strstr(text, " uw ") || strstr(text, " um ");
}

static void a_page_counts_once_in_each_interval(void **state)
{
	sp_cleanup_watch struct sp_watch watch;

	tell(WRITE, 0, PAGES);
	open_watch(&watch);
	expect(next(&watch), 0);
	tell(WRITE, 10, 7);
	tell(WRITE, 12, 20);
	expect(next(&watch), 22);
	expect(next(&watch), 0);
	tell(WRITE, 12, 2);
	expect(next(&watch), 2);
	assert_false(sample_of(&watch)->held);
}

static void only_pages_with_contents_of_their_own_count(void **state)
{
	sp_cleanup_watch struct sp_watch watch;

	open_watch(&watch);
	tell(READ, 0, 50);
	expect(next(&watch), 0);
	tell(WRITE, 40, 20);
	expect(next(&watch), 20);
	tell(READ, 0, PAGES);
	expect(next(&watch), 0);
}

static void cells_tell_where(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	const struct sp_sample_mapping *mapping;
	uint64_t next_start;

	open_watch(&watch);
	tell(WRITE, 90, 30);
	mapping = find(next(&watch), memory);
	next_start = mapping->range.start;
	assert_int_equal(sp_sample_cell_count(mapping->range), SP_SAMPLE_CELLS);
	for (unsigned i = 0; i < SP_SAMPLE_CELLS; i++) {
		struct sp_range cell = sp_sample_cell(mapping->range, i);
		unsigned expected = 0;

		assert_int_equal(cell.start, next_start);
		next_start = cell.end;
		for (; cell.start < cell.end; cell.start += SP_PAGE_SIZE) {
			uint64_t page = (cell.start - (uintptr_t)memory) / SP_PAGE_SIZE;

			expected += page >= 90 && page < 120;
		}
		assert_int_equal(mapping->cells[i], expected);
	}
	assert_int_equal(next_start, mapping->range.end);
}

static void mappings_come_and_go(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	uint64_t address = (uintptr_t)memory;

	tell(WRITE, 0, PAGES);
	open_watch(&watch);
	tell(UNMAP, 0, 0);
	next(&watch);
	assert_int_equal(sample_of(&watch)->vanished, 1);
	assert_null(sp_array_search(&sample_of(&watch)->mappings, &address, sp_range_locate));
	tell(MAP, 0, 0);
	tell(WRITE, 3, 4);
	expect(next(&watch), 4);
	assert_int_equal(sample_of(&watch)->appeared, 1);
}

/* maps looks the same, but the new mapping is not in the session. */
static void a_mapping_that_was_replaced_by_one_alike_is_seen(void **state)
{
	sp_cleanup_watch struct sp_watch watch;

	tell(WRITE, 0, PAGES);
	open_watch(&watch);
	tell(MAP, 0, 0);
	tell(WRITE, 5, 6);
	expect(next(&watch), 6);
	expect(next(&watch), 0);
	tell(WRITE, 5, 1);
	expect(next(&watch), 1);
}

/* The kernel ends the registration of both parts, and leaves the protection of their pages. */
static void writes_next_to_memory_that_was_moved_are_seen(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	const struct sp_sample_mapping *mapping;
	uint64_t written = 0;

	tell(WRITE, 0, PAGES);
	tell(AWAY, 0, 0);
	open_watch(&watch);
	tell(BACK, 0, 0);
	tell(WRITE, 10, 20);
	mapping = find(next(&watch), memory);
	for (unsigned i = 0; i < SP_SAMPLE_CELLS; i++)
		if (sp_sample_cell(mapping->range, i).end <= (uintptr_t)memory + 40 * SP_PAGE_SIZE)
			written += mapping->cells[i];
	assert_true(written >= 20);
}

static void longer_rounds_hold_more(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	struct sp_error err = {0};
	const struct sp_sample *sample = &watch.sum;

	open_watch(&watch);
	next(&watch);
	tell(WRITE, 0, 30);
	assert_int_equal(sp_watch_next(&watch, 30 * INTERVAL_NS, &err), 1);
	assert_in_range(sample->round_count, 1, SP_SAMPLE_ROUNDS);
	assert_int_equal(sample->rounds[sample->round_count - 1].pages, sample->dirtied);
	for (unsigned i = 0; i < sample->round_count; i++) {
		assert_true(sample->rounds[i].pages >= 60); /* in both mappings */
		assert_true(i == 0 || sample->rounds[i].pages >= sample->rounds[i - 1].pages);
		assert_true(i == 0 ||
		            sample->rounds[i].length_ns > sample->rounds[i - 1].length_ns);
	}
}

static void closing_leaves_nothing_behind(void **state)
{
	struct sp_watch watch;

	open_watch(&watch);
	assert_true(is_registered());
	sp_watch_close(&watch);
	assert_false(is_registered());
	tell(WRITE, 0, PAGES);
}

/* --- a session that somebody keeps --- */

static uint64_t generation(void)
{
	sp_cleanup_array struct sp_array statuses = SP_ARRAY_OF(struct sp_tracking_status);
	const struct sp_tracking_status *status;
	struct sp_error err = {0};

	assert_int_equal(sp_tracking_read_status(child, &statuses, &err), 0);
	assert_int_equal(statuses.count, 1);
	status = sp_array_at(&statuses, 0);
	assert_true(status->tracked);
	return status->generation;
}

static void from_a_held_session_nothing_is_taken(void **state)
{
	struct sp_watch watch;
	struct sp_error err = {0};
	uint64_t before;

	tell(WRITE, 0, PAGES);
	if (sp_tracking_start(child, SP_SESSION_SCAN, NULL, &err))
		fail_msg("%s", err.message);
	before = generation();
	tell(WRITE, 0, 4);
	open_watch(&watch);
	assert_true(sample_of(&watch)->held);
	tell(WRITE, 2, 5);
	expect(next(&watch), 3);
	assert_int_equal(find(sample_of(&watch), memory)->written, 7);
	tell(WRITE, 0, 7);
	expect(next(&watch), 0);
	assert_int_equal(find(sample_of(&watch), memory)->written, 7);
	assert_int_equal(watch.sum.round_count, 0);
	assert_int_equal(sample_of(&watch)->events, 0);
	sp_watch_close(&watch);
	assert_int_equal(generation(), before);
	assert_true(is_registered());
	assert_int_equal(sp_tracking_stop(child, NULL, &err), 0);
}

static void the_end_of_a_held_session_is_told(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	struct sp_error err = {0};

	tell(WRITE, 0, PAGES);
	assert_int_equal(sp_tracking_start(child, SP_SESSION_SCAN, NULL, &err), 0);
	open_watch(&watch);
	assert_int_equal(sp_tracking_stop(child, NULL, &err), 0);
	assert_false(is_registered());
	assert_int_equal(next(&watch)->events, SP_SAMPLE_ENDED);
	assert_false(sample_of(&watch)->held);
	tell(WRITE, 0, 3);
	expect(next(&watch), 3);
}

/* --- the process --- */

static void another_program_is_watched_from_its_beginning(void **state)
{
	sp_cleanup_watch struct sp_watch watch;

	open_watch(&watch);
	tell(EXEC, 0, 0);
	assert_int_equal(next(&watch)->events, SP_SAMPLE_EXEC);
	assert_true(is_registered());
	assert_int_equal(next(&watch)->events, 0);
}

static void the_end_of_the_process_is_told(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	struct sp_error err = {0};

	open_watch(&watch);
	kill(child, SIGKILL);
	assert_int_equal(sp_watch_next(&watch, 3600 * SP_NS_PER_S, &err), 0);
	assert_false(sp_failed(&err));
}

static void a_signal_ends_the_wait(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	struct sp_error err = {0};

	open_watch(&watch);
	sp_interrupt_watch();
	raise(SIGINT);
	assert_int_equal(sp_watch_next(&watch, 3600 * SP_NS_PER_S, &err), -EINTR);
	sp_interrupt_unwatch();
}

static void a_process_that_is_not_there_is_refused(void **state)
{
	sp_cleanup_watch struct sp_watch watch;
	struct sp_error err = {0};

	assert_int_equal(sp_watch_open(&watch, 999999999, &err), -ESRCH);
	assert_non_null(strstr(err.message, "999999999"));
}

#define WITH_CHILD(test) cmocka_unit_test_setup_teardown(test, start_child, end_child)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        WITH_CHILD(a_page_counts_once_in_each_interval),
	        WITH_CHILD(only_pages_with_contents_of_their_own_count),
	        WITH_CHILD(cells_tell_where),
	        WITH_CHILD(mappings_come_and_go),
	        WITH_CHILD(a_mapping_that_was_replaced_by_one_alike_is_seen),
	        WITH_CHILD(writes_next_to_memory_that_was_moved_are_seen),
	        WITH_CHILD(longer_rounds_hold_more),
	        WITH_CHILD(closing_leaves_nothing_behind),
	        WITH_CHILD(from_a_held_session_nothing_is_taken),
	        WITH_CHILD(the_end_of_a_held_session_is_told),
	        WITH_CHILD(another_program_is_watched_from_its_beginning),
	        WITH_CHILD(the_end_of_the_process_is_told),
	        WITH_CHILD(a_signal_ends_the_wait),
	        cmocka_unit_test(a_process_that_is_not_there_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
