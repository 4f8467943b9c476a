/*
 * A program with many of one thing, which checks itself when its standard input has a first byte:
 *
 *	crowd processes|threads|descriptors|connections COUNT
 *
 * Processes and threads are as many beside the first one; descriptors are eventfds with a number each;
 * connections are TCP pairs of the program with itself, and a byte goes through each in the end.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static long count;
static int *fds; /* of connections two each */

/* In memory that all processes share. */
static struct shared {
	sem_t leave;
	atomic_long begun;
} * shared;

static void need(bool holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	exit(1);
}

/* --- processes and threads --- */

static void live(void)
{
	atomic_fetch_add(&shared->begun, 1);
	while (sem_wait(&shared->leave))
		;
}

static void make_processes(void)
{
	for (long i = 0; i < count; i++) {
		pid_t pid = fork();

		need(pid >= 0, "fork");
		if (pid > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		live();
		_exit(7);
	}
}

static bool check_processes(void)
{
	long ended = 0;
	int status;

	while (wait(&status) > 0)
		ended += WIFEXITED(status) && WEXITSTATUS(status) == 7;
	return ended == count;
}

static pthread_t *threads;

static void *run(void *number)
{
	live();
	return number;
}

static void make_threads(void)
{
	pthread_attr_t attributes;

	threads = calloc((size_t)count, sizeof(*threads));
	need(threads != NULL, "calloc");
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	for (long i = 0; i < count; i++)
		need(!pthread_create(&threads[i], &attributes, run, (void *)i), "pthread_create");
}

static bool check_threads(void)
{
	bool right = true;
	void *number;

	for (long i = 0; i < count; i++)
		right &= !pthread_join(threads[i], &number) && number == (void *)i;
	return right;
}

/* --- descriptors and connections --- */

static void make_descriptors(void)
{
	for (long i = 0; i < count; i++) {
		fds[i] = eventfd((unsigned)i + 1, EFD_NONBLOCK);
		need(fds[i] >= 0, "eventfd");
	}
}

static bool check_descriptors(void)
{
	bool right = true;
	uint64_t number;

	for (long i = 0; i < count; i++)
		right &= read(fds[i], &number, sizeof(number)) == sizeof(number) &&
		         number == (uint64_t)i + 1;
	return right;
}

static void make_connections(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	need(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 16) &&
	             !getsockname(listener, (struct sockaddr *)&address, &size),
	     "listen");
	for (long i = 0; i < count; i++) {
		fds[2 * i] = socket(AF_INET, SOCK_STREAM, 0);
		need(!connect(fds[2 * i], (struct sockaddr *)&address, size), "connect");
		fds[2 * i + 1] = accept(listener, NULL, NULL);
		need(fds[2 * i + 1] >= 0, "accept");
	}
}

static bool check_connections(void)
{
	bool right = true;

	for (long i = 0; i < count; i++) {
		char out = (char)i, in = (char)~i;

		right &= write(fds[2 * i], &out, 1) == 1 && read(fds[2 * i + 1], &in, 1) == 1 &&
		         in == out;
	}
	return right;
}

/* --- the whole --- */

static const struct crowd {
	const char *name;
	bool lives; /* its members say so, and are to be told to end */
	void (*make)(void);
	bool (*check)(void);
} crowds[] = {
        {"processes", true, make_processes, check_processes},
        {"threads", true, make_threads, check_threads},
        {"descriptors", false, make_descriptors, check_descriptors},
        {"connections", false, make_connections, check_connections},
};

static const struct crowd *find_crowd(const char *name)
{
	for (size_t i = 0; i < sizeof(crowds) / sizeof(crowds[0]); i++)
		if (!strcmp(crowds[i].name, name))
			return &crowds[i];
	fprintf(stderr, "crowd: no crowd of %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	const struct crowd *crowd = argc == 3 ? find_crowd(argv[1]) : NULL;
	struct rlimit limit;
	char byte;

	if (!crowd)
		return 2;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	count = atol(argv[2]);
	fds = calloc((size_t)count, 2 * sizeof(*fds));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	need(fds && shared != MAP_FAILED && !sem_init(&shared->leave, 1, 0), "memory");
	crowd->make();
	while (crowd->lives && shared->begun < count)
		usleep(1000);
	need(write(STDOUT_FILENO, "READY\n", 6) == 6, "write");
	while (read(STDIN_FILENO, &byte, 1) == 0)
		usleep(2000);
	for (long i = 0; crowd->lives && i < count; i++)
		sem_post(&shared->leave);
	if (!crowd->check())
		return 1;
	need(write(STDOUT_FILENO, "PASS\n", 5) == 5, "write");
	return 0;
}
