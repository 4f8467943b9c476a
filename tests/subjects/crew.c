/*
 * Processes that work and check themselves all the time: a ring of four, the last of them a grandchild,
 * which hand a token on through pipes. Each counts its rounds in a file that is mapped shared
 * ("heartbeat"), where a test sees whether all go on, and looks whether its descriptors, and in the
 * end its mappings, are what they were. With the root all end.
 */
#include "mapping.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { CREW = 4, LAST = -1 };

static _Atomic uint64_t *heartbeat;
static int rings[CREW][2];

/* How many there are: the stack may grow, where sealpoint finds no room to stand. */
static unsigned count_mappings(void)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char text[4096];
	unsigned count = 0;
	ssize_t got;

	while ((got = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < got; i++)
			count += text[i] == '\n';
	close(fd);
	return count;
}

static unsigned count_descriptors(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 64; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Hands on what comes, and ends with the last token. */
__attribute__((noreturn)) static void work(int place)
{
	unsigned mappings = count_mappings(), descriptors = count_descriptors();
	int token = 0;

	while (token != LAST &&
	       subject_check(read(rings[place][0], &token, sizeof(token)) == sizeof(token),
	                     "read: %s", strerror(errno))) {
		++heartbeat[1 + place];
		subject_check(count_descriptors() == descriptors,
		              "the descriptors of %d have changed", place);
		if (token != LAST || place + 1 < CREW)
			subject_check(write(rings[(place + 1) % CREW][1], &token, sizeof(token)) ==
			                      sizeof(token),
			              "write: %s", strerror(errno));
	}
	subject_check(count_mappings() == mappings, "the mappings of %d have changed", place);
	while (wait(NULL) > 0)
		;
	_exit(atomic_load(&subject_failures) != 0);
}

/* The last of them has a child. */
__attribute__((noreturn)) static void begin(int place)
{
	if (place == CREW - 2 && fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		place++;
	}
	work(place);
}

int main(void)
{
	int fd = open("heartbeat", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int token = 0, status, failed = 0;

	subject_need(fd >= 0 && ftruncate(fd, PAGE) == 0, "heartbeat");
	heartbeat = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	subject_need(heartbeat != MAP_FAILED, "mmap");
	for (int i = 0; i < CREW; i++)
		subject_need(pipe(rings[i]) == 0, "pipe");
	for (int i = 0; i < CREW - 1; i++) {
		pid_t pid = fork();

		subject_need(pid >= 0, "fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			begin(i);
		}
	}
	subject_need(write(rings[0][1], &token, sizeof(token)) == sizeof(token), "write");
	/* The first word says how many counters follow: the last thing before READY. */
	*heartbeat = CREW;

	subject_ready();

	token = LAST;
	subject_check(write(rings[0][1], &token, sizeof(token)) == sizeof(token), "write");
	while (wait(&status) > 0)
		failed += status != 0;
	subject_check(failed == 0, "%d have failed", failed);
	return subject_end();
}
