/* Finding files by their path: see file_path.h. */
#include "kinds/file_path.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define DELETED " (deleted)" /* what /proc appends to the path of an unlinked file */

/* "regular file", "directory", ... for the S_IFMT bits of a mode. */
static const char *type_title(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "regular file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symbolic link";
	case S_IFCHR:
		return "character device";
	case S_IFBLK:
		return "block device";
	case S_IFIFO:
		return "FIFO";
	case S_IFSOCK:
		return "socket";
	default:
		return "file of another type";
	}
}

/* --- dump --- */

static bool ends_as_deleted(const char *link)
{
	size_t length = strlen(link), mark = strlen(DELETED);

	return length > mark && !strcmp(link + length - mark, DELETED);
}

char *sp_file_path_last(const struct sp_open_file *file)
{
	char *path = sp_strdup(file->link);

	if (ends_as_deleted(path))
		path[strlen(path) - strlen(DELETED)] = '\0';
	return path;
}

static bool is_same_inode(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool leads_to(const char *path, const struct sp_open_file *file)
{
	struct stat found;

	return !lstat(path, &found) && is_same_inode(&found, &file->stat);
}

/*
 * A name in the directory of `path` that is another hard link of the file, or NULL. Programs that
 * link a new version over an old one, or give an O_TMPFILE file its name with linkat(2), leave such
 * files.
 */
static char *find_sibling(const char *path, const struct sp_open_file *file)
{
	sp_cleanup_free char *directory = sp_strdup(path);
	sp_cleanup_dir DIR *dir = NULL;
	struct dirent *entry;

	*strrchr(directory, '/') = '\0';
	dir = opendir(*directory ? directory : "/");
	while (dir && (entry = readdir(dir))) {
		sp_cleanup_free char *candidate = NULL;

		if (entry->d_ino != file->stat.st_ino)
			continue;
		candidate = sp_format("%s/%s", directory, entry->d_name);
		if (leads_to(candidate, file))
			return sp_steal_ptr(&candidate);
	}
	return NULL;
}

static int refuse_lost(const struct sp_open_file *file, const char *path, struct sp_error *err)
{
	if (!ends_as_deleted(file->link))
		return sp_fail(err, ENOTSUP,
		               "its path leads to another file now, something has been mounted "
		               "over it: take that mount away before the dump");
	if (S_ISREG(file->stat.st_mode) && file->stat.st_nlink > 0 && file->number >= 0)
		return sp_fail(err, ENOTSUP,
		               "it has been unlinked there, and its other name is not known; give "
		               "it one in the same directory with \"ln -L /proc/%d/fd/%d %s.kept\"",
		               file->pid, file->number, path);
	return sp_fail(err, ENOTSUP,
	               "it has been removed, and sealpoint cannot make a %s without a name again; "
	               "let the program close it first",
	               type_title(file->stat.st_mode));
}

int sp_file_path_find(const struct sp_open_file *file, char **path, struct sp_error *err)
{
	sp_cleanup_free char *last = sp_file_path_last(file);

	if (file->link[0] != '/')
		return sp_fail(err, ENOTSUP,
		               "no path leads to it, its file system is not mounted any more; let "
		               "the program close it first");
	if (leads_to(file->link, file))
		*path = sp_strdup(file->link);
	else if (leads_to(last, file))
		*path = sp_steal_ptr(&last);
	else if (file->stat.st_nlink > 0 && !S_ISDIR(file->stat.st_mode))
		*path = find_sibling(last, file);
	else
		*path = NULL;
	return *path ? 0 : refuse_lost(file, last, err);
}

/* --- restore --- */

int sp_file_path_flags(const Sealpoint__OpenFile *file)
{
	int kept = O_ACCMODE | O_PATH | O_SYNC | O_NOFOLLOW;

	/* O_TMPFILE was about how the file was made, and has the bit of O_DIRECTORY in it. */
	if ((file->flags & O_TMPFILE) != O_TMPFILE)
		kept |= O_DIRECTORY;
	return (int)file->flags & kept;
}

int sp_file_path_open(const char *path, int flags, mode_t type, struct sp_error *err)
{
	bool follow = !S_ISLNK(type);
	struct stat found;
	int fd;

	/* Looked at first: opening a device that has taken the file's place could do anything. */
	if (follow ? stat(path, &found) : lstat(path, &found))
		return sp_fail_errno(err, errno, "%s was there at the dump and is needed", path);
	if ((found.st_mode & S_IFMT) != type)
		return sp_fail(err, EINVAL, "%s was a %s at the dump and is a %s now; put it back",
		               path, type_title(type), type_title(found.st_mode));
	fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", path);
	return fd;
}

int sp_file_path_open_above(const char *file_path, struct sp_error *err)
{
	sp_cleanup_free char *path = sp_strdup(file_path);
	int fd = -1;

	while (fd < 0 && *path) {
		*strrchr(path, '/') = '\0';
		fd = open(*path ? path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	return fd < 0 ? sp_fail_errno(err, errno, "cannot open a directory above %s", file_path)
	              : fd;
}

int sp_file_path_check(const char *path, struct sp_error *err)
{
	if (path[0] != '/')
		return sp_fail_damaged(err, "an impossible path");
	return 0;
}
