/*
 * queue_signals PID VALUE DELAY: sends SIGURG, SIGWINCH, SIGCHLD and SIGRTMIN with a value to a
 * process, DELAY microseconds after there is one with that id.
 */
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	const int signals[] = {SIGURG, SIGWINCH, SIGCHLD, SIGRTMIN};
	union sigval value;
	pid_t pid;

	if (argc != 4)
		errx(2, "usage: queue_signals PID VALUE DELAY");
	pid = atoi(argv[1]);
	value.sival_int = atoi(argv[2]);
	while (kill(pid, 0) < 0)
		if (errno != ESRCH)
			err(1, "process %d", pid);
	nanosleep(&(struct timespec){.tv_nsec = atol(argv[3]) * 1000}, NULL);
	for (int i = 0; i < 4; i++)
		if (sigqueue(pid, signals[i], value) < 0)
			err(1, "process %d", pid);
	return 0;
}
