/*
 * Opening a checkpoint and the chain it stands on: see checkpoint.h. The chain is followed upward
 * by the manifests, then opened from its oldest member down, so that each finds its parent checked.
 */
#include "image/checkpoint_parts.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* --- one member of the chain --- */

/* Opens the directory and reads the manifest. `from`: what a relative path begins at. */
static int open_directory(struct sp_checkpoint *checkpoint, int from, const char *relative,
                          struct sp_error *err)
{
	checkpoint->dirfd = openat(from, relative, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (checkpoint->dirfd < 0 && errno == ENOTDIR)
		return sp_fail(err, ENOTDIR,
		               "%s is not a checkpoint: it is not a directory (give the directory "
		               "that was named when it was saved)",
		               checkpoint->path);
	if (checkpoint->dirfd < 0)
		return sp_fail_errno(err, errno, "cannot open checkpoint %s", checkpoint->path);
	return sp_manifest_read(checkpoint->dirfd, checkpoint->path, &checkpoint->manifest, err);
}

/* Where a record of this type is kept, or NULL: a newer version knows more types. */
static struct sp_array *messages_of(struct sp_checkpoint *checkpoint, enum sp_record_type type,
                                    const ProtobufCMessageDescriptor **descriptor)
{
	switch (type) {
	case SP_RECORD_PROCESS:
		*descriptor = &sealpoint__process__descriptor;
		return &checkpoint->processes;
	case SP_RECORD_THREAD:
		*descriptor = &sealpoint__thread__descriptor;
		return &checkpoint->threads;
	case SP_RECORD_VMA:
		*descriptor = &sealpoint__vma__descriptor;
		return &checkpoint->vmas;
	case SP_RECORD_OPEN_FILE:
		*descriptor = &sealpoint__open_file__descriptor;
		return &checkpoint->files;
	case SP_RECORD_DESCRIPTOR:
		*descriptor = &sealpoint__descriptor__descriptor;
		return &checkpoint->descriptors;
	default:
		return NULL;
	}
}

int sp_checkpoint_read_records(struct sp_checkpoint *checkpoint, struct sp_record_reader *reader,
                               struct sp_error *err)
{
	struct sp_record record;
	int rc;

	while ((rc = sp_record_next(reader, &record, err)) > 0) {
		const ProtobufCMessageDescriptor *descriptor;
		struct sp_array *messages = messages_of(checkpoint, record.type, &descriptor);
		ProtobufCMessage *message;

		if (!messages)
			continue;
		message = sp_record_unpack(reader, &record, descriptor, err);
		if (!message)
			return -EBADMSG;
		sp_array_append(messages, &message);
	}
	return rc;
}

static int read_records(struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	struct sp_record_reader reader;
	int rc = sp_record_reader_open(&reader, checkpoint->dirfd, SP_IMAGE_RECORDS, err);

	if (rc < 0)
		return rc;
	rc = sp_checkpoint_read_records(checkpoint, &reader, err);
	sp_record_reader_close(&reader);
	return rc;
}

static int open_contents(struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	struct sp_page_store *parent = checkpoint->parent ? checkpoint->parent->pages : NULL;
	int rc = sp_page_store_open(&checkpoint->pages, checkpoint->dirfd, parent, err);

	if (rc == 0)
		rc = read_records(checkpoint, err);
	if (rc == 0)
		rc = sp_checkpoint_check(checkpoint, err);
	if (rc == -EBADMSG)
		return sp_error_context(err, "checkpoint %s is damaged, use another copy of it",
		                        checkpoint->path);
	return rc < 0 ? sp_error_context(err, "cannot open checkpoint %s", checkpoint->path) : 0;
}

/* --- the chain --- */

static bool same_id(ProtobufCBinaryData a, ProtobufCBinaryData b)
{
	return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

/* Is `parent` what `child` was cut from, and not one of the chain that led to it? */
static int check_link(const struct sp_checkpoint *youngest, const struct sp_checkpoint *child,
                      const struct sp_checkpoint *parent, struct sp_error *err)
{
	if (!same_id(child->manifest->parent_id, parent->manifest->id))
		return sp_fail(err, EBADMSG,
		               "%s is not the checkpoint that %s stands on; put that one back",
		               parent->path, child->path);
	for (const struct sp_checkpoint *known = youngest; known != parent; known = known->parent) {
		if (same_id(known->manifest->id, parent->manifest->id))
			return sp_fail(err, ELOOP, "checkpoint %s stands on itself, by way of %s",
			               known->path, child->path);
	}
	return 0;
}

/* Reads the manifest of the parent of `child`, if it has one, and hangs it there. */
static int open_parent(const struct sp_checkpoint *youngest, struct sp_checkpoint *child,
                       struct sp_error *err)
{
	const char *relative = child->manifest->parent_path;
	struct sp_checkpoint *parent;
	int printed, rc;

	if (relative[0] == '\0')
		return 0;
	parent = child->parent = sp_checkpoint_new();
	printed = snprintf(parent->path, sizeof(parent->path), "%s/%s", child->path, relative);
	if (printed < 0 || (size_t)printed >= sizeof(parent->path))
		return sp_fail_errno(err, ENAMETOOLONG, "cannot open the parent of checkpoint %s",
		                     child->path);
	rc = open_directory(parent, child->dirfd, relative, err);
	if (rc < 0)
		return sp_error_context(err, "checkpoint %s needs its parent", child->path);
	return check_link(youngest, child, parent, err);
}

static int open_chain(struct sp_checkpoint *youngest, struct sp_error *err)
{
	sp_cleanup_array struct sp_array chain = SP_ARRAY_OF(struct sp_checkpoint *);
	int rc = open_directory(youngest, AT_FDCWD, youngest->path, err);

	for (struct sp_checkpoint *level = youngest; rc == 0 && level; level = level->parent) {
		sp_array_append(&chain, &level);
		rc = open_parent(youngest, level, err);
	}
	for (size_t i = chain.count; rc == 0 && i-- > 0;)
		rc = open_contents(sp_array_pointer(&chain, i), err);
	return rc;
}

int sp_checkpoint_open(struct sp_checkpoint **checkpoint, const char *path, struct sp_error *err)
{
	struct sp_checkpoint *opened = sp_checkpoint_new();
	int printed = snprintf(opened->path, sizeof(opened->path), "%s", path);
	int rc;

	if (printed < 0 || (size_t)printed >= sizeof(opened->path))
		rc = sp_fail_errno(err, ENAMETOOLONG, "cannot open checkpoint %s", path);
	else
		rc = open_chain(opened, err);
	if (rc < 0)
		sp_checkpoint_close(opened);
	else
		*checkpoint = opened;
	return rc;
}
