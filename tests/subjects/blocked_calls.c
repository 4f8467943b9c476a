/*
 * Threads that are inside system calls: each waits in another one for something that comes only
 * after the restore. It must then come, and nothing else: a call may be made again, never end
 * early, except where signal(7) says that a stop ends it with EINTR on every Linux, or where only a
 * time-out that nobody knows any more is left.
 */
#include "subject.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

static int pipe_ends[2], pair[2], event, epoll, listener, full_pipe[2];
static uint32_t futex_word;
static char page[4096];

/* Repeats what a stop may end with EINTR. */
#define again(call)                                      \
	({                                               \
		long result_;                            \
		do                                       \
			result_ = (call);                \
		while (result_ == -1 && errno == EINTR); \
		result_;                                 \
	})

static void *in_read(void *unused)
{
	char byte = 0;

	subject_check(read(pipe_ends[0], &byte, 1) == 1 && byte == 'r', "read: %s",
	              strerror(errno));
	return unused;
}

static void *in_write(void *unused)
{
	subject_check(write(full_pipe[1], page, sizeof(page)) == sizeof(page), "write: %s",
	              strerror(errno));
	return unused;
}

static void *in_recv(void *unused)
{
	char text[8] = "";

	subject_check(recv(pair[0], text, sizeof(text), 0) == 5 && strcmp(text, "data") == 0,
	              "recv: %s", strerror(errno));
	return unused;
}

static void *in_accept(void *unused)
{
	int connection = accept(listener, NULL, NULL);

	subject_check(connection >= 0, "accept: %s", strerror(errno));
	close(connection);
	return unused;
}

static void *in_futex(void *unused)
{
	long result = syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 0, NULL);

	subject_check(result == 0 || errno == EAGAIN, "futex: %s", strerror(errno));
	return unused;
}

static void *in_futex_until(void *unused)
{
	struct timespec until;
	long result;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1000;
	result = again(syscall(SYS_futex, &futex_word,
	                       FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &until, NULL,
	                       FUTEX_BITSET_MATCH_ANY));
	subject_check(result == 0 || errno == EAGAIN, "futex with a time: %s", strerror(errno));
	return unused;
}

static void *in_poll(void *unused)
{
	struct pollfd fd = {event, POLLIN, 0};

	subject_check(poll(&fd, 1, -1) == 1 && fd.revents == POLLIN, "poll: %s", strerror(errno));
	return unused;
}

static void *in_select(void *unused)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(event, &set);
	subject_check(select(event + 1, &set, NULL, NULL, NULL) == 1, "select: %s",
	              strerror(errno));
	return unused;
}

static void *in_epoll_wait(void *unused)
{
	struct epoll_event got = {0};

	subject_check(again(epoll_wait(epoll, &got, 1, -1)) == 1 && got.data.u64 == 0x1234567890ULL,
	              "epoll_wait: %s", strerror(errno));
	return unused;
}

static void *in_sigwait(void *unused)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	subject_check(again(sigwaitinfo(&set, NULL)) == SIGRTMIN, "sigwaitinfo: %s",
	              strerror(errno));
	return unused;
}

static void *in_sleep_until(void *unused)
{
	struct timespec now, until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 2;
	subject_check(again(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) == 0,
	              "clock_nanosleep: %s", strerror(errno));
	clock_gettime(CLOCK_MONOTONIC, &now);
	subject_check(now.tv_sec > until.tv_sec ||
	                      (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec),
	              "clock_nanosleep returned early");
	/* Not before the others: whether a thread is still there must not depend on the time. */
	while (subject_running())
		in_futex(NULL);
	return unused;
}

static void prepare(void)
{
	struct sockaddr_un address = {AF_UNIX, "accepting"};
	struct epoll_event wanted = {EPOLLIN, {.u64 = 0x1234567890ULL}};
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	unlink("accepting");
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	event = eventfd(0, EFD_CLOEXEC);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	subject_need(pipe(pipe_ends) == 0 && pipe(full_pipe) == 0, "pipe");
	subject_need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	subject_need(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	                     listen(listener, 3) == 0,
	             "listen");
	subject_need(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted) == 0, "epoll_ctl");
	for (int i = 0; i < 16; i++)
		subject_need(write(full_pipe[1], page, sizeof(page)) == sizeof(page), "write");
}

/* Gives each thread what it waits for. */
static void release(void)
{
	struct sockaddr_un address = {AF_UNIX, "accepting"};
	int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t one = 1;

	futex_word = 1;
	syscall(SYS_futex, &futex_word, FUTEX_WAKE_PRIVATE, 100);
	kill(getpid(), SIGRTMIN);
	subject_check(write(pipe_ends[1], "r", 1) == 1 && write(pair[1], "data", 5) == 5 &&
	                      write(event, &one, 8) == 8,
	              "write: %s", strerror(errno));
	subject_check(read(full_pipe[0], page, sizeof(page)) == sizeof(page), "read");
	subject_check(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0,
	              "connect: %s", strerror(errno));
	close(client);
}

/* Waits until the thread is inside the call, not on its way there. */
static void await_blocked(pid_t tid)
{
	char path[64], state[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	while (!strstr(state, ") S ")) {
		file = fopen(path, "re");
		subject_need(file && fgets(state, sizeof(state), file), "%s", path);
		fclose(file);
	}
}

static void *(*const calls[])(void *) = {in_read,       in_write,       in_recv,       in_accept,
                                         in_futex,      in_futex_until, in_poll,       in_select,
                                         in_epoll_wait, in_sigwait,     in_sleep_until};
#define CALLS (sizeof(calls) / sizeof(calls[0]))
static pid_t tids[CALLS];

static void *thread(void *index)
{
	tids[(uintptr_t)index] = gettid();
	return calls[(uintptr_t)index](NULL);
}

int main(void)
{
	pthread_t threads[CALLS];

	prepare();
	for (uintptr_t i = 0; i < CALLS; i++)
		subject_need(pthread_create(&threads[i], NULL, thread, (void *)i) == 0,
		             "pthread_create");
	for (size_t i = 0; i < CALLS; i++) {
		while (((volatile pid_t *)tids)[i] == 0)
			sched_yield();
		await_blocked(tids[i]);
	}

	subject_ready();

	release();
	for (size_t i = 0; i < CALLS; i++)
		pthread_join(threads[i], NULL);
	return subject_end();
}
