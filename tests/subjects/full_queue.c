/*
 * A process whose user must not queue any more signals: of what is sent now, the kernel notes nothing but the number.
 * What waited before is all still there, in its order, and nothing has come to it.
 */
#include "subject.h"

#include <signal.h>
#include <sys/resource.h>

#define QUEUED 100

int main(void)
{
	const struct timespec now = {0};
	int last[128] = {0}, found = 0;
	siginfo_t info;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int i = 1; i <= QUEUED; i++)
		subject_need(sigqueue(getpid(), SIGRTMIN + i % 7, (union sigval){.sival_int = i}) ==
		                     0,
		             "sigqueue");
	subject_need(setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){}) == 0, "setrlimit");
	subject_ready();
	for (; sigtimedwait(&all, &info, &now) > 0; found++) {
		subject_check(info.si_signo >= SIGRTMIN, "signal %d has come", info.si_signo);
		subject_check(info.si_value.sival_int > last[info.si_signo], "not in its order");
		last[info.si_signo] = info.si_value.sival_int;
	}
	subject_check(found == QUEUED, "%d signals wait, not %d", found, QUEUED);
	return subject_end();
}
