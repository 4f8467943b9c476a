/* Open directories, with the place up to which they have been read. */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "kinds/file_path.h"
#include "kinds/removed.h"

#include "directory.pb-c.h"

#include <fcntl.h>

static bool claims(const struct sp_open_file *file)
{
	return S_ISDIR(file->stat.st_mode);
}

/* Nothing tells of dnotify, but nothing else sends signals for a directory. */
static bool is_notifying(const struct sp_open_file *file)
{
	return fcntl(file->fd, F_GETOWN) != 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Directory message = SEALPOINT__DIRECTORY__INIT;
	sp_cleanup_free char *path = NULL;
	struct sp_removed removed;
	int rc;

	if (is_notifying(file))
		return sp_fail(err, ENOTSUP,
		               "the program is told by signals when it changes (F_NOTIFY), and of "
		               "which changes cannot be found out; let it close the directory "
		               "first, or use inotify in its place");
	rc = sp_removed_find(file, &path, &removed, err);
	if (rc)
		return rc;
	message.path = path;
	message.position = file->position;
	message.removed = removed.is_removed ? &removed.message : NULL;
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__Directory *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__directory__descriptor, err);
}

/* There is nothing to be read in it, wherever it was. */
static int open_removed(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                        const Sealpoint__Directory *message, struct sp_error *err)
{
	int flags = sp_file_path_flags(file);

	if (file->same_inode)
		return sp_reopen(builder->fds[file->same_inode], flags, err);
	return sp_removed_open(message->path, message->removed, S_IFDIR, flags, err);
}

static int open_at(const Sealpoint__Directory *message, int flags, int *fd, struct sp_error *err)
{
	*fd = sp_file_path_open(message->path, flags, S_IFDIR, err);
	if (*fd < 0)
		return *fd;
	if (message->position && lseek(*fd, message->position, SEEK_SET) < 0)
		return sp_fail_errno(err, errno, "cannot go to where it had been read");
	return 0;
}

static int open_directory(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                          struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Directory *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	if (!message->removed)
		return open_at(message, sp_file_path_flags(file), fd, err);
	*fd = open_removed(builder, file, message, err);
	return *fd < 0 ? *fd : 0;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Directory *message = unpack(file->body, err);

	return message ? sp_file_path_check(message->path, err) : -EBADMSG;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Directory *message = unpack(body, NULL);

	if (message)
		snprintf(text, size, "%s%s", message->path, message->removed ? ", removed" : "");
}

const struct sp_file_kind sp_kind_directory = {
        .name = "directory",
        .title = "directory",
        .claims = claims,
        .save = save,
        .open = open_directory,
        .describe = describe,
        .check = check,
};
