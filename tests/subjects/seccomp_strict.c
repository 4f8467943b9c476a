/*
 * Seccomp's strict mode: a process that may read, write, return from signals and end its only thread, and is killed for
 * anything else. So it waits by reading, and the mode itself is what /proc shows of it. Whether it goes on after it was
 * saved ahead cannot be seen: it never sleeps.
 *
 * subject: except=pre-dump
 */
#include "subject.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void say(const char *word)
{
	size_t length = strlen(word);

	if (write(STDOUT_FILENO, word, length) != (ssize_t)length)
		syscall(SYS_exit, 3);
}

int main(void)
{
	char byte;

	subject_need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "strict mode");
	say("READY\n");
	while (read(STDIN_FILENO, &byte, 1) == 0)
		continue;
	say("PASS\n");
	syscall(SYS_exit, 0);
	return 1; /* not reached */
}
