/*
 * Opening a checkpoint and the chain it stands on: see checkpoint.h. From the youngest member on,
 * each is opened and checked, and its page store is looked through into the next one's. Of those
 * below the youngest only the manifest is kept and the file with the contents of pages is open: a
 * chain of hundreds takes little more than one checkpoint.
 */
#include "image/checkpoint_parts.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

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

/*
 * Are the files those that the manifest was written for? Each may be whole and still belong to another
 * checkpoint. The bytes of pages.img have their checksums in pages.idx.
 */
static int check_checksums(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	for (size_t i = 0; i < checkpoint->manifest->n_files; i++) {
		const Sealpoint__ImageFile *file = checkpoint->manifest->files[i];
		uint64_t checksum;
		int rc;

		if (strcmp(file->name, SP_IMAGE_PAGES) == 0)
			continue;
		rc = sp_file_checksum(checkpoint->dirfd, file->name, &checksum, err);
		if (rc < 0)
			return rc;
		if (checksum != file->checksum)
			return sp_fail(err, EBADMSG, "%s does not match its checksum", file->name);
	}
	return 0;
}

static int damaged(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	if (err->code == EBADMSG)
		return sp_error_context(err, "checkpoint %s is damaged, use another copy of it",
		                        checkpoint->path);
	return sp_error_context(err, "cannot open checkpoint %s", checkpoint->path);
}

static int open_contents(struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	int rc = sp_page_store_open_alone(&checkpoint->pages, checkpoint->dirfd, err);

	if (rc == 0)
		rc = read_records(checkpoint, err);
	if (rc == 0)
		rc = check_checksums(checkpoint, err);
	if (rc == 0)
		rc = sp_checkpoint_check(checkpoint, err);
	return rc < 0 ? damaged(checkpoint, err) : 0;
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

/*
 * Where the parent is: as the relative path leads from where the child really is, without "..", so
 * that paths do not grow down the chain.
 */
static char *parent_path(const struct sp_checkpoint *child)
{
	const char *relative = child->manifest->parent_path;
	sp_cleanup_free char *self = sp_format("/proc/self/fd/%d", child->dirfd);
	sp_cleanup_free char *path = NULL;

	if (sp_read_link(AT_FDCWD, self, &path, NULL) < 0)
		return sp_format("%s/%s", child->path, relative);
	while (strncmp(relative, "../", 3) == 0 && strrchr(path, '/') > path) {
		*strrchr(path, '/') = '\0';
		relative += 3;
	}
	return sp_format("%s/%s", path, relative);
}

/* Reads the manifest of the parent of `child`, and hangs it there. */
static int open_parent(const struct sp_checkpoint *youngest, struct sp_checkpoint *child,
                       struct sp_error *err)
{
	struct sp_checkpoint *parent = child->parent = sp_checkpoint_new();
	sp_cleanup_free char *path = parent_path(child);
	int printed = snprintf(parent->path, sizeof(parent->path), "%s", path), rc;

	if (printed < 0 || (size_t)printed >= sizeof(parent->path))
		return sp_fail_errno(err, ENAMETOOLONG, "cannot open the parent of checkpoint %s",
		                     child->path);
	rc = open_directory(parent, child->dirfd, child->manifest->parent_path, err);
	if (rc == -ENOENT && parent->dirfd < 0)
		return sp_fail(err, ENOENT,
		               "%s, the parent of %s, is not there; put it back, or use a "
		               "checkpoint that was merged",
		               parent->path, child->path);
	return rc < 0 ? rc : check_link(youngest, child, parent, err);
}

/* Opens what lies below `child`, and lets the youngest see through to it. */
static int open_below(struct sp_checkpoint *youngest, struct sp_checkpoint *child,
                      sp_member_visit *visit, void *context, struct sp_error *err)
{
	int rc = open_parent(youngest, child, err);

	if (child != youngest)
		close(sp_steal_fd(&child->dirfd));
	if (rc == 0)
		rc = open_contents(child->parent, err);
	if (rc == 0 && visit)
		rc = visit(child->parent, context, err);
	if (rc < 0)
		return rc;
	rc = sp_page_store_look_through(youngest->pages, child->parent->pages, err);
	sp_checkpoint_retire(child->parent);
	return rc < 0 ? damaged(child, err) : 0;
}

static int open_chain(struct sp_checkpoint *youngest, sp_member_visit *visit, void *context,
                      struct sp_error *err)
{
	struct sp_checkpoint *level = youngest;
	int rc = open_directory(youngest, AT_FDCWD, youngest->path, err);

	if (rc == 0)
		rc = open_contents(youngest, err);
	if (rc == 0 && visit)
		rc = visit(youngest, context, err);
	if (rc < 0)
		return rc;
	if (level->manifest->parent_path[0])
		sp_raise_soft_limit(RLIMIT_NOFILE); /* a file of each member stays open */
	while (level->manifest->parent_path[0]) {
		rc = open_below(youngest, level, visit, context, err);
		if (rc < 0)
			return sp_error_context(err, "cannot open checkpoint %s", youngest->path);
		level = level->parent;
	}
	if (level != youngest)
		close(sp_steal_fd(&level->dirfd));
	rc = sp_page_store_check_whole(youngest->pages, err);
	return rc < 0 ? damaged(level, err) : 0;
}

int sp_checkpoint_open_members(struct sp_checkpoint **checkpoint, const char *path,
                               sp_member_visit *visit, void *context, struct sp_error *err)
{
	struct sp_checkpoint *opened = sp_checkpoint_new();
	int printed = snprintf(opened->path, sizeof(opened->path), "%s", path);
	int rc;

	if (printed < 0 || (size_t)printed >= sizeof(opened->path))
		rc = sp_fail_errno(err, ENAMETOOLONG, "cannot open checkpoint %s", path);
	else
		rc = open_chain(opened, visit, context, err);
	if (rc < 0)
		sp_checkpoint_close(opened);
	else
		*checkpoint = opened;
	return rc;
}

int sp_checkpoint_read_id(const char *path, uint8_t id[SP_CHECKPOINT_ID_SIZE], struct sp_error *err)
{
	sp_cleanup_close int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	Sealpoint__Manifest *manifest;
	int rc;

	if (dirfd < 0)
		return sp_fail_errno(err, errno, "cannot open checkpoint %s", path);
	rc = sp_manifest_read(dirfd, path, &manifest, err);
	if (rc < 0)
		return rc;
	memcpy(id, manifest->id.data, SP_CHECKPOINT_ID_SIZE);
	sealpoint__manifest__free_unpacked(manifest, NULL);
	return 0;
}

int sp_checkpoint_open(struct sp_checkpoint **checkpoint, const char *path, struct sp_error *err)
{
	return sp_checkpoint_open_members(checkpoint, path, NULL, NULL, err);
}

int sp_checkpoint_of_records(struct sp_checkpoint **checkpoint, uint8_t *bytes, size_t size,
                             struct sp_error *err)
{
	struct sp_checkpoint *made = sp_checkpoint_new();
	struct sp_record_reader reader;
	int rc;

	sp_record_reader_memory(&reader, "memory", bytes, size);
	rc = sp_checkpoint_read_records(made, &reader, err);
	sp_record_reader_close(&reader);
	if (rc < 0)
		sp_checkpoint_close(made);
	else
		*checkpoint = made;
	return rc;
}
