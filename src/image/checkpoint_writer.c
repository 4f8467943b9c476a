/*
 * Writing a checkpoint directory: see checkpoint.h. Everything happens in the partial directory
 * beside the final one, on the same file system, so that the last step is one rename(2); or one
 * exchange of both, where a checkpoint is replaced by another form of itself.
 */
#include "image/checkpoint_parts.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "image/partial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- beginning --- */

/*
 * The final path: as given without slashes at its end, or where it really is if it exists, so that
 * "." and links to directories work.
 */
static int set_paths(struct sp_checkpoint_writer *writer, const char *path, struct sp_error *err)
{
	sp_cleanup_free char *real = realpath(path, NULL);
	size_t length;
	int printed;

	if (!real && errno != ENOENT)
		return sp_fail_errno(err, errno, "cannot create checkpoint %s", path);
	printed = snprintf(writer->path, sizeof(writer->path), "%s", real ? real : path);
	if (printed < 0 || (size_t)printed >= sizeof(writer->path))
		return sp_fail_errno(err, ENAMETOOLONG, "cannot create checkpoint %s", path);
	length = (size_t)printed;
	while (length > 1 && writer->path[length - 1] == '/')
		writer->path[--length] = '\0';
	if (sp_partial_name(writer->path, writer->partial) < 0)
		return sp_fail_errno(err, ENAMETOOLONG, "cannot create checkpoint %s", path);
	return 0;
}

static bool directory_is_empty(const char *path)
{
	sp_cleanup_dir DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			return false;
	}
	return dir != NULL;
}

/*
 * What stands at the final path must be nothing, or an empty directory that a rename can replace.
 */
static int check_place(const struct sp_checkpoint_writer *writer, struct sp_error *err)
{
	struct stat there, beside;

	if (lstat(writer->path, &there) < 0) {
		if (errno == ENOENT)
			return 0;
		return sp_fail_errno(err, errno, "cannot create checkpoint %s", writer->path);
	}
	if (!S_ISDIR(there.st_mode))
		return sp_fail(err, ENOTDIR,
		               "cannot create checkpoint %s: something that is not a directory has "
		               "this name; choose another one",
		               writer->path);
	if (!directory_is_empty(writer->path))
		return sp_fail(err, EEXIST,
		               "cannot create checkpoint %s: the directory is not empty; choose "
		               "another one or remove it first",
		               writer->path);
	if (fstat(writer->dirfd, &beside) == 0 && beside.st_dev != there.st_dev)
		return sp_fail(err, EBUSY,
		               "cannot create checkpoint %s: a file system is mounted there; "
		               "choose a directory inside of it",
		               writer->path);
	return 0;
}

static int make_partial(struct sp_checkpoint_writer *writer, struct sp_error *err)
{
	writer->dirfd = sp_partial_make(writer->path, writer->partial, err);
	if (writer->dirfd >= 0)
		sp_when_out_of_memory(sp_partial_remove, writer->partial);
	else
		writer->partial[0] = '\0'; /* not ours to remove */
	return writer->dirfd < 0 ? writer->dirfd : 0;
}

static int create(struct sp_checkpoint_writer *writer, const char *path, bool replaces,
                  const struct sp_page_writer_options *options, struct sp_error *err)
{
	int rc;

	*writer = (struct sp_checkpoint_writer){.dirfd = -1, .replaces = replaces};
	rc = set_paths(writer, path, err);
	if (rc < 0) {
		writer->partial[0] = '\0';
		return rc;
	}
	rc = make_partial(writer, err);
	if (rc == 0 && !replaces)
		rc = check_place(writer, err);
	if (rc == 0)
		rc = sp_record_writer_open(&writer->records, writer->dirfd, SP_IMAGE_RECORDS, err);
	if (rc == 0)
		rc = sp_page_writer_open(&writer->pages, writer->dirfd, options, err);
	if (rc < 0)
		sp_checkpoint_abandon(writer);
	return rc;
}

int sp_checkpoint_create(struct sp_checkpoint_writer *writer, const char *path,
                         const struct sp_page_writer_options *options, struct sp_error *err)
{
	return create(writer, path, false, options, err);
}

int sp_checkpoint_create_over(struct sp_checkpoint_writer *writer, const char *path,
                              const struct sp_page_writer_options *options, struct sp_error *err)
{
	return create(writer, path, true, options, err);
}

/* --- the parent --- */

/* Where the checkpoint will be, without any symbolic link. */
static char *final_place(const struct sp_checkpoint_writer *writer)
{
	sp_cleanup_free char *partial = realpath(writer->partial, NULL);
	const char *name = strrchr(writer->path, '/');
	char *end = partial ? strrchr(partial, '/') : NULL;

	if (!end)
		return NULL;
	*end = '\0';
	return sp_format("%s/%s", partial, name ? name + 1 : writer->path);
}

/* The path of `to` as seen from the directory `from`; both are real and absolute. */
static void relative_path(const char *from, const char *to, char *path, size_t size)
{
	size_t common = 0, used = 0;

	for (size_t i = 0; from[i] == to[i] && from[i]; i++)
		if (from[i] == '/')
			common = i + 1;
	*path = '\0';
	for (const char *rest = from + common; rest && used < size;
	     rest = strchr(rest, '/') ? strchr(rest, '/') + 1 : NULL)
		used += (size_t)snprintf(path + used, size - used, "../");
	if (used < size)
		snprintf(path + used, size - used, "%s", to + common);
}

int sp_checkpoint_set_parent(struct sp_checkpoint_writer *writer, Sealpoint__Manifest *manifest,
                             const char *path, uint8_t id[SP_CHECKPOINT_ID_SIZE],
                             struct sp_error *err)
{
	sp_cleanup_free char *from = final_place(writer);
	sp_cleanup_free char *to = realpath(path, NULL);

	if (!from || !to)
		return sp_fail_errno(err, errno, "cannot find the way from %s to its parent %s",
		                     writer->path, path);
	relative_path(from, to, writer->parent, sizeof(writer->parent));
	manifest->parent_path = writer->parent;
	manifest->parent_id = (ProtobufCBinaryData){.data = id, .len = SP_CHECKPOINT_ID_SIZE};
	return 0;
}

/* --- the end --- */

static int sync_parent(const char *path, struct sp_error *err)
{
	char parent[PATH_MAX];
	char *slash;
	sp_cleanup_close int fd = -1;

	snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (!slash)
		snprintf(parent, sizeof(parent), ".");
	else
		slash[slash == parent ? 1 : 0] = '\0';
	fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return sp_fail_errno(err, errno, "cannot sync %s", parent);
	return 0;
}

static int refuse_rename(const struct sp_checkpoint_writer *writer, int code, struct sp_error *err)
{
	if (writer->replaces && code == EINVAL)
		return sp_fail(err, code,
		               "cannot replace %s: this file system cannot exchange directories; "
		               "write to a new one",
		               writer->path);
	if (code == ENOTEMPTY || code == EEXIST || code == ENOTDIR)
		return sp_fail(
		        err, code,
		        "something else has been written to %s meanwhile; choose another name",
		        writer->path);
	return sp_fail_errno(err, code, "cannot rename %s to %s", writer->partial, writer->path);
}

static int sync_file(const struct sp_checkpoint_writer *writer, const char *name,
                     struct sp_error *err)
{
	sp_cleanup_close int fd = openat(writer->dirfd, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return sp_fail_errno(err, errno, "cannot sync %s/%s", writer->partial, name);
	return 0;
}

/*
 * Small files first begin to be written, so that they have their places on the disk when the large
 * one is synced: a file system with a journal then syncs all of them by one commit.
 */
static int sync_all(const struct sp_checkpoint_writer *writer, struct sp_error *err)
{
	static const char *const names[] = {SP_IMAGE_PAGES, SP_IMAGE_PAGE_INDEX, SP_IMAGE_RECORDS,
	                                    SP_IMAGE_MANIFEST};
	int rc = 0;

	for (size_t i = 1; i < SP_COUNT_OF(names); i++) {
		sp_cleanup_close int fd = openat(writer->dirfd, names[i], O_RDONLY | O_CLOEXEC);

		sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	}
	for (size_t i = 0; i < SP_COUNT_OF(names) && rc == 0; i++)
		rc = sync_file(writer, names[i], err);
	if (rc == 0 && fsync(writer->dirfd) < 0)
		rc = sp_fail_errno(err, errno, "cannot sync %s", writer->partial);
	return rc;
}

/* The one atomic step. */
static int make_visible(struct sp_checkpoint_writer *writer, struct sp_error *err)
{
	unsigned how = writer->replaces ? RENAME_EXCHANGE : 0;
	int rc;

	if (renameat2(AT_FDCWD, writer->partial, AT_FDCWD, writer->path, how) < 0)
		return refuse_rename(writer, errno, err);
	rc = sync_parent(writer->path, err);
	/* Not safely on disk: then it had better not be there at all. */
	if (rc < 0 && renameat2(AT_FDCWD, writer->path, AT_FDCWD, writer->partial, how) < 0)
		return sp_error_context(err, "%s is written, but may not outlive a power failure",
		                        writer->path);
	return rc;
}

static int finish_files(struct sp_checkpoint_writer *writer, const Sealpoint__Manifest *manifest,
                        struct sp_page_stats *stats, struct sp_error *err)
{
	int rc = sp_page_writer_finish(sp_steal_ptr(&writer->pages), stats, err);

	if (rc == 0)
		rc = sp_record_writer_finish(&writer->records, err);
	if (rc == 0)
		rc = sp_manifest_write(writer->dirfd, manifest, err);
	if (rc == 0)
		rc = sync_all(writer, err);
	if (rc == 0)
		rc = sp_interrupt_check(
		        err); /* the last chance: from here on there is a checkpoint */
	return rc < 0 ? rc : make_visible(writer, err);
}

/* The old checkpoint, at the partial path now, goes; what else lay in its directory stays. */
static void remove_replaced(struct sp_checkpoint_writer *writer)
{
	sp_cleanup_dir DIR *dir = opendir(writer->partial);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		renameat2(dirfd(dir), entry->d_name, writer->dirfd, entry->d_name,
		          RENAME_NOREPLACE);
	sp_partial_remove(writer->partial);
}

int sp_checkpoint_commit(struct sp_checkpoint_writer *writer, const Sealpoint__Manifest *manifest,
                         struct sp_page_stats *stats, struct sp_error *err)
{
	int rc = finish_files(writer, manifest, stats, err);

	if (rc < 0) {
		sp_error_context(err, "cannot finish checkpoint %s", writer->path);
		sp_checkpoint_abandon(writer);
		return rc;
	}
	if (writer->replaces)
		remove_replaced(writer);
	writer->partial[0] = '\0';
	sp_when_out_of_memory(NULL, NULL);
	close(sp_steal_fd(&writer->dirfd));
	return 0;
}

void sp_checkpoint_withdraw(struct sp_checkpoint_writer *writer)
{
	if (set_paths(writer, writer->path, NULL))
		return;
	if (!writer->replaces && !rename(writer->path, writer->partial))
		sp_partial_remove(writer->partial);
	writer->partial[0] = '\0';
}

void sp_checkpoint_abandon(struct sp_checkpoint_writer *writer)
{
	if (writer->partial[0] == '\0')
		return;
	if (writer->pages)
		sp_page_writer_abandon(sp_steal_ptr(&writer->pages));
	sp_record_writer_abandon(&writer->records);
	sp_partial_remove(writer->partial);
	sp_when_out_of_memory(NULL, NULL);
	writer->partial[0] = '\0';
	if (writer->dirfd >= 0)
		close(sp_steal_fd(&writer->dirfd));
}
