/* Directories in which checkpoints are written: see partial.h. */
#include "image/partial.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "image/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define INFIX ".partial-"

int sp_partial_name(const char *path, char partial[PATH_MAX])
{
	int printed = snprintf(partial, PATH_MAX, "%s" INFIX "%d", path, getpid());

	return printed < 0 || printed >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* --- removing --- */

static void remove_files(int dirfd)
{
	static const char *const names[] = {SP_IMAGE_MANIFEST, SP_IMAGE_RECORDS,
	                                    SP_IMAGE_PAGE_INDEX, SP_IMAGE_PAGES};

	for (size_t i = 0; i < SP_COUNT_OF(names) && dirfd >= 0; i++)
		unlinkat(dirfd, names[i], 0);
}

void sp_partial_remove(void *partial)
{
	sp_cleanup_close int dirfd = open(partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	remove_files(dirfd);
	rmdir(partial);
}

/* The directory of a path, "" for the working directory; ends with a slash if it is the root. */
static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return sp_format("%.*s", slash ? (int)(slash - path) + (slash == path) : 0, path);
}

/* Somebody else's is left alone, and so is one on a file system that knows no locks. */
static void remove_if_left(int parent, const char *name)
{
	sp_cleanup_close int dirfd =
	        openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat stat;

	if (dirfd < 0 || fstat(dirfd, &stat) < 0 || stat.st_uid != geteuid() ||
	    flock(dirfd, LOCK_EX | LOCK_NB) < 0)
		return;
	remove_files(dirfd);
	unlinkat(parent, name, AT_REMOVEDIR);
}

static bool is_partial_of(const char *name, const char *base)
{
	size_t length = strlen(base);

	if (strncmp(name, base, length) != 0 || strncmp(name + length, INFIX, strlen(INFIX)) != 0)
		return false;
	name += length + strlen(INFIX);
	return *name && strspn(name, "0123456789") == strlen(name);
}

static void remove_left(const char *path)
{
	sp_cleanup_free char *parent = parent_of(path);
	sp_cleanup_dir DIR *dir = opendir(*parent ? parent : ".");
	const char *slash = strrchr(path, '/');
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (is_partial_of(entry->d_name, slash ? slash + 1 : path))
			remove_if_left(dirfd(dir), entry->d_name);
}

/* --- making --- */

static int refuse(const char *path, const char *partial, int code, struct sp_error *err)
{
	sp_cleanup_free char *parent = parent_of(path);

	if (code == EEXIST)
		return sp_fail(err, code,
		               "cannot create checkpoint %s: %s is there; remove it if it is left "
		               "from a run that was killed",
		               path, partial);
	if (code == ENOENT && *parent && access(parent, F_OK) < 0)
		return sp_fail(err, code,
		               "cannot create checkpoint %s: the directory %s does not exist; "
		               "create it first",
		               path, parent);
	return sp_fail_errno(err, code, "cannot create %s", partial);
}

/*
 * Another run that looks for what is left can take the lock, and the directory away, before it is ours: then it is
 * made again, and that run has gone on. Without locks nobody takes anything away.
 */
static int is_ours(int dirfd, const char *partial)
{
	struct stat opened, there;

	flock(dirfd, LOCK_EX);
	if (fstat(dirfd, &opened) < 0 || lstat(partial, &there) < 0)
		return -errno;
	return opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

int sp_partial_make(const char *path, const char *partial, struct sp_error *err)
{
	int rc;

	remove_left(path);
	do {
		sp_cleanup_close int dirfd = -1;

		if (mkdir(partial, 0700) < 0)
			return refuse(path, partial, errno, err);
		dirfd = open(partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = dirfd < 0 ? -errno : is_ours(dirfd, partial);
		if (rc > 0)
			return sp_steal_fd(&dirfd);
	} while (rc == 0 || rc == -ENOENT);
	rc = sp_fail_errno(err, -rc, "cannot open %s", partial);
	rmdir(partial);
	return rc;
}
