/*
 * Timers: relative and absolute, one-shot and periodic, disarmed, and with expirations that nobody
 * has read. Only what holds however long the dump and the restore take is checked.
 */
#include "subject.h"

#include <poll.h>
#include <stdint.h>
#include <sys/timerfd.h>

static int make(clockid_t clock, int flags, time_t seconds, time_t interval)
{
	struct itimerspec setting = {.it_value.tv_sec = seconds, .it_interval.tv_sec = interval};
	int fd = timerfd_create(clock, TFD_NONBLOCK);
	struct timespec now;

	clock_gettime(clock, &now);
	if (flags & TFD_TIMER_ABSTIME)
		setting.it_value.tv_sec += now.tv_sec;
	subject_need(fd >= 0 && timerfd_settime(fd, flags, &setting, NULL) == 0, "timerfd");
	return fd;
}

static void check_left(int fd, time_t seconds, time_t interval, const char *what)
{
	struct itimerspec left = {0};

	subject_check(timerfd_gettime(fd, &left) == 0, "%s: timerfd_gettime", what);
	subject_check(left.it_value.tv_sec <= seconds && left.it_value.tv_sec > seconds / 2,
	              "%s: %ld of %ld s left", what, (long)left.it_value.tv_sec, (long)seconds);
	subject_check(left.it_interval.tv_sec == interval, "%s: interval is %ld", what,
	              (long)left.it_interval.tv_sec);
}

static uint64_t wait_for_ticks(int fd)
{
	uint64_t ticks = 0;

	if (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20000) == 1)
		subject_check(read(fd, &ticks, sizeof(ticks)) == sizeof(ticks), "read: %s",
		              strerror(errno));
	return ticks;
}

int main(void)
{
	const struct itimerspec soon = {.it_value.tv_nsec = 1, .it_interval.tv_nsec = 1000000};
	int relative = make(CLOCK_MONOTONIC, 0, 20000, 7);
	int wall = make(CLOCK_REALTIME, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, 30000, 0);
	int absolute = make(CLOCK_BOOTTIME, TFD_TIMER_ABSTIME, 40000, 0);
	int periodic = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	int disarmed = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct itimerspec left;
	uint64_t before;

	subject_need(periodic >= 0 && timerfd_settime(periodic, 0, &soon, NULL) == 0, "timerfd");
	before = wait_for_ticks(periodic);
	subject_need(before > 0 && poll(&(struct pollfd){periodic, POLLIN, 0}, 1, 20000) == 1,
	             "the periodic timer does not expire");

	subject_ready();

	check_left(relative, 20000, 7, "relative");
	check_left(wall, 30000, 0, "absolute on the wall clock");
	check_left(absolute, 40000, 0, "absolute");
	subject_check(timerfd_gettime(disarmed, &left) == 0 && !left.it_value.tv_sec &&
	                      !left.it_value.tv_nsec,
	              "the disarmed timer is armed");
	subject_check(wait_for_ticks(periodic) > 0, "expirations were lost");
	subject_check(wait_for_ticks(periodic) > 0, "the periodic timer has stopped");
	return subject_end();
}
