/*
 * Signals for files that become ready: owner, signal, and the descriptor that the signal names, for
 * a pipe with O_ASYNC. Others' signals go to a child, and to its group.
 */
#include "subject.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

/* A pipe whose signals go to another process, or a group. */
static int pipe_of(enum __pid_type type, pid_t pid)
{
	struct f_owner_ex owner = {.type = type, .pid = pid};
	int ends[2];

	subject_need(pipe(ends) == 0 && fcntl(ends[0], F_SETOWN_EX, &owner) == 0, "F_SETOWN_EX");
	return ends[0];
}

static void check_owner(int fd, enum __pid_type type, pid_t pid)
{
	struct f_owner_ex owner = {0};

	subject_check(!fcntl(fd, F_GETOWN_EX, &owner) && owner.type == type && owner.pid == pid,
	              "the owner is %d, type %d, not %d, type %d", owner.pid, owner.type, pid,
	              type);
}

static pid_t beget_leader(void)
{
	pid_t pid = fork();

	subject_need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	subject_need(setpgid(pid, pid) == 0, "setpgid");
	return pid;
}

int main(void)
{
	pid_t child = beget_leader();
	int childs = pipe_of(F_OWNER_PID, child), groups = pipe_of(F_OWNER_PGRP, child);
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

	check_owner(ends[0], F_OWNER_TID, gettid());
	check_owner(childs, F_OWNER_PID, child);
	check_owner(groups, F_OWNER_PGRP, child);
	subject_check(fcntl(ends[0], F_GETSIG) == SIGRTMIN + 2, "the signal is another one");
	subject_check(write(ends[1], "x", 1) == 1, "write");
	subject_check(sigtimedwait(&set, &info, &timeout) == SIGRTMIN + 2, "no signal came");
	subject_check(info.si_fd == ends[0] && info.si_code == POLL_IN,
	              "the signal names descriptor %d, code %d", info.si_fd, info.si_code);
	return subject_end();
}
