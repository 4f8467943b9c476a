/*
 * Signals for files that become ready: owner, signal, and the descriptor that the signal names, for
 * a pipe with O_ASYNC.
 */
#include "subject.h"

#include <fcntl.h>
#include <signal.h>

int main(void)
{
	struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = gettid()};
	struct timespec timeout = {.tv_sec = 5};
	siginfo_t info = {0};
	sigset_t set;
	int ends[2];

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	subject_need(pipe(ends) == 0, "pipe");
	subject_need(fcntl(ends[0], F_SETOWN_EX, &owner) == 0, "F_SETOWN_EX");
	subject_need(fcntl(ends[0], F_SETSIG, SIGRTMIN + 2) == 0, "F_SETSIG");
	subject_need(fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0, "F_SETFL");

	subject_ready();

	memset(&owner, 0, sizeof(owner));
	subject_check(!fcntl(ends[0], F_GETOWN_EX, &owner) && owner.type == F_OWNER_TID &&
	                      owner.pid == gettid(),
	              "the owner is %d, type %d", owner.pid, owner.type);
	subject_check(fcntl(ends[0], F_GETSIG) == SIGRTMIN + 2, "the signal is another one");
	subject_check(write(ends[1], "x", 1) == 1, "write");
	subject_check(sigtimedwait(&set, &info, &timeout) == SIGRTMIN + 2, "no signal came");
	subject_check(info.si_fd == ends[0] && info.si_code == POLL_IN,
	              "the signal names descriptor %d, code %d", info.si_fd, info.si_code);
	return subject_end();
}
