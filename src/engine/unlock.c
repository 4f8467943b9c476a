/*
 * Letting go of what a dump with --tcp-established holds (kinds/connection_lock.h): the lock of a
 * checkpoint that nobody is going to restore; and sockets in repair mode of a program that runs on, when
 * sealpoint and its worker were killed in the few microseconds for which a dump puts them there. The lock of a
 * dump that was killed needs nobody: the kernel takes it away.
 */
#include "engine/engine.h"

#include "base/cleanup.h"
#include "kinds/connection_lock.h"
#include "kinds/tcp_repair.h"

#include <stdlib.h>
#include <sys/pidfd.h>

bool sp_checkpoint_has_lock(const char *directory)
{
	uint8_t id[SP_CHECKPOINT_ID_SIZE];
	struct sp_error unheard = {0};

	return !sp_checkpoint_read_id(directory, id, &unheard) && sp_connection_is_locked(id);
}

int sp_unlock_checkpoint(const char *directory, struct sp_error *err)
{
	uint8_t id[SP_CHECKPOINT_ID_SIZE];
	int rc = sp_checkpoint_read_id(directory, id, err);

	if (rc)
		return rc;
	if (!sp_connection_is_locked(id))
		return sp_fail(err, ENOENT, "no connections of the checkpoint %s are locked here",
		               directory);
	if (sp_connection_unlock(id, err))
		return sp_error_context(err, "cannot unlock the connections of %s", directory);
	return 0;
}

int sp_unlock_process(pid_t pid, unsigned *count, struct sp_error *err)
{
	sp_cleanup_close int pidfd = pidfd_open(pid, 0);
	sp_cleanup_free char *path = sp_format("/proc/%d/fd", pid);
	sp_cleanup_dir DIR *directory = NULL;
	struct dirent *entry;

	*count = 0;
	if (pidfd >= 0)
		directory = opendir(path);
	if (!directory)
		return sp_fail_errno(err, errno, "cannot look at the descriptors of process %d",
		                     pid);
	while ((entry = readdir(directory))) {
		sp_cleanup_close int fd = -1;

		if (entry->d_name[0] == '.')
			continue;
		fd = pidfd_getfd(pidfd, atoi(entry->d_name), 0);
		if (fd < 0 && errno != EBADF)
			return sp_fail_errno(err, errno,
			                     "cannot look at descriptor %s of process %d",
			                     entry->d_name, pid);
		*count += fd >= 0 && sp_tcp_connection_heal(fd);
	}
	return 0;
}
