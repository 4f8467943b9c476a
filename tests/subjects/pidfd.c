/*
 * Descriptors of processes: of the process itself, of a child, of children that have ended, collected
 * or not, and of a thread; an epoll set that watches one, and one that parent and child share.
 */
#include "subject.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define OF_THREAD O_EXCL

static atomic_int thread_id;

static void *sleep_on(void *unused)
{
	atomic_store(&thread_id, (int)syscall(SYS_gettid));
	while (subject_running())
		pause();
	return unused;
}

static pid_t child_that(bool lives)
{
	pid_t child = fork();

	subject_need(child >= 0, "fork");
	if (child)
		return child;
	while (lives)
		pause();
	_exit(3);
}

static int open_pid(pid_t pid)
{
	int fd = pidfd_open(pid, 0);

	subject_need(fd >= 0, "pidfd_open");
	return fd;
}

static bool has_ended(int fd, int timeout)
{
	struct pollfd wanted = {.fd = fd, .events = POLLIN};

	return poll(&wanted, 1, timeout) == 1;
}

static int signal_it(int fd, int signal)
{
	return pidfd_send_signal(fd, signal, NULL, 0) ? errno : 0;
}

static int collect(int fd, pid_t pid)
{
	siginfo_t info = {0};

	subject_check(!waitid(P_PIDFD, (id_t)fd, &info, WEXITED) && info.si_pid == pid,
	              "the child cannot be waited for");
	return info.si_status;
}

/* Before Linux 6.9 there are none. */
static int open_thread(void)
{
	pthread_t thread;

	subject_need(!pthread_create(&thread, NULL, sleep_on, NULL), "pthread_create");
	while (!atomic_load(&thread_id))
		usleep(1000);
	return pidfd_open(atomic_load(&thread_id), OF_THREAD);
}

int main(void)
{
	pid_t child = child_that(true), ended = child_that(false), gone = child_that(false);
	int self = open_pid(getpid()), of_child = open_pid(child);
	int of_ended = open_pid(ended), of_gone = open_pid(gone), epoll = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
	int of_thread, again;
	pid_t second;

	subject_need(fcntl(of_child, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	subject_need(has_ended(of_ended, -1) && waitpid(gone, NULL, 0) == gone, "waitpid");
	subject_need(!epoll_ctl(epoll, EPOLL_CTL_ADD, of_child, &event), "epoll_ctl");
	of_thread = open_thread();
	again = dup(of_child);
	/* A second child has all of these, too. */
	second = child_that(true);

	subject_ready();

	subject_check(signal_it(self, 0) == 0, "the process itself");
	subject_check(!has_ended(of_child, 0) && fcntl(again, F_GETFL) & O_NONBLOCK, "the child");
	subject_check(of_thread < 0 || (!has_ended(of_thread, 0) && signal_it(of_thread, 0) == 0),
	              "the thread");
	subject_check(has_ended(of_ended, 0) && collect(of_ended, ended) == 3, "the ended child");
	subject_check(has_ended(of_gone, 0) && signal_it(of_gone, 0) == ESRCH, "the collected one");
	subject_check(epoll_wait(epoll, &event, 1, 0) == 0, "the child has ended for epoll");
	subject_check(signal_it(of_child, SIGKILL) == 0, "the child cannot be ended");
	subject_check(epoll_wait(epoll, &event, 1, 10000) == 1 && event.data.u64 == 7,
	              "epoll does not tell that the child has ended");
	subject_check(collect(again, child) == SIGKILL, "the child ended in another way");
	kill(second, SIGKILL);
	return subject_end();
}
