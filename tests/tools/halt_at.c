/*
 * Runs a command and holds it at a defined moment, so that a test does what has to happen just then neither too early nor
 * too late, on whatever machine.
 *
 *	halt_at [+]CALL[,NUMBER][:PATH] FIFO COMMAND [ARGUMENT...]
 *
 * The moment is when the command is about to make the system call for the first time, or for that NUMBER; with PATH, a
 * pattern, only calls about such a file count, which is the first argument, a descriptor, or an argument that is a name.
 * Then somebody reads a line from FIFO, and all of the command stands in front of that call until FIFO is opened to
 * write. FIFO is empty if the command ends before. halt_at() and proceed() in tests/lib.sh do that.
 *
 * The process that was started becomes the command. Its threads stand as well; with +, so do its children, which must not
 * have another tracer then. Signals wait until it goes on, but for SIGKILL.
 */
#include <err.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DESCRIPTOR (-1)

static const struct call {
	const char *name;
	long number;
	int file; /* the argument that names it, or DESCRIPTOR */
} calls[] = {
        {"pwrite64", SYS_pwrite64, DESCRIPTOR},
        {"process_vm_writev", SYS_process_vm_writev, DESCRIPTOR},
        {"ptrace", SYS_ptrace, DESCRIPTOR},
        {"renameat", SYS_renameat, 3},
};

struct moment {
	const struct call *call;
	const char *pattern; /* NULL: any */
	unsigned long left;
	bool of_children;
};

static struct moment parse_moment(char *text)
{
	char *pattern = strchr(text, ':'), *number;
	struct moment moment = {
	        .pattern = pattern ? pattern + 1 : NULL,
	        .left = 1,
	        .of_children = *text == '+',
	};

	if (pattern)
		*pattern = '\0';
	number = strchr(text, ',');
	if (number) {
		*number = '\0';
		moment.left = strtoul(number + 1, NULL, 10);
	}
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(calls[i].name, text + moment.of_children))
			moment.call = &calls[i];
	if (!moment.call)
		errx(2, "no call %s is known; add a row", text);
	return moment;
}

static bool is_about(pid_t tid, const struct moment *moment, const uint64_t *arguments)
{
	char link[64], path[PATH_MAX] = "";
	int mem;

	if (moment->call->file == DESCRIPTOR) {
		snprintf(link, sizeof(link), "/proc/%d/fd/%d", tid, (int)arguments[0]);
		return readlink(link, path, sizeof(path) - 1) > 0 &&
		       !fnmatch(moment->pattern, path, 0);
	}
	snprintf(link, sizeof(link), "/proc/%d/mem", tid);
	mem = open(link, O_RDONLY);
	if (mem < 0 ||
	    pread(mem, path, sizeof(path) - 1, (off_t)arguments[moment->call->file]) <= 0)
		path[0] = '\0';
	close(mem);
	return !fnmatch(moment->pattern, path, 0);
}

static bool has_come(pid_t tid, struct moment *moment)
{
	struct __ptrace_syscall_info info;

	return ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) > 0 &&
	       info.op == PTRACE_SYSCALL_INFO_ENTRY &&
	       (long)info.entry.nr == moment->call->number &&
	       (!moment->pattern || is_about(tid, moment, info.entry.args)) && --moment->left == 0;
}

/* False if the command has ended before. */
static bool wait_for(struct moment *moment, pid_t command)
{
	for (;;) {
		int status, signal = 0;
		pid_t tid = waitpid(-1, &status, __WALL);

		if (tid < 0 || (tid == command && !WIFSTOPPED(status)))
			return false;
		if (!WIFSTOPPED(status))
			continue;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			if (has_come(tid, moment))
				return true;
		} else if (status >> 16 == 0) { /* no event */
			signal = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)signal);
	}
}

/* What is traced goes on when the tracer ends. It is no child of the command's, which may wait for its own. */
static void trace(pid_t command, struct moment moment, const char *fifo, int ready)
{
	long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE |
	               (moment.of_children ? PTRACE_O_TRACEFORK : 0);
	int fd;

	setsid();
	for (int i = 0; i < 3; i++)
		close(i);
	if (ptrace(PTRACE_SEIZE, command, NULL, options) < 0 ||
	    ptrace(PTRACE_INTERRUPT, command, NULL, NULL) < 0 || write(ready, "r", 1) != 1)
		_exit(1);
	if (wait_for(&moment, command)) {
		fd = open(fifo, O_WRONLY);
		if (write(fd, "halted\n", 7) == 7)
			close(fd);
		open(fifo, O_RDONLY);
	} else {
		open(fifo, O_WRONLY);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	pid_t command = getpid(), child;
	struct moment moment;
	int ready[2];
	char byte;

	if (argc < 4)
		errx(2, "usage: halt_at [+]CALL[,NUMBER][:PATH] FIFO COMMAND [ARGUMENT...]");
	moment = parse_moment(argv[1]);
	if (pipe2(ready, O_CLOEXEC) < 0 || (child = fork()) < 0)
		err(2, "cannot start a tracer");
	if (child == 0) {
		if (fork() == 0)
			trace(command, moment, argv[2], ready[1]);
		_exit(0);
	}
	close(ready[1]);
	if (waitpid(child, NULL, 0) != child || read(ready[0], &byte, 1) != 1)
		errx(2, "process %d cannot be traced", command);
	execv(argv[3], argv + 3);
	err(2, "%s", argv[3]);
}
