/* eventfd, timerfd, signalfd and inotify: what is saved comes back. */
#include "unit/round_trip.h"
#include "unit/skip.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static uint64_t read_number(int fd)
{
	uint64_t number = 0;

	assert_int_equal(read(fd, &number, sizeof(number)), sizeof(number));
	return number;
}

/* --- eventfd --- */

static void make_eventfds(void)
{
	eventfd(0, 0);
	uint64_t count = UINT64_MAX - 2;
	int large = eventfd(0, EFD_NONBLOCK);

	if (write(large, &count, sizeof(count)) < 0)
		abort();
	eventfd(3, EFD_SEMAPHORE);
}

static void eventfd_keeps_count_mode_and_flags(void **state)
{
	struct round_trip trip;

	round_trip_save(&trip, make_eventfds, NULL);
	round_trip_restore(&trip);
	assert_int_equal(poll(&(struct pollfd){round_trip_fd(&trip, 0), POLLIN, 0}, 1, 0), 0);
	assert_false(fcntl(round_trip_fd(&trip, 0), F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(round_trip_fd(&trip, 1), F_GETFL) & O_NONBLOCK);
	assert_true(read_number(round_trip_fd(&trip, 1)) == UINT64_MAX - 2);
	assert_int_equal(read_number(round_trip_fd(&trip, 2)), 1);
	assert_int_equal(read_number(round_trip_fd(&trip, 2)), 1);
	round_trip_end(&trip);
}

/* --- timerfd --- */

static void arm(clockid_t clock, int flags, time_t seconds, time_t interval)
{
	struct itimerspec setting = {.it_value.tv_sec = seconds, .it_interval.tv_sec = interval};
	struct timespec now;
	int fd = timerfd_create(clock, TFD_NONBLOCK);

	clock_gettime(clock, &now);
	if (flags & TFD_TIMER_ABSTIME)
		setting.it_value.tv_sec += now.tv_sec;
	if (timerfd_settime(fd, flags, &setting, NULL) < 0)
		abort();
}

static void expire(int fd, long ns, long interval_ns)
{
	struct itimerspec setting = {.it_value.tv_nsec = ns, .it_interval.tv_nsec = interval_ns};

	if (timerfd_settime(fd, 0, &setting, NULL) < 0 ||
	    poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1) != 1)
		abort();
}

static void make_timers(void)
{
	arm(CLOCK_MONOTONIC, 0, 1000, 7);                              /* 0 */
	arm(CLOCK_REALTIME, TFD_TIMER_ABSTIME, 2000, 0);               /* 1 */
	arm(CLOCK_BOOTTIME, TFD_TIMER_ABSTIME, 3000, 0);               /* 2 */
	timerfd_create(CLOCK_MONOTONIC, 0);                            /* 3: never armed */
	expire(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), 1, 0);   /* 4: one tick */
	expire(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), 1, 100); /* 5: many ticks */
}

static void assert_left(int fd, time_t seconds, time_t interval)
{
	struct itimerspec left;

	assert_int_equal(timerfd_gettime(fd, &left), 0);
	assert_true(left.it_value.tv_sec <= seconds && left.it_value.tv_sec > seconds - 100);
	assert_int_equal(left.it_interval.tv_sec, interval);
}

static void timerfd_goes_on_with_the_time_that_was_left(void **state)
{
	struct itimerspec left;
	struct round_trip trip;

	round_trip_save(&trip, make_timers, NULL);
	round_trip_restore(&trip);
	round_trip_settle(&trip, &sp_kind_timerfd);
	assert_left(round_trip_fd(&trip, 0), 1000, 7);
	assert_left(round_trip_fd(&trip, 1), 2000, 0);
	assert_left(round_trip_fd(&trip, 2), 3000, 0);
	assert_int_equal(timerfd_gettime(round_trip_fd(&trip, 3), &left), 0);
	assert_int_equal(left.it_value.tv_sec + left.it_value.tv_nsec, 0);
	round_trip_end(&trip);
}

static void timerfd_keeps_unread_expirations(void **state)
{
	uint64_t ticks;
	struct round_trip trip;

	round_trip_save(&trip, make_timers, NULL);
	round_trip_restore(&trip);
	round_trip_settle(&trip, &sp_kind_timerfd);
	assert_int_equal(read_number(round_trip_fd(&trip, 4)), 1);
	assert_int_equal(read(round_trip_fd(&trip, 4), &ticks, sizeof(ticks)), -1);
	assert_true(read_number(round_trip_fd(&trip, 5)) > 1);
	assert_int_equal(poll(&(struct pollfd){round_trip_fd(&trip, 5), POLLIN, 0}, 1, 10000), 1);
	round_trip_end(&trip);
}

/* To what it shows. */
static int set_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return clock_settime(CLOCK_REALTIME, &now);
}

static void make_canceled_timer(void)
{
	arm(CLOCK_REALTIME, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, 1000, 0);
	set_clock();
}

static void timerfd_refuses_a_cancellation_that_was_not_read(void **state)
{
	if (set_clock())
		skip_because("the clock may not be set here");
	assert_refused(make_canceled_timer, "the clock was set");
}

/* --- signalfd --- */

static void make_signalfd(void)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGRTMAX);
	signalfd(-1, &mask, SFD_NONBLOCK);
}

static void signalfd_keeps_its_mask(void **state)
{
	struct signalfd_siginfo info;
	struct round_trip trip;
	sigset_t mask;
	int fd;

	round_trip_save(&trip, make_signalfd, NULL);
	round_trip_restore(&trip);
	fd = round_trip_fd(&trip, 0);
	sigfillset(&mask);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	raise(SIGUSR2);
	assert_int_equal(read(fd, &info, sizeof(info)), -1);
	raise(SIGRTMAX);
	assert_int_equal(read(fd, &info, sizeof(info)), sizeof(info));
	assert_int_equal(info.ssi_signo, SIGRTMAX);
	raise(SIGUSR1);
	assert_int_equal(read(fd, &info, sizeof(info)), sizeof(info));
	signal(SIGUSR2, SIG_IGN);
	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	signal(SIGUSR2, SIG_DFL);
	round_trip_end(&trip);
}

/* --- inotify --- */

static struct scratch watched;

static void make_watches(void)
{
	char file[300];
	int fd = inotify_init1(IN_NONBLOCK);
	int number;

	snprintf(file, sizeof(file), "%s/file", watched.path);
	for (int i = 0; i < 5; i++) { /* numbers are not given twice */
		number = inotify_add_watch(fd, "/", IN_CREATE);
		inotify_rm_watch(fd, number);
	}
	inotify_add_watch(fd, file, IN_ATTRIB);                      /* 6 */
	inotify_add_watch(fd, watched.path, IN_CREATE | IN_ONLYDIR); /* 7 */
	while (read(fd, file, sizeof(file)) > 0)
		;
}

static void make_watches_with_event(void)
{
	char file[300];

	make_watches();
	snprintf(file, sizeof(file), "%s/file", watched.path);
	if (chmod(file, 0600) < 0)
		abort();
}

static void make_watched_files(void)
{
	watched = scratch_make();
	close(openat(watched.dirfd, "file", O_CREAT | O_WRONLY, 0600));
}

static void assert_event(int fd, int watch, uint32_t mask)
{
	union {
		struct inotify_event event;
		char bytes[512];
	} buffer;

	assert_true(read(fd, &buffer, sizeof(buffer)) >= (ssize_t)sizeof(buffer.event));
	assert_int_equal(buffer.event.wd, watch);
	assert_int_equal(buffer.event.mask, mask);
}

static void assert_no_event(int fd)
{
	int queued;

	assert_int_equal(ioctl(fd, FIONREAD, &queued), 0);
	assert_int_equal(queued, 0);
}

static void inotify_watches_keep_their_numbers_and_masks(void **state)
{
	struct round_trip trip;
	int fd;

	make_watched_files();
	round_trip_save(&trip, make_watches, NULL);
	round_trip_restore(&trip);
	fd = round_trip_fd(&trip, 0);
	assert_no_event(fd);
	assert_int_equal(fchmodat(watched.dirfd, "file", 0640, 0), 0);
	assert_event(fd, 6, IN_ATTRIB);
	close(openat(watched.dirfd, "new", O_CREAT | O_WRONLY, 0600));
	assert_event(fd, 7, IN_CREATE);
	round_trip_end(&trip);
	scratch_remove(&watched);
}

static void inotify_tells_of_events_that_were_lost(void **state)
{
	struct round_trip trip;
	int fd;

	make_watched_files();
	round_trip_save(&trip, make_watches_with_event, NULL);
	round_trip_restore(&trip);
	fd = round_trip_fd(&trip, 0);
	assert_event(fd, -1, IN_Q_OVERFLOW);
	assert_no_event(fd);
	assert_int_equal(fchmodat(watched.dirfd, "file", 0640, 0), 0);
	assert_event(fd, 6, IN_ATTRIB);
	round_trip_end(&trip);
	scratch_remove(&watched);
}

static void watch_deleted(void)
{
	char path[300];
	int fd = inotify_init1(0);

	snprintf(path, sizeof(path), "%s/file", watched.path);
	inotify_add_watch(fd, path, IN_ATTRIB);
	if (unlink(path) < 0)
		abort();
}

/* A deleted file stays, and with it the watch, while somebody has it open. */
static void inotify_refuses_what_has_no_name(void **state)
{
	int held;

	make_watched_files();
	held = openat(watched.dirfd, "file", O_RDONLY);
	assert_refused(watch_deleted, "watch 1: no path leads to what it watches");
	close(held);
	scratch_remove(&watched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(eventfd_keeps_count_mode_and_flags),
	        cmocka_unit_test(timerfd_goes_on_with_the_time_that_was_left),
	        cmocka_unit_test(timerfd_keeps_unread_expirations),
	        cmocka_unit_test(timerfd_refuses_a_cancellation_that_was_not_read),
	        cmocka_unit_test(signalfd_keeps_its_mask),
	        cmocka_unit_test(inotify_watches_keep_their_numbers_and_masks),
	        cmocka_unit_test(inotify_tells_of_events_that_were_lost),
	        cmocka_unit_test(inotify_refuses_what_has_no_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
