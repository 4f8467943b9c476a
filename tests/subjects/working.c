/*
 * Several threads that work and check themselves all the time, each in another way: computing,
 * vectors, a pipe between two, sleeping, waiting with a time-out. Each counts its rounds in a file
 * that is mapped shared ("heartbeat"), where a test sees whether all go on. Nothing about the
 * process changes while it works: mappings, descriptors and signal masks stay as they are.
 *
 * A wait for a time may end early (EINTR) where a dump was killed while its thread was driven: the
 * kernel's note of the time left is lost then. The heartbeat's last word counts these; all other
 * calls must not notice anything.
 */
#include "mapping.h"

#include <poll.h>
#include <pthread.h>

#define SLEEP_NS 7000000L
#define ROOM (8UL << 20) /* contents, so that a dump takes a while */

static _Atomic uint64_t *heartbeat;
static int pipe_ends[2];

/* Checks a call that waits for a time: false if it ended early. */
static bool waited(int result, const char *call)
{
	if (result != 0 && errno == EINTR) {
		++heartbeat[PAGE / sizeof(*heartbeat) - 1];
		return false;
	}
	return subject_check(result == 0, "%s: %s", call, strerror(errno));
}

static void *computing(void *counter)
{
	uint64_t x = 1, y = 1;

	while (subject_running()) {
		for (int i = 0; i < 1000; i++) {
			x = x * 6364136223846793005ULL + 1;
			y ^= x;
			y ^= x;
			subject_check(y == 1, "a register changed");
		}
		++*(_Atomic uint64_t *)counter;
	}
	return NULL;
}

static void *vectors(void *counter)
{
	typedef uint32_t vector __attribute__((vector_size(32)));
	vector sum = {0}, one = {1, 2, 3, 4, 5, 6, 7, 8};
	uint32_t rounds = 0;

	while (subject_running()) {
		for (int i = 0; i < 1000; i++)
			sum += one;
		rounds += 1000;
		for (uint32_t i = 0; i < 8; i++)
			subject_check(sum[i] == rounds * (i + 1), "a vector register changed");
		++*(_Atomic uint64_t *)counter;
	}
	return NULL;
}

static void *writing(void *counter)
{
	for (uint64_t i = 0; subject_running(); i++) {
		subject_check(write(pipe_ends[1], &i, sizeof(i)) == sizeof(i), "write: %s",
		              strerror(errno));
		++*(_Atomic uint64_t *)counter;
	}
	close(pipe_ends[1]);
	return NULL;
}

static void *reading(void *counter)
{
	uint64_t expected = 0, value;
	ssize_t got;

	while ((got = read(pipe_ends[0], &value, sizeof(value))) == sizeof(value)) {
		subject_check(value == expected++, "the pipe lost or repeated a word");
		++*(_Atomic uint64_t *)counter;
	}
	subject_check(got == 0, "read: %s", strerror(errno));
	return NULL;
}

static void *sleeping(void *counter)
{
	while (subject_running()) {
		struct timespec before, after;
		bool whole;
		long slept;

		clock_gettime(CLOCK_MONOTONIC, &before);
		whole = waited(nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL),
		               "nanosleep");
		clock_gettime(CLOCK_MONOTONIC, &after);
		slept = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec -
		        before.tv_nsec;
		subject_check(!whole || slept >= SLEEP_NS, "slept only %ld ns", slept);
		++*(_Atomic uint64_t *)counter;
	}
	return NULL;
}

static void *waiting(void *counter)
{
	while (subject_running()) {
		waited(poll(NULL, 0, 9), "poll");
		++*(_Atomic uint64_t *)counter;
	}
	return NULL;
}

int main(void)
{
	static void *(*const works[])(void *) = {computing, vectors,  writing,
	                                         reading,   sleeping, waiting};
	enum { WORKS = sizeof(works) / sizeof(works[0]) };
	int fd = open("heartbeat", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	uint8_t *room = mapping_new(ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	pthread_t threads[WORKS];

	subject_need(fd >= 0 && ftruncate(fd, PAGE) == 0, "heartbeat");
	heartbeat = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	subject_need(heartbeat != MAP_FAILED && pipe2(pipe_ends, O_CLOEXEC) == 0, "pipe2");
	mapping_fill(room, ROOM, 1);
	for (int i = 0; i < WORKS; i++)
		subject_need(
		        pthread_create(&threads[i], NULL, works[i], (void *)&heartbeat[1 + i]) == 0,
		        "pthread_create");
	/* The first word says how many counters follow: the last thing before READY. */
	*heartbeat = WORKS;

	subject_ready();

	for (int i = 0; i < WORKS; i++)
		pthread_join(threads[i], NULL);
	mapping_check(room, ROOM, 1, "memory");
	return subject_end();
}
