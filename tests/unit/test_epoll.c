/*
 * epoll: an interest list is rebuilt by another process that holds the files at the same numbers;
 * an item whose file only another program has is refused.
 */
#include "unit/remote_target.h"
#include "unit/round_trip.h"
#include "unit/skip.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/prctl.h>

static void need(bool holds)
{
	if (!holds)
		abort();
}

static void add(int set, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};

	need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* --- a process to rebuild in --- */

/* Places and settles all files in a child of ours; we hold the same open files. */
static void settle_in_child(struct round_trip *trip)
{
	struct sp_file_builder *builder = &trip->copy.builder;
	pid_t pid = trip->target.process.pid;
	struct sp_process host;
	struct sp_remote remote;
	pid_t child = start(sleeper);

	take(&host, &remote, child);
	if (sp_files_place(builder, &remote, pid, &trip->err) < 0 ||
	    sp_files_settle(builder, &remote, pid, &trip->err) < 0 ||
	    sp_remote_close(&remote, &trip->err) < 0)
		fail_msg("%s", trip->err.message);
	sp_process_release(&host, SP_RELEASE_KILL);
	sp_process_forget(&host);
	waitpid(child, NULL, 0);
}

static void rebuild(struct round_trip *trip, void (*set_up)(void))
{
	round_trip_save(trip, set_up, NULL);
	round_trip_restore(trip);
	settle_in_child(trip);
}

static void raise_event(int fd)
{
	assert_int_equal(eventfd_write(fd, 1), 0);
}

static void assert_only_event(int set, uint64_t data, uint32_t mask)
{
	struct epoll_event events[4];

	assert_int_equal(epoll_wait(set, events, 4, 0), 1);
	assert_true(events[0].data.u64 == data);
	assert_int_equal(events[0].events, mask);
}

static void assert_no_event(int set)
{
	struct epoll_event event;

	assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
}

/* --- lists --- */

/* 0 watches 1 and the set 2, which watches 3; 4 was removed again. */
static void make_nested(void)
{
	need(epoll_create1(0) == 0 && eventfd(0, 0) == 1);
	need(epoll_create1(EPOLL_CLOEXEC) == 2 && eventfd(0, 0) == 3 && eventfd(0, 0) == 4);
	add(0, 1, EPOLLIN | EPOLLET, UINT64_MAX);
	add(0, 2, EPOLLIN, 7);
	add(2, 3, EPOLLIN, 8);
	add(0, 4, EPOLLIN, 9);
	need(epoll_ctl(0, EPOLL_CTL_DEL, 4, NULL) == 0);
}

static void items_keep_their_events_and_data(void **state)
{
	struct round_trip trip;

	rebuild(&trip, make_nested);
	assert_no_event(round_trip_fd(&trip, 0));
	raise_event(round_trip_fd(&trip, 4));
	assert_no_event(round_trip_fd(&trip, 0));
	raise_event(round_trip_fd(&trip, 1));
	assert_only_event(round_trip_fd(&trip, 0), UINT64_MAX, EPOLLIN);
	assert_no_event(round_trip_fd(&trip, 0)); /* edge-triggered */
	raise_event(round_trip_fd(&trip, 3));
	assert_only_event(round_trip_fd(&trip, 0), 7, EPOLLIN);
	assert_only_event(round_trip_fd(&trip, 2), 8, EPOLLIN);
	round_trip_end(&trip);
}

/*
 * One-shot items: 1 has fired, 2 has not; 3 is one end of a pair and has fired. 5 is ready, as
 * before.
 */
static void make_one_shots(void)
{
	struct epoll_event event;
	int pair[2];

	need(epoll_create1(0) == 0 && eventfd(1, 0) == 1 && eventfd(0, 0) == 2);
	need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pair[0] == 3);
	add(0, 1, EPOLLIN | EPOLLONESHOT, 1);
	add(0, 3, EPOLLOUT | EPOLLONESHOT | EPOLLET, 3);
	need(epoll_wait(0, &event, 1, 0) == 1 && epoll_wait(0, &event, 1, 0) == 1);
	add(0, 2, EPOLLIN | EPOLLONESHOT, 2);
	need(eventfd(1, 0) == 5);
	add(0, 5, EPOLLIN | EPOLLET, 5);
}

static void one_shot_item_that_has_fired_stays_silent(void **state)
{
	struct round_trip trip;
	int set;

	rebuild(&trip, make_one_shots);
	set = round_trip_fd(&trip, 0);
	assert_only_event(set, 5, EPOLLIN); /* not lost to the firing of the others */
	assert_no_event(set);
	raise_event(round_trip_fd(&trip, 1));
	assert_int_equal(write(round_trip_fd(&trip, 4), "x", 1), 1);
	assert_int_equal(shutdown(round_trip_fd(&trip, 4), SHUT_RDWR), 0); /* hangs up on 3 */
	assert_no_event(set);
	raise_event(round_trip_fd(&trip, 2));
	assert_only_event(set, 2, EPOLLIN);
	assert_no_event(set);
	round_trip_end(&trip);
}

enum { MANY = 9000 };

static void allow_many_descriptors(void)
{
	struct rlimit limit;

	need(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	need(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void make_many(void)
{
	need(epoll_create1(0) == 0);
	for (int i = 1; i <= MANY; i++) {
		need(eventfd(0, 0) == i);
		add(0, i, EPOLLIN, (uint64_t)i * 3);
	}
}

static void thousands_of_items_come_back(void **state)
{
	struct rlimit limit;
	struct round_trip trip;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max < 2 * MANY + 100)
		skip_because("RLIMIT_NOFILE is too low");
	allow_many_descriptors();
	rebuild(&trip, make_many);
	for (unsigned i = 1; i <= MANY; i += 11) {
		uint64_t count;

		raise_event(round_trip_fd(&trip, i));
		assert_only_event(round_trip_fd(&trip, 0), i * 3, EPOLLIN);
		assert_int_equal(read(round_trip_fd(&trip, i), &count, sizeof(count)), 8);
	}
	round_trip_end(&trip);
}

/* --- items that cannot be added again --- */

static void leave_watched_file_to_a_child(void)
{
	need(epoll_create1(0) == 0 && eventfd(0, 0) == 1);
	add(0, 1, EPOLLIN, 1);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	need(close(1) == 0);
}

/* The child is not saved here. */
static void item_of_a_file_that_only_others_have_is_refused(void **state)
{
	assert_refused(
	        leave_watched_file_to_a_child,
	        "added as descriptor 1 and that only a process outside of the dump keeps open");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(items_keep_their_events_and_data),
	        cmocka_unit_test(one_shot_item_that_has_fired_stays_silent),
	        cmocka_unit_test(thousands_of_items_come_back),
	        cmocka_unit_test(item_of_a_file_that_only_others_have_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
