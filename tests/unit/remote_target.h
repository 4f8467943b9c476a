/*
 * Children to be stopped and driven: each runs a body that says when it is ready, and ends with the
 * test, however that ends.
 */
#ifndef SEALPOINT_TESTS_REMOTE_TARGET_H
#define SEALPOINT_TESTS_REMOTE_TARGET_H

#include "base/clock.h"
#include "base/error.h"
#include "proc/stat.h"
#include "remote/remote.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE (sp_now_ns() + 60000000000ULL) /* a busy machine is no failure */

static inline pid_t start(void (*body)(int report))
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing behind */
		close(ready[0]);
		body(ready[1]);
		_exit(99);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(read(ready[0], &byte, 1), 0); /* its end is closed: no call is under way */
	close(ready[0]);
	return pid;
}

static inline void report(int fd)
{
	if (write(fd, "r", 1) != 1)
		_exit(98);
	close(fd);
}

static inline void sleeper(int ready)
{
	report(ready);
	for (;;)
		pause();
}

static inline void end(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static inline int try_to_take(struct sp_process *process, struct sp_remote *remote, pid_t pid,
                              struct sp_error *err)
{
	struct sp_foothold foothold = {0};
	int rc = sp_foothold_find(sp_living_thread(pid), (struct sp_range){0}, &foothold, err);

	if (!rc)
		rc = sp_process_seize(process, pid, DEADLINE, err);
	return rc ? rc
	          : sp_remote_open(remote, process, sp_process_leader(process), &foothold, err);
}

static inline void take(struct sp_process *process, struct sp_remote *remote, pid_t pid)
{
	struct sp_error err = {0};

	if (try_to_take(process, remote, pid, &err))
		fail_msg("%s", err.message);
}

static inline void let_go(struct sp_process *process, struct sp_remote *remote)
{
	struct sp_error err = {0};

	if (sp_remote_close(remote, &err))
		fail_msg("%s", err.message);
	sp_process_forget(process);
}

#endif
