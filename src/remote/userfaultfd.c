/* A userfaultfd of another process's memory: see userfaultfd.h. */
#include "remote/userfaultfd.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>

/* Before Linux 5.11 there is only the kind that also reports the kernel's faults. */
static int create(struct sp_remote *remote, int64_t *number, struct sp_error *err)
{
	int rc = sp_remote_try(remote, number, err, "open a userfaultfd", SYS_userfaultfd,
	                       O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY, 0, 0, 0, 0, 0);

	if (rc == 0 && *number == -EINVAL)
		rc = sp_remote_try(remote, number, err, "open a userfaultfd", SYS_userfaultfd,
		                   O_CLOEXEC | O_NONBLOCK, 0, 0, 0, 0, 0);
	return rc;
}

int sp_remote_userfaultfd(struct sp_remote *remote, struct sp_error *err)
{
	sp_cleanup_close int fd = -1;
	int64_t number;
	int rc = create(remote, &number, err);

	if (rc < 0)
		return rc;
	if (number < 0)
		return sp_fail_errno(err, (int)-number, "process %d cannot open a userfaultfd",
		                     remote->process->pid);
	fd = pidfd_getfd(remote->process->pidfd, (int)number, 0);
	rc = sp_remote_call(remote, NULL, err, "close the userfaultfd", SYS_close, (uint64_t)number,
	                    0, 0, 0, 0, 0);
	if (rc < 0)
		return rc;
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot take over a userfaultfd of process %d",
		                     remote->process->pid);
	return sp_steal_fd(&fd);
}
