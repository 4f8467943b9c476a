/* Making what has no name any more: see removed.h. */
#include "kinds/removed.h"

#include "kinds/file_path.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool can_be_made(mode_t mode)
{
	return S_ISDIR(mode) || S_ISFIFO(mode) || S_ISLNK(mode) || S_ISSOCK(mode);
}

void sp_removed_describe(const struct stat *stat, Sealpoint__Removed *message)
{
	sealpoint__removed__init(message);
	message->mode = stat->st_mode & 07777;
	message->uid = stat->st_uid;
	message->gid = stat->st_gid;
}

int sp_removed_find(const struct sp_open_file *file, char **path, struct sp_removed *removed,
                    struct sp_error *err)
{
	ssize_t length;

	*removed = (struct sp_removed){0};
	if (file->stat.st_nlink || file->link[0] != '/' || !can_be_made(file->stat.st_mode))
		return sp_file_path_find(file, path, err);
	*path = sp_file_path_last(file);
	removed->is_removed = true;
	sp_removed_describe(&file->stat, &removed->message);
	if (!S_ISLNK(file->stat.st_mode))
		return 0;
	length = readlinkat(file->fd, "", removed->target, sizeof(removed->target) - 1);
	if (length < 0)
		return sp_fail_errno(err, errno, "cannot read where the symbolic link leads");
	removed->message.target = removed->target;
	return 0;
}

/* --- restore --- */

static int make(int directory, const char *name, const Sealpoint__Removed *message, mode_t type)
{
	if (S_ISDIR(type))
		return mkdirat(directory, name, 0700);
	if (S_ISLNK(type))
		return symlinkat(message->target, directory, name);
	return mknodat(directory, name, type | 0600, 0);
}

static int give_attributes(int directory, const char *name, const Sealpoint__Removed *message,
                           mode_t type)
{
	if (fchownat(directory, name, message->uid, message->gid, AT_SYMLINK_NOFOLLOW))
		return -1;
	return S_ISLNK(type) ? 0 : fchmodat(directory, name, message->mode, 0);
}

char *sp_removed_name(int directory, const char *path)
{
	const char *name = strrchr(path, '/') + 1;

	if (*name && faccessat(directory, name, F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT)
		return sp_strdup(name);
	return sp_format(".sealpoint-%d", getpid());
}

int sp_removed_open(const char *path, const Sealpoint__Removed *message, mode_t type, int flags,
                    struct sp_error *err)
{
	sp_cleanup_close int directory = sp_file_path_open_above(path, err);
	sp_cleanup_free char *name = sp_removed_name(directory, path);
	int fd = -1, code;

	if (directory < 0)
		return directory;
	if (make(directory, name, message, type))
		return sp_fail_errno(err, errno, "cannot make it again where it was, at %s", path);
	if (!give_attributes(directory, name, message, type))
		fd = openat(directory, name, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	code = errno;
	unlinkat(directory, name, S_ISDIR(type) ? AT_REMOVEDIR : 0);
	return fd < 0 ? sp_fail_errno(err, code, "cannot open it again where it was, at %s", path)
	              : fd;
}
