/*
 * A periodic timer of setitimer(2) that has expired while its signal is blocked. The kernel arms such a timer again when
 * the signal is taken; so signals come again and again afterwards.
 */
#include "subject.h"

#include <signal.h>
#include <sys/time.h>

static const struct itimerval often = {{0, 2000}, {0, 2000}};

/* Takes a signal of the timer; false if none comes for five seconds. */
static bool take_signal(const sigset_t *alarm)
{
	return sigtimedwait(alarm, NULL, &(struct timespec){.tv_sec = 5}) == SIGALRM;
}

int main(void)
{
	sigset_t alarm, pending;
	struct itimerval now;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, NULL);
	subject_need(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
	do
		sigpending(&pending);
	while (!sigismember(&pending, SIGALRM));

	subject_ready();

	for (int i = 0; i < 3; i++)
		subject_check(take_signal(&alarm), "signal %d does not come", i);
	getitimer(ITIMER_REAL, &now);
	subject_check(now.it_interval.tv_usec == often.it_interval.tv_usec,
	              "the interval is %ld us", now.it_interval.tv_usec);
	return subject_end();
}
