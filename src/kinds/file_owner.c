/* Owners of open files: see file_owner.h. */
#include "kinds/file_owner.h"

#include "proc/children.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int refuse_foreign(const struct f_owner_ex *owner, struct sp_error *err)
{
	return sp_fail(err, ENOTSUP,
	               "its signals go to %s %d, which is not saved along; let the program set the "
	               "owner to "
	               "itself or to nobody before the dump (fcntl F_SETOWN)",
	               owner->type == F_OWNER_PGRP ? "process group" : "process", owner->pid);
}

static bool has_member(const struct sp_file_table *table, pid_t group)
{
	for (size_t i = 0; i < table->descriptors.count; i++) {
		const struct sp_descriptor *descriptor = sp_array_at(&table->descriptors, i);

		if (getpgid(descriptor->pid) == group)
			return true;
	}
	return false;
}

/* The owner must be saved along: a foreign id may be anybody's by the time of the restore. */
static bool is_foreign(const struct f_owner_ex *owner, const struct sp_file_saver *saver)
{
	if (owner->type == F_OWNER_PGRP)
		return !has_member(saver->table, owner->pid);
	return !sp_is_of_tree(owner->pid, saver->root);
}

int sp_file_owner_save(const struct sp_file_saver *saver, const struct sp_open_file *file,
                       Sealpoint__FileOwner *owner, bool *present, struct sp_error *err)
{
	struct f_owner_ex who = {0};
	uid_t ids[2] = {0, 0};
	int signal;

	*present = false;
	if (sp_file_is_mapping_only(file) || file->flags & O_PATH)
		return 0;
	signal = fcntl(file->fd, F_GETSIG);
	if (signal < 0 || fcntl(file->fd, F_GETOWN_EX, &who))
		return sp_fail_errno(err, errno, "cannot read its owner");
	if (!who.pid && !signal)
		return 0;
	if (who.pid && is_foreign(&who, saver))
		return refuse_foreign(&who, err);
	if (fcntl(file->fd, F_GETOWNER_UIDS, ids))
		return sp_fail_errno(err, errno, "cannot read the credentials of its owner");
	*present = true;
	owner->type = (uint32_t)who.type;
	owner->id = (uint32_t)who.pid;
	owner->signal = (uint32_t)signal;
	owner->uid = ids[0];
	owner->euid = ids[1];
	return 0;
}

/*
 * The kernel remembers who set an owner, and later sends signals with those rights. So for that one
 * call this thread takes on the program's user ids; a saved id of 0 leads back. The raw system
 * call, because the C library would change all threads.
 */
static int set_owner_as(int fd, const struct f_owner_ex *who, uid_t uid, uid_t euid)
{
	int rc;

	if (syscall(SYS_setresuid, uid, euid, 0))
		return -errno;
	rc = fcntl(fd, F_SETOWN_EX, who) ? -errno : 0;
	if (syscall(SYS_setresuid, 0, 0, 0))
		rc = -errno;
	return rc;
}

int sp_file_owner_set(int fd, const Sealpoint__FileOwner *owner, struct sp_error *err)
{
	const struct f_owner_ex who = {.type = (int)owner->type, .pid = (pid_t)owner->id};
	int rc = 0;

	if (who.pid)
		rc = set_owner_as(fd, &who, owner->uid, owner->euid);
	if (!rc && owner->signal && fcntl(fd, F_SETSIG, (int)owner->signal))
		rc = -errno;
	if (rc)
		return sp_fail_errno(err, -rc, "cannot give it its owner, process %d, again",
		                     who.pid);
	return 0;
}
