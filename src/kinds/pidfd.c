/*
 * pidfd_open(2): a process, or a thread (PIDFD_THREAD), that is waited for or signalled without its
 * number. Opened anew when all processes and threads exist. One that has ended and was collected has
 * no number; for it a process is made that ends in the same way.
 *
 * A process that is not saved along may be anybody, or nobody, by the time of the restore: refused.
 */
#include "kinds/registry.h"

#include "base/kernel_abi.h"
#include "kinds/stand_in.h"
#include "proc/children.h"
#include "proc/fdinfo.h"
#include "proc/stat.h"

#include "pidfd.pb-c.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>

static bool claims(const struct sp_open_file *file)
{
	return !strcmp(file->link, "anon_inode:[pidfd]") ||
	       !strncmp(file->link, "pidfd:", strlen("pidfd:"));
}

static int refuse_outside(pid_t id, struct sp_error *err)
{
	struct sp_stat stat = {0};

	sp_stat_read(id, id, &stat, NULL);
	return sp_fail(err, ENOTSUP,
	               "it refers to process %d (%s), which is not saved along; let the program "
	               "close it first, or dump a process that both descend from",
	               id, stat.comm);
}

/* How a process that is gone has ended. Linux tells since 6.15; before, nobody could ask. */
static uint32_t exit_status(int fd)
{
	struct sp_pidfd_info info = {.mask = SP_PIDFD_INFO_EXIT};

	if (ioctl(fd, SP_PIDFD_GET_INFO, &info) || !(info.mask & SP_PIDFD_INFO_EXIT))
		return 0;
	return (uint32_t)info.exit_code;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Pidfd message = SEALPOINT__PIDFD__INIT;
	const char *text = sp_fdinfo_find(file->fdinfo, "Pid:");
	pid_t id = text ? atoi(text) : 0;

	if (!id)
		return sp_fail(err, ENOTSUP,
		               "it refers to a process of another pid namespace; let the program "
		               "close it first");
	if (id > 0 && !sp_is_of_tree(id, saver->root))
		return refuse_outside(id, err);
	if (id > 0)
		message.id = (uint32_t)id;
	else
		message.wait_status = exit_status(file->fd);
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__Pidfd *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__pidfd__descriptor, err);
}

static int open_id(pid_t id, const Sealpoint__OpenFile *file, int *fd, struct sp_error *err)
{
	*fd = pidfd_open(id, file->flags & (SP_PIDFD_THREAD | O_NONBLOCK));
	return *fd < 0 ? sp_fail_errno(err, errno, "cannot open it") : 0;
}

static int open_ended(const Sealpoint__Pidfd *message, const Sealpoint__OpenFile *file, int *fd,
                      struct sp_error *err)
{
	struct sp_stand_in process;
	int rc = sp_stand_in_begin(&process, 0, message->wait_status, err);

	if (rc)
		return rc;
	rc = open_id(process.pid, file, fd, err);
	sp_stand_in_end(&process);
	return rc;
}

static int open_pidfd(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                      struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Pidfd *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	return message->id ? open_id((pid_t)message->id, file, fd, err)
	                   : open_ended(message, file, fd, err);
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Pidfd *message = unpack(body, NULL);

	if (message && message->id)
		snprintf(text, size, "process %u", message->id);
	else if (message)
		snprintf(text, size, "a process that has ended");
}

const struct sp_file_kind sp_kind_pidfd = {
        .name = "pidfd",
        .title = "pidfd",
        .late = true,
        .claims = claims,
        .save = save,
        .open = open_pidfd,
        .describe = describe,
};
