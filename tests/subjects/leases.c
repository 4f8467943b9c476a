/*
 * Leases on files: the program still has them, and is told by a signal, with the number of the
 * descriptor, when somebody wants one broken.
 */
#include "subject.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static int open_leased(const char *path, int flags, int type)
{
	int fd = open(path, O_CREAT | flags, 0600);

	subject_need(fd >= 0, "open %s", path);
	subject_need(!fcntl(fd, F_SETSIG, SIGRTMIN) && !fcntl(fd, F_SETLEASE, type), "F_SETLEASE");
	return fd;
}

/* Opens the file in another process; what that gets, 0 or an errno. */
static int open_elsewhere(const char *path, int flags)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0)
		_exit(open(path, flags | O_NONBLOCK) < 0 ? errno : 0);
	subject_check(waitpid(child, &status, 0) == child && WIFEXITED(status), "child");
	return WEXITSTATUS(status);
}

static void expect_broken(const char *path, int fd, int flags)
{
	const struct timespec soon = {.tv_sec = 10};
	siginfo_t info = {0};
	sigset_t set;
	int code = open_elsewhere(path, flags);

	subject_check(code == EWOULDBLOCK, "%s: another process opens it: %s", path,
	              strerror(code));
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	subject_check(sigtimedwait(&set, &info, &soon) == SIGRTMIN, "%s: no signal", path);
	subject_check(info.si_fd == fd, "%s: the signal is for descriptor %d", path, info.si_fd);
	subject_check(!fcntl(fd, F_SETLEASE, F_UNLCK), "%s: the lease cannot be given up", path);
}

int main(void)
{
	sigset_t set;
	int reading, writing;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	subject_need(!sigprocmask(SIG_BLOCK, &set, NULL), "sigprocmask");
	reading = open_leased("read", O_RDONLY, F_RDLCK);
	writing = open_leased("write", O_RDWR, F_WRLCK);

	subject_ready();

	subject_check(fcntl(reading, F_GETLEASE) == F_RDLCK, "the read lease is gone");
	subject_check(fcntl(writing, F_GETLEASE) == F_WRLCK, "the write lease is gone");
	subject_check(open_elsewhere("read", O_RDONLY) == 0, "a reader breaks a read lease");
	expect_broken("read", reading, O_WRONLY);
	expect_broken("write", writing, O_RDONLY);
	return subject_end();
}
