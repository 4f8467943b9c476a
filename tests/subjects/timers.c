/*
 * Timers with what was left of them: the three interval timers, and POSIX timers of several clocks,
 * whose numbers programs keep. None of them runs out during the test; the time that passes between
 * dump and restore does not count.
 */
#include "subject.h"

#include <signal.h>
#include <sys/time.h>

#define TIMERS 4

static timer_t make_timer(clockid_t clock, int signal, int value, long seconds, long interval)
{
	struct sigevent event = {.sigev_notify = signal ? SIGEV_SIGNAL : SIGEV_NONE,
	                         .sigev_signo = signal,
	                         .sigev_value.sival_int = value};
	struct itimerspec times = {{interval, 500}, {seconds, 0}};
	timer_t timer;

	subject_need(timer_create(clock, &event, &timer) == 0, "timer_create");
	subject_need(timer_settime(timer, 0, &times, NULL) == 0, "timer_settime");
	return timer;
}

static void check_timer(timer_t timer, long seconds, long interval, const char *name)
{
	struct itimerspec now;

	if (!subject_check(timer_gettime(timer, &now) == 0, "%s is gone", name))
		return;
	subject_check(now.it_interval.tv_sec == interval && now.it_interval.tv_nsec == 500,
	              "%s has an interval of %ld s", name, now.it_interval.tv_sec);
	/* A hundred seconds are more than any test run takes between set-up and here. */
	subject_check(now.it_value.tv_sec <= seconds && now.it_value.tv_sec >= seconds - 100,
	              "%s has %ld s left of %ld", name, now.it_value.tv_sec, seconds);
}

int main(void)
{
	const struct itimerval real = {{7, 70}, {1000, 0}}, idle = {{0, 0}, {2000, 0}};
	struct itimerval now;
	sigset_t blocked;
	timer_t timers[TIMERS], unused;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	setitimer(ITIMER_REAL, &real, NULL);
	setitimer(ITIMER_VIRTUAL, &idle, NULL);
	timers[0] = make_timer(CLOCK_MONOTONIC, SIGRTMIN, 1, 3000, 3);
	unused = make_timer(CLOCK_MONOTONIC, 0, 0, 1, 0);
	timers[1] = make_timer(CLOCK_REALTIME, SIGUSR1, 2, 4000, 4);
	timers[2] = make_timer(CLOCK_BOOTTIME, 0, 0, 5000, 5);
	timer_delete(unused); /* numbers have a gap */
	timers[3] = make_timer(CLOCK_PROCESS_CPUTIME_ID, SIGUSR2, 4, 6000, 6);

	subject_ready();

	getitimer(ITIMER_REAL, &now);
	subject_check(now.it_interval.tv_sec == 7 && now.it_interval.tv_usec == 70 &&
	                      now.it_value.tv_sec > 900 && now.it_value.tv_sec <= 1000,
	              "ITIMER_REAL has %ld s left", now.it_value.tv_sec);
	getitimer(ITIMER_VIRTUAL, &now);
	subject_check(now.it_value.tv_sec > 1900 && now.it_value.tv_sec <= 2000,
	              "ITIMER_VIRTUAL has %ld s left", now.it_value.tv_sec);
	getitimer(ITIMER_PROF, &now);
	subject_check(now.it_value.tv_sec == 0 && now.it_value.tv_usec == 0, "ITIMER_PROF runs");
	check_timer(timers[0], 3000, 3, "the monotonic timer");
	check_timer(timers[1], 4000, 4, "the real-time timer");
	check_timer(timers[2], 5000, 5, "the boot-time timer");
	check_timer(timers[3], 6000, 6, "the processor-time timer");

	/* It still sends the signal and the value that it was made with. */
	siginfo_t info;
	struct itimerspec soon = {{0, 0}, {0, 1}};
	timer_t sender;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
	                         .sigev_signo = SIGRTMIN + 1,
	                         .sigev_value.sival_int = 55};

	subject_check(timer_create(CLOCK_MONOTONIC, &event, &sender) == 0, "timer_create: %s",
	              strerror(errno));
	subject_check(sender != timers[0] && sender != timers[1] && sender != timers[2] &&
	                      sender != timers[3],
	              "a new timer has the number of an old one");
	timer_settime(sender, 0, &soon, NULL);
	subject_check(sigtimedwait(&blocked, &info, &(struct timespec){.tv_sec = 20}) ==
	                              SIGRTMIN + 1 &&
	                      info.si_value.sival_int == 55,
	              "a new timer does not work");
	return subject_end();
}
