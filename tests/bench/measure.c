/*
 * `measure FILE COMMAND [ARGUMENT...]` runs a command and writes to FILE, in one line, its wall
 * time and processor time in nanoseconds and its peak memory in bytes; ends with its status. A
 * small program of its own, because a process's peak counts from the memory of the one that forked
 * it.
 */
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t ns(struct timeval time)
{
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_usec * 1000;
}

int main(int argc, char **argv)
{
	struct rusage usage;
	uint64_t begin;
	int status;
	pid_t pid;
	FILE *out;

	if (argc < 3)
		errx(2, "usage: measure FILE COMMAND...");
	begin = now_ns();
	pid = fork();
	if (pid == 0) {
		execvp(argv[2], argv + 2);
		err(127, "%s", argv[2]);
	}
	if (pid < 0 || wait4(pid, &status, 0, &usage) != pid)
		err(1, "wait4");
	out = fopen(argv[1], "w");
	if (!out)
		err(1, "%s", argv[1]);
	fprintf(out, "%lu %lu %lu\n", now_ns() - begin, ns(usage.ru_utime) + ns(usage.ru_stime),
	        usage.ru_maxrss * 1024UL);
	fclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
