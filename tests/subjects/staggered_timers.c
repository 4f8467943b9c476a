/*
 * Many timers that expire once each, one after the other every tenth of a millisecond, so that some expire in every
 * step of a dump. Each signals exactly once, and then the round begins anew. Half of them signal one thread.
 *
 * subject: ignore=status,task (signals are pending or not)
 */
#include "subject.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#define TIMERS 1000
#define STEP_NS 100000

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static timer_t timers[TIMERS];
static unsigned expired[TIMERS];
static sigset_t blocked;

static void make_timers(void)
{
	for (int i = 0; i < TIMERS; i++) {
		struct sigevent event = {
		        .sigev_notify = i % 2 ? SIGEV_THREAD_ID : SIGEV_SIGNAL,
		        .sigev_signo = SIGRTMIN,
		        .sigev_value.sival_int = i,
		};

		event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
		subject_need(timer_create(CLOCK_MONOTONIC, &event, &timers[i]) == 0,
		             "timer_create");
	}
}

static void set_timers(void)
{
	for (int i = 0; i < TIMERS; i++) {
		long long left = (i + 1LL) * STEP_NS;
		struct itimerspec value = {
		        .it_value = {left / 1000000000, left % 1000000000},
		};

		subject_need(timer_settime(timers[i], 0, &value, NULL) == 0, "timer_settime");
	}
}

/* Being stopped ends sigtimedwait(2) with EINTR (signal(7)). */
static bool take_signal(siginfo_t *info)
{
	int signal;

	do
		signal = sigtimedwait(&blocked, info, &(struct timespec){.tv_sec = 5});
	while (signal < 0 && errno == EINTR);
	return signal == SIGRTMIN;
}

/* Takes as many signals as there are timers: one that comes twice takes the place of another. */
static bool round_is_complete(void)
{
	siginfo_t info;

	memset(expired, 0, sizeof(expired));
	set_timers();
	for (int i = 0; i < TIMERS; i++) {
		if (!take_signal(&info))
			return subject_check(false, "a signal does not come: %d of %d have", i,
			                     TIMERS);
		if (!subject_check(++expired[info.si_value.sival_int] == 1,
		                   "timer %d signals twice", info.si_value.sival_int))
			return false;
	}
	return subject_check(sigtimedwait(&blocked, &info, &(struct timespec){0}) < 0,
	                     "one signal more than timers");
}

static void *go_round(void *unused)
{
	make_timers();
	while (round_is_complete() && subject_running())
		;
	return unused;
}

int main(void)
{
	pthread_t thread;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	subject_need(pthread_create(&thread, NULL, go_round, NULL) == 0, "pthread_create");

	subject_ready();

	pthread_join(thread, NULL);
	return subject_end();
}
