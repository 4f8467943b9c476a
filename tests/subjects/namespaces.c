/*
 * Descriptors of the namespaces that the program lives in, and of one that has a name elsewhere, which
 * only the superuser can give.
 *
 * subject: except=user
 */
#include "subject.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *const names[] = {"net", "mnt", "pid", "uts", "user", "ipc"};

#define COUNT (sizeof(names) / sizeof(names[0]))

static ino_t inode_of(int fd)
{
	struct stat stat = {0};

	fstat(fd, &stat);
	return stat.st_ino;
}

/* Gives a new network namespace a name, as `ip netns add` does, and opens it by that. */
static int open_named(const char *path)
{
	pid_t child = fork();
	int status = 1;

	if (!child)
		_exit(unshare(CLONE_NEWNET) || close(open(path, O_CREAT | O_RDONLY, 0600)) ||
		      mount("/proc/self/ns/net", path, NULL, MS_BIND, NULL));
	waitpid(child, &status, 0);
	subject_need(status == 0, "a namespace with a name");
	return open(path, O_RDONLY);
}

int main(void)
{
	int own[COUNT], named;
	ino_t of_named;

	for (size_t i = 0; i < COUNT; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		own[i] = open(path, O_RDONLY);
		subject_need(own[i] >= 0, "open");
	}
	named = open_named("named");
	of_named = inode_of(named);
	subject_need(named >= 0, "open");

	subject_ready();

	for (size_t i = 0; i < COUNT; i++) {
		char path[64];
		struct stat stat = {0};

		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		lstat(path, &stat);
		subject_check(!fstatat(AT_FDCWD, path, &stat, 0) && stat.st_ino == inode_of(own[i]),
		              "another %s namespace", names[i]);
	}
	subject_check(inode_of(named) == of_named && ioctl(named, NS_GET_NSTYPE) == CLONE_NEWNET,
	              "another namespace at the name");
	return subject_end();
}
