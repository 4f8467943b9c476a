/*
 * A userfaultfd of another process's memory: see userfaultfd.h.
 *
 * We may be killed at any moment, and the target must not keep a descriptor then. So the batch that
 * opens it also closes it, whether or not we are still there. In between the target sleeps for a
 * moment, in which a thread of ours takes the descriptor over. What number it has is known before:
 * all threads stand still, and the kernel gives the lowest that is free.
 */
#include "remote/userfaultfd.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "proc/fdinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>

#define SLEEP_FIRST_NS (500ULL * 1000)
#define SLEEP_LAST_NS (500ULL * 1000 * 1000)

/* The lowest number that is no descriptor of the process, which stands still. */
static int lowest_free(pid_t pid)
{
	char path[64];
	int number = -1;

	do
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, ++number);
	while (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	return number;
}

/* --- the thread that takes it over --- */

struct catcher {
	int pidfd, number;
	int fd; /* what was caught, or -1 */
	atomic_bool give_up;
};

static void *catch_descriptor(void *argument)
{
	struct catcher *catcher = argument;

	while (catcher->fd < 0 && !atomic_load(&catcher->give_up)) {
		catcher->fd = pidfd_getfd(catcher->pidfd, catcher->number, 0);
		if (catcher->fd < 0)
			sched_yield();
	}
	return NULL;
}

/* --- in the target --- */

/* Opens, sleeps, closes. `*number` becomes the descriptor, or a negative errno. */
static int run_batch(struct sp_remote *remote, int expected, int flags, uint64_t sleep_ns,
                     int64_t *number, struct sp_error *err)
{
	struct timespec duration = {(time_t)(sleep_ns / SP_NS_PER_S),
	                            (long)(sleep_ns % SP_NS_PER_S)};
	size_t opened;
	int rc;

	sp_batch_begin(remote);
	opened = sp_batch_try(remote, "open a userfaultfd", SYS_userfaultfd, (uint64_t)flags, 0, 0,
	                      0, 0, 0);
	sp_batch_try(remote, "sleep", SYS_nanosleep,
	             sp_batch_put(remote, &duration, sizeof(duration)), 0, 0, 0, 0, 0);
	sp_batch_try(remote, "close the userfaultfd", SYS_close, (uint64_t)expected, 0, 0, 0, 0, 0);
	rc = sp_batch_run(remote, err);
	*number = rc < 0 ? rc : sp_batch_result(remote, opened);
	return rc;
}

/* Before Linux 5.11 there is only the kind that also reports the kernel's faults. */
static int run(struct sp_remote *remote, int expected, uint64_t sleep_ns, int64_t *number,
               struct sp_error *err)
{
	const int flags = O_CLOEXEC | O_NONBLOCK;
	int rc = run_batch(remote, expected, flags | UFFD_USER_MODE_ONLY, sleep_ns, number, err);

	if (rc == 0 && *number == -EINVAL)
		rc = run_batch(remote, expected, flags, sleep_ns, number, err);
	return rc;
}

/* Returns the descriptor, or -EAGAIN if it was not caught. */
static int try_once(struct sp_remote *remote, uint64_t sleep_ns, struct sp_error *err)
{
	struct catcher catcher = {
	        .pidfd = remote->process->pidfd,
	        .number = lowest_free(remote->process->pid),
	        .fd = -1,
	};
	pthread_t thread;
	int64_t number;
	int rc = pthread_create(&thread, NULL, catch_descriptor, &catcher);

	if (rc)
		return sp_fail_errno(err, rc, "cannot start a thread");
	rc = run(remote, catcher.number, sleep_ns, &number, err);
	atomic_store(&catcher.give_up, true);
	pthread_join(thread, NULL);
	if (rc == 0 && number < 0)
		rc = sp_fail_errno(err, (int)-number, "process %d cannot open a userfaultfd",
		                   remote->process->pid);
	if (rc == 0 && number != catcher.number)
		rc = sp_fail(err, EAGAIN,
		             "process %d shares its descriptors with a process that opens some: "
		             "stop that one",
		             remote->process->pid);
	if (rc == 0)
		return catcher.fd < 0 ? -EAGAIN : catcher.fd;
	sp_close_scope(&catcher.fd);
	return rc;
}

int sp_remote_userfaultfd(struct sp_remote *remote, struct sp_error *err)
{
	for (uint64_t sleep_ns = SLEEP_FIRST_NS; sleep_ns <= SLEEP_LAST_NS; sleep_ns *= 10) {
		struct sp_error reason = {0};
		int fd = try_once(remote, sleep_ns, &reason);

		if (fd >= 0)
			return fd;
		if (reason.code) {
			*err = reason;
			return fd;
		}
	}
	return sp_fail(err, EBUSY,
	               "cannot take over a userfaultfd of process %d in time: the machine is too "
	               "busy",
	               remote->process->pid);
}
