/*
 * Regular files.
 *
 * A file with a name is not stored: it is opened again by its path, and compared with what it was.
 * A file without one (unlinked, or made with O_TMPFILE) is stored with its contents and made anew,
 * without a name, in the same directory, so that it lies on the same file system; all open files of
 * that inode then share the new one.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "kinds/build_id.h"
#include "kinds/file_build.h"
#include "kinds/file_path.h"
#include "kinds/file_table.h"

#include "regular.pb-c.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>

/* Regular files that never had a name, on mounts of the kernel's own: not of this kind. */
static const char *const internal_names[] = {
        "/memfd:", "/dev/zero (deleted)", "/SYSV", "/anon_hugepage", "/[aio]",
};

/* Secret memory counts a link that it does not have. */
static bool is_secret(const struct sp_open_file *file)
{
	struct statfs fs;

	return !strncmp(file->link, "/secretmem", strlen("/secretmem")) &&
	       !fstatfs(file->fd, &fs) && fs.f_type == SECRETMEM_MAGIC;
}

static bool is_internal(const struct sp_open_file *file)
{
	if (file->link[0] != '/' || is_secret(file))
		return true;
	for (size_t i = 0; i < SP_COUNT_OF(internal_names); i++)
		if (file->stat.st_nlink == 0 &&
		    !strncmp(file->link, internal_names[i], strlen(internal_names[i])))
			return true;
	return false;
}

static bool claims(const struct sp_open_file *file)
{
	return S_ISREG(file->stat.st_mode) && !is_internal(file);
}

/* --- dump --- */

static bool is_generated(const struct sp_open_file *file)
{
	struct statfs fs;

	if (fstatfs(file->fd, &fs))
		return false;
	switch ((unsigned long)fs.f_type) {
	case PROC_SUPER_MAGIC:
	case SYSFS_MAGIC:
	case CGROUP_SUPER_MAGIC:
	case CGROUP2_SUPER_MAGIC:
	case DEBUGFS_MAGIC:
	case TRACEFS_MAGIC:
	case SECURITYFS_MAGIC:
		return true;
	default:
		return false;
	}
}

/* What the contents take in an image at most: holes are not stored. */
static uint64_t stored_size(const struct stat *stat)
{
	uint64_t allocated = (uint64_t)stat->st_blocks * 512;

	return allocated < (uint64_t)stat->st_size ? allocated : (uint64_t)stat->st_size;
}

static int save_unlinked(struct sp_file_saver *saver, const struct sp_open_file *file,
                         Sealpoint__RegularFile__Unlinked *unlinked, struct sp_error *err)
{
	uint64_t size = stored_size(&file->stat), limit = saver->options->unlinked_file_limit;

	if (size > limit)
		return sp_fail(
		        err, EFBIG,
		        "it is unlinked, so its contents would have to be stored, and its %llu MiB "
		        "are more than the limit of %llu MiB; raise it with --unlinked-limit",
		        (unsigned long long)size >> 20, (unsigned long long)limit >> 20);
	unlinked->mode = file->stat.st_mode & 07777;
	unlinked->uid = file->stat.st_uid;
	unlinked->gid = file->stat.st_gid;
	return sp_file_save_contents(saver, file, &unlinked->object, err);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__RegularFile message = SEALPOINT__REGULAR_FILE__INIT;
	Sealpoint__RegularFile__Unlinked unlinked = SEALPOINT__REGULAR_FILE__UNLINKED__INIT;
	sp_cleanup_free char *path = NULL;
	struct sp_build_id build_id = {0};
	int rc;

	if (file->stat.st_nlink == 0) {
		path = sp_file_path_last(file);
		message.unlinked = &unlinked;
		rc = save_unlinked(saver, file, &unlinked, err);
	} else {
		rc = sp_file_path_find(file, &path, err);
	}
	if (rc)
		return rc;
	message.path = path;
	message.position = file->position;
	message.size = (uint64_t)file->stat.st_size;
	message.mtime_s = file->stat.st_mtim.tv_sec;
	message.mtime_ns = (uint32_t)file->stat.st_mtim.tv_nsec;
	message.generated = is_generated(file);
	if (sp_file_is_mapping_only(file))
		build_id = sp_build_id_read(file->fd);
	message.build_id = (ProtobufCBinaryData){build_id.size, build_id.bytes};
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__RegularFile *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__regular_file__descriptor, err);
}

/* --- restore: files with a name --- */

/* What the program's mappings make of the file. */
struct mapped {
	uint64_t end;    /* the first byte that no mapping touches */
	bool executable; /* its code runs */
};

static struct mapped mapped_part(const struct sp_checkpoint *checkpoint, uint32_t id)
{
	struct mapped mapped = {0};

	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);
		uint64_t end = vma->offset + (vma->end - vma->start);

		if (vma->file != id)
			continue;
		if (end > mapped.end)
			mapped.end = end;
		if (vma->prot & PROT_EXEC)
			mapped.executable = true;
	}
	return mapped;
}

/*
 * Two builds may have the same size, and the same build another time, where it was installed anew or
 * on another machine.
 */
static int compare_builds(const Sealpoint__RegularFile *message, int fd, struct sp_error *err)
{
	struct sp_build_id now = sp_build_id_read(fd);
	char saved_text[65], now_text[65];

	if (now.size == message->build_id.len &&
	    !memcmp(now.bytes, message->build_id.data, now.size))
		return 0;
	sp_build_id_text(message->build_id.data, message->build_id.len, saved_text);
	sp_build_id_text(now.bytes, now.size, now_text);
	return sp_fail(err, EINVAL,
	               "%s is another build than at the dump (build id %s, not %s), and the "
	               "program runs code of it; put back the file as it was",
	               message->path, now_text, saved_text);
}

/*
 * A mapping of a page behind the end of its file kills the program with SIGBUS when it touches it,
 * and code of another version runs into the void: both are refused. Any other change is the user's
 * to judge.
 */
static int compare(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                   const Sealpoint__RegularFile *message, int fd, const struct stat *now,
                   struct sp_error *err)
{
	struct mapped mapped = mapped_part(builder->checkpoint, file->id);
	uint64_t size = (uint64_t)now->st_size;
	uint64_t needed = sp_page_up(message->size);
	bool same_build = mapped.executable && message->build_id.len;

	if (message->generated)
		return 0;
	if (same_build && compare_builds(message, fd, err))
		return -err->code;
	if (size == message->size && same_build)
		return 0;
	if (size == message->size && now->st_mtim.tv_sec == message->mtime_s &&
	    now->st_mtim.tv_nsec == message->mtime_ns)
		return 0;
	if (mapped.end < needed)
		needed = mapped.end;
	if (sp_page_up(size) < needed)
		return sp_fail(err, EINVAL,
		               "%s has shrunk from %llu to %llu bytes since the dump, and the "
		               "program has the missing part mapped; put back the file as it was",
		               message->path, (unsigned long long)message->size,
		               (unsigned long long)size);
	if (mapped.executable && size != message->size)
		return sp_fail(err, EINVAL,
		               "%s is another version than at the dump (%llu bytes, not %llu), and "
		               "the program runs code of it; put back the file as it was",
		               message->path, (unsigned long long)size,
		               (unsigned long long)message->size);
	if (size == message->size)
		sp_warn(builder->log,
		        "%s has been written to since the dump (its size is the same)",
		        message->path);
	else
		sp_warn(builder->log, "%s has changed since the dump (%llu bytes then, %llu now)",
		        message->path, (unsigned long long)message->size, (unsigned long long)size);
	return 0;
}

static int open_named(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                      const Sealpoint__RegularFile *message, int *fd, struct sp_error *err)
{
	struct stat now;

	*fd = sp_file_path_open(message->path, sp_file_path_flags(file), S_IFREG, err);
	if (*fd < 0)
		return *fd;
	if (fstat(*fd, &now))
		return sp_fail_errno(err, errno, "cannot examine %s", message->path);
	return compare(builder, file, message, *fd, &now, err);
}

/* --- restore: files without a name --- */

/* For file systems without O_TMPFILE: the name exists between two system calls. */
static int make_and_unlink(int directory, int flags)
{
	sp_cleanup_free char *name = sp_format(".sealpoint-%d", getpid());
	int fd = openat(directory, name, O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600);

	if (fd >= 0)
		unlinkat(directory, name, 0);
	return fd;
}

static int make_nameless(const char *path, int flags, struct sp_error *err)
{
	sp_cleanup_close int directory = sp_file_path_open_above(path, err);
	int fd;

	if (directory < 0)
		return directory;
	fd = openat(directory, ".", O_TMPFILE | O_CLOEXEC | flags, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
		fd = make_and_unlink(directory, flags);
	return fd < 0 ? sp_fail_errno(err, errno, "cannot make an unlinked file beside %s", path)
	              : fd;
}

static int give_attributes(int fd, const Sealpoint__RegularFile *message, struct sp_error *err)
{
	const struct timespec times[2] = {
	        {.tv_nsec = UTIME_OMIT},
	        {.tv_sec = message->mtime_s, .tv_nsec = message->mtime_ns},
	};

	if (fchown(fd, message->unlinked->uid, message->unlinked->gid) ||
	    fchmod(fd, message->unlinked->mode) || futimens(fd, times))
		return sp_fail_errno(err, errno, "cannot set its owner, mode and time");
	return 0;
}

static int load(struct sp_file_builder *builder, const Sealpoint__RegularFile *message, int made,
                struct sp_error *err)
{
	sp_cleanup_close int fd = sp_reopen(made, O_RDWR, err);
	int rc = 0;

	if (fd < 0)
		return fd;
	if (message->unlinked->object)
		rc = sp_content_load(builder->checkpoint->pages, message->unlinked->object, fd,
		                     message->size, err);
	return rc ? rc : give_attributes(fd, message, err);
}

/* What was opened with O_TMPFILE still says so in its flags: the new one is used as it was made. */
static int make_unlinked(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                         const Sealpoint__RegularFile *message, struct sp_error *err)
{
	bool was_made_so = (file->flags & O_TMPFILE) == O_TMPFILE;
	int flags = sp_file_path_flags(file);
	sp_cleanup_close int made = make_nameless(message->path, was_made_so ? flags : O_RDWR, err);
	int rc = made < 0 ? made : load(builder, message, made, err);

	if (rc)
		return rc;
	return was_made_so ? sp_steal_fd(&made) : sp_reopen(made, flags, err);
}

static int open_unlinked(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                         const Sealpoint__RegularFile *message, int *fd, struct sp_error *err)
{
	if (file->same_inode)
		*fd = sp_reopen(builder->fds[file->same_inode], sp_file_path_flags(file), err);
	else
		*fd = make_unlinked(builder, file, message, err);
	return *fd < 0 ? *fd : 0;
}

/* --- restore --- */

static int open_regular(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                        struct sp_error *err)
{
	sp_cleanup_message Sealpoint__RegularFile *message = unpack(file->body, err);
	int rc;

	if (!message)
		return -EBADMSG;
	if (message->unlinked)
		rc = open_unlinked(builder, file, message, fd, err);
	else
		rc = open_named(builder, file, message, fd, err);
	if (!rc && message->position && lseek(*fd, message->position, SEEK_SET) < 0)
		rc = sp_fail_errno(err, errno, "cannot go to position %lld",
		                   (long long)message->position);
	return rc;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__RegularFile *message = unpack(file->body, err);
	int rc;

	if (!message)
		return -EBADMSG;
	rc = sp_file_path_check(message->path, err);
	if (!rc && message->unlinked && message->size && !message->unlinked->object &&
	    !file->same_inode)
		rc = sp_fail_damaged(err, "an unlinked file without contents");
	return rc;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__RegularFile *message = unpack(body, NULL);

	if (message && message->unlinked)
		snprintf(text, size, "%s, unlinked, %llu bytes, position %lld", message->path,
		         (unsigned long long)message->size, (long long)message->position);
	else if (message)
		snprintf(text, size, "%s, position %lld", message->path,
		         (long long)message->position);
}

const struct sp_file_kind sp_kind_regular = {
        .name = "regular",
        .title = "regular file",
        .claims = claims,
        .save = save,
        .open = open_regular,
        .describe = describe,
        .check = check,
};
