/*
 * Character devices of the memory family that keep nothing for those who have them open: /dev/null
 * and its like. /dev/kmsg remembers for each reader how far it has read, so only writers of it are
 * taken.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "kinds/file_path.h"

#include "device.pb-c.h"

#include <fcntl.h>
#include <sys/sysmacros.h>

#define MEMORY_MAJOR 1
#define MINOR_KMSG 11

/* By minor number: where such a device is usually found. */
static const char *const usual_paths[] = {
        [3] = "/dev/null",   [5] = "/dev/zero",    [7] = "/dev/full",
        [8] = "/dev/random", [9] = "/dev/urandom", [MINOR_KMSG] = "/dev/kmsg",
};

static const char *usual_path(unsigned device_minor)
{
	if (device_minor >= SP_COUNT_OF(usual_paths))
		return NULL;
	return usual_paths[device_minor];
}

static bool claims(const struct sp_open_file *file)
{
	return S_ISCHR(file->stat.st_mode) && major(file->stat.st_rdev) == MEMORY_MAJOR &&
	       usual_path(minor(file->stat.st_rdev));
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Device message = SEALPOINT__DEVICE__INIT;

	message.path = file->link;
	message.minor = minor(file->stat.st_rdev);
	if (message.minor == MINOR_KMSG && (file->flags & O_ACCMODE) != O_WRONLY)
		return sp_fail(
		        err, ENOTSUP,
		        "how far it has been read cannot be saved; let the program close it first");
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__Device *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__device__descriptor, err);
}

static bool is_device(const char *path, unsigned device_minor)
{
	struct stat found;

	return !stat(path, &found) && S_ISCHR(found.st_mode) &&
	       found.st_rdev == makedev(MEMORY_MAJOR, device_minor);
}

/* The same path, or where that one is gone (a root of its own, for example) the usual one. */
static int open_at(const Sealpoint__Device *message, int flags, int *fd, struct sp_error *err)
{
	const char *path = message->path;

	if (!is_device(path, message->minor))
		path = usual_path(message->minor);
	if (!is_device(path, message->minor))
		return sp_fail(err, ENODEV,
		               "neither %s nor %s is the character device %u:%u here; make it with "
		               "mknod(1)",
		               message->path, path, MEMORY_MAJOR, message->minor);
	*fd = sp_file_path_open(path, flags, S_IFCHR, err);
	return *fd < 0 ? *fd : 0;
}

static int open_device(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                       struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Device *message = unpack(file->body, err);

	return message ? open_at(message, sp_file_path_flags(file), fd, err) : -EBADMSG;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Device *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	if (!usual_path(message->minor))
		return sp_fail_damaged(err, "an unknown device");
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Device *message = unpack(body, NULL);

	if (message)
		snprintf(text, size, "%s", message->path);
}

const struct sp_file_kind sp_kind_device = {
        .name = "device",
        .title = "device",
        .claims = claims,
        .save = save,
        .open = open_device,
        .describe = describe,
        .check = check,
};
