/*
 * Signals that arrive from outside while it is dumped and restored (integration/signals_meanwhile): it says
 * each as it comes ("SIGURG 7"), or, started with "blocks", holds them all back until it is let go.
 *
 * subject: modes=none
 */
#include "subject.h"

#include <signal.h>

static void say(int signal, int value)
{
	char line[64];
	int size = signal == SIGRTMIN ? snprintf(line, sizeof(line), "SIGRTMIN %d\n", value)
	                              : snprintf(line, sizeof(line), "SIG%s %d\n",
	                                         sigabbrev_np(signal), value);

	if (write(STDOUT_FILENO, line, (size_t)size) != size)
		_exit(3);
}

static void handler(int signal, siginfo_t *info, void *context)
{
	say(signal, info->si_code == SI_QUEUE ? info->si_value.sival_int : -1);
	(void)context;
}

int main(int argc, char **argv)
{
	const int signals[] = {SIGURG, SIGWINCH, SIGCHLD, SIGRTMIN};
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigset_t set;
	siginfo_t info;

	sigemptyset(&set);
	for (int i = 0; i < 4; i++)
		sigaddset(&set, signals[i]);
	action.sa_mask = set; /* one line at a time */
	for (int i = 0; i < 4; i++)
		sigaction(signals[i], &action, NULL);
	if (argc > 1 && !strcmp(argv[1], "blocks"))
		sigprocmask(SIG_BLOCK, &set, NULL);
	subject_ready();
	while (argc > 1 && sigtimedwait(&set, &info, &(struct timespec){0}) > 0)
		handler(info.si_signo, &info, NULL);
	return subject_end();
}
