/*
 * O_PATH descriptors: a place in the file system that was never opened, of whatever type. An
 * unlinked regular file is left to its kind, which has its contents.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "kinds/file_path.h"
#include "kinds/removed.h"

#include "path_only.pb-c.h"

#include <fcntl.h>

static bool claims(const struct sp_open_file *file)
{
	bool unlinked_regular = S_ISREG(file->stat.st_mode) && file->stat.st_nlink == 0;

	return file->flags & O_PATH && !unlinked_regular;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__PathOnly message = SEALPOINT__PATH_ONLY__INIT;
	sp_cleanup_free char *path = NULL;
	struct sp_removed removed;
	int rc = sp_removed_find(file, &path, &removed, err);

	if (rc)
		return rc;
	message.path = path;
	message.removed = removed.is_removed ? &removed.message : NULL;
	message.type = file->stat.st_mode & S_IFMT;
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__PathOnly *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__path_only__descriptor, err);
}

static int open_at(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                   const Sealpoint__PathOnly *message, struct sp_error *err)
{
	int flags = sp_file_path_flags(file) | O_PATH;

	if (!message->removed)
		return sp_file_path_open(message->path, flags, message->type, err);
	/* By way of /proc there is no path to a symbolic link itself. */
	if (file->same_inode && message->type != S_IFLNK)
		return sp_reopen(builder->fds[file->same_inode], flags & ~O_NOFOLLOW, err);
	return sp_removed_open(message->path, message->removed, message->type, flags, err);
}

static int open_path(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                     struct sp_error *err)
{
	sp_cleanup_message Sealpoint__PathOnly *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	*fd = open_at(builder, file, message, err);
	return *fd < 0 ? *fd : 0;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__PathOnly *message = unpack(file->body, err);

	return message ? sp_file_path_check(message->path, err) : -EBADMSG;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__PathOnly *message = unpack(body, NULL);

	if (message)
		snprintf(text, size, "%s%s", message->path, message->removed ? ", removed" : "");
}

const struct sp_file_kind sp_kind_path_only = {
        .name = "path_only",
        .title = "path descriptor",
        .claims = claims,
        .save = save,
        .open = open_path,
        .describe = describe,
        .check = check,
};
