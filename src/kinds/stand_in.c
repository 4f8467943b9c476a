/* A process that lives for a moment: see stand_in.h. */
#include "kinds/stand_in.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Waits for the other end of the pipe to be closed, by hand or because sealpoint was killed. */
static __attribute__((noreturn)) void live(const int ends[2], uint32_t wait_status)
{
	const struct rlimit no_core = {0, 0};
	int signal_number = (int)(wait_status & 0x7f);
	sigset_t none;
	char byte;

	close(ends[1]);
	while (read(ends[0], &byte, 1) > 0)
		;
	if (signal_number) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(signal_number, SIG_DFL);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		kill((pid_t)syscall(SYS_getpid), signal_number);
	}
	_exit((int)(wait_status >> 8 & 0xff));
}

/* Its end is signalled to nobody. */
int sp_stand_in_begin(struct sp_stand_in *process, pid_t id, uint32_t wait_status,
                      struct sp_error *err)
{
	struct clone_args args = {.set_tid = id ? (uint64_t)&id : 0, .set_tid_size = id ? 1 : 0};
	sp_cleanup_close int reader = -1;
	int ends[2];
	long pid;

	if (pipe2(ends, O_CLOEXEC))
		return sp_fail_errno(err, errno, "cannot make a pipe");
	reader = ends[0];
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0 && id) {
		args = (struct clone_args){0};
		pid = syscall(SYS_clone3, &args, sizeof(args));
	}
	if (pid == 0)
		live(ends, wait_status);
	*process = (struct sp_stand_in){.pid = (pid_t)pid, .leash = ends[1]};
	if (pid > 0)
		return 0;
	close(ends[1]);
	return sp_fail_errno(err, errno, "cannot make a process that ends");
}

void sp_stand_in_end(struct sp_stand_in *process)
{
	close(process->leash);
	while (waitpid(process->pid, NULL, __WALL) < 0 && errno == EINTR)
		;
}
