/* Signals that are read from a descriptor: its mask, and one that was pending at the dump. */
#include "subject.h"

#include <signal.h>
#include <sys/signalfd.h>

int main(void)
{
	struct signalfd_siginfo info = {0};
	sigset_t all, some;
	int fd;

	sigemptyset(&some);
	sigaddset(&some, SIGUSR1);
	sigaddset(&some, SIGRTMAX);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	fd = signalfd(-1, &some, SFD_NONBLOCK | SFD_CLOEXEC);
	subject_need(fd >= 0, "signalfd");
	subject_need(sigqueue(getpid(), SIGRTMAX, (union sigval){.sival_int = 4711}) == 0,
	             "sigqueue");
	subject_ready();
	kill(getpid(), SIGUSR2);
	subject_check(read(fd, &info, sizeof(info)) == sizeof(info), "no signal can be read");
	subject_check((int)info.ssi_signo == SIGRTMAX && info.ssi_int == 4711,
	              "signal %u with value %d", info.ssi_signo, info.ssi_int);
	subject_check(read(fd, &info, sizeof(info)) == -1, "a signal outside the mask is read");
	kill(getpid(), SIGUSR1);
	subject_check(read(fd, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGUSR1,
	              "SIGUSR1 cannot be read");
	return subject_end();
}
