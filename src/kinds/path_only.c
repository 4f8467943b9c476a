/*
 * O_PATH descriptors: a place in the file system that was never opened, of whatever type. An
 * unlinked regular file is left to its kind, which has its contents.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "kinds/file_path.h"

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
	int rc = sp_file_path_find(file, &path, err);

	if (rc)
		return rc;
	message.path = path;
	message.type = file->stat.st_mode & S_IFMT;
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__PathOnly *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__path_only__descriptor, err);
}

static int open_path(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                     struct sp_error *err)
{
	sp_cleanup_message Sealpoint__PathOnly *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	*fd = sp_file_path_open(message->path, sp_file_path_flags(file) | O_PATH, message->type,
	                        err);
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
		snprintf(text, size, "%s", message->path);
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
