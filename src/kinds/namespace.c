/*
 * Descriptors of namespaces (/proc/PID/ns/NAME): of those that the program lives in, which are the ones of sealpoint
 * then and at the restore, and of those that have a name somewhere (`ip netns`), where the program finds them again.
 * Others are refused.
 */
#include "kinds/registry.h"

#include "namespace.pb-c.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static const struct {
	int type; /* as NS_GET_NSTYPE tells */
	const char *name;
} names[] = {
        {CLONE_NEWNS, "mnt"},    {CLONE_NEWPID, "pid"},       {CLONE_NEWNET, "net"},
        {CLONE_NEWIPC, "ipc"},   {CLONE_NEWUTS, "uts"},       {CLONE_NEWUSER, "user"},
        {CLONE_NEWTIME, "time"}, {CLONE_NEWCGROUP, "cgroup"},
};

static const char *name_of(int type)
{
	for (size_t i = 0; i < SP_COUNT_OF(names); i++)
		if (names[i].type == type)
			return names[i].name;
	return NULL;
}

/* Where it has a name it looks as any file that is empty and may only be read. */
static bool claims(const struct sp_open_file *file)
{
	struct statfs statfs;

	return S_ISREG(file->stat.st_mode) && (file->stat.st_mode & 0777) == 0444 &&
	       !file->stat.st_size && !fstatfs(file->fd, &statfs) && statfs.f_type == NSFS_MAGIC;
}

static bool leads_to(const char *path, const struct stat *wanted)
{
	struct stat stat;

	return !fstatat(AT_FDCWD, path, &stat, 0) && stat.st_ino == wanted->st_ino &&
	       stat.st_dev == wanted->st_dev;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Namespace message = SEALPOINT__NAMESPACE__INIT;
	const char *name = name_of(ioctl(file->fd, NS_GET_NSTYPE));
	sp_cleanup_free char *own = sp_format("/proc/self/ns/%s", name ?: "");

	if (!name)
		return sp_fail(err, ENOTSUP,
		               "it is a namespace of a sort that sealpoint does not know; let the "
		               "program close it first");
	message.name = (char *)name;
	if (file->link[0] == '/' && leads_to(file->link, &file->stat))
		message.path = file->link;
	else if (!leads_to(own, &file->stat))
		return sp_fail(err, ENOTSUP,
		               "it is not the %s namespace that the program lives in, and has no "
		               "name anywhere; let the program close it first",
		               name);
	sp_blob_pack(body, &message.base);
	return 0;
}

static int open_namespace(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                          struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Namespace *message =
	        sp_blob_unpack(file->body, &sealpoint__namespace__descriptor, err);
	sp_cleanup_free char *own = NULL;
	sp_cleanup_close int opened = -1;
	const char *path, *name;

	if (!message)
		return -EBADMSG;
	own = sp_format("/proc/self/ns/%s", message->name);
	path = *message->path ? message->path : own;
	opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (opened < 0)
		return sp_fail_errno(err, errno, "cannot open %s", path);
	name = name_of(ioctl(opened, NS_GET_NSTYPE));
	if (!name || strcmp(name, message->name))
		return sp_fail(err, ENOENT, "%s is not a %s namespace any more", path,
		               message->name);
	*fd = sp_steal_fd(&opened);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Namespace *message =
	        sp_blob_unpack(body, &sealpoint__namespace__descriptor, NULL);

	if (message)
		snprintf(text, size, "%s, %s", message->name,
		         *message->path ? message->path : "the program's own");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Namespace *message =
	        sp_blob_unpack(file->body, &sealpoint__namespace__descriptor, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < SP_COUNT_OF(names); i++)
		if (!strcmp(names[i].name, message->name))
			return 0;
	return sp_fail_damaged(err, "an unknown sort of namespace");
}

const struct sp_file_kind sp_kind_namespace = {
        .name = "namespace",
        .title = "namespace",
        .claims = claims,
        .save = save,
        .open = open_namespace,
        .describe = describe,
        .check = check,
};
