/* Steps: files, directories, locks, pipes, FIFOs, and what watches files. */
#include "random.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>

static void make_file(void)
{
	static const int flags[] = {0, O_APPEND, O_NONBLOCK, O_SYNC, O_NOATIME};
	const char *name = new_name("file");
	int fd = keep(open(name, O_RDWR | O_CREAT | flags[below(5)], 0600 + below(64)), "open");
	char bytes[4096];

	memset(bytes, 'a' + (char)below(26), sizeof(bytes));
	subject_need(write(fd, bytes, 1 + below(4095)) > 0, "write");
	if (chance(30))
		subject_need(pwrite(fd, bytes, 10, 1 << 19) == 10, "pwrite");
	lseek(fd, (off_t)below(5000), SEEK_SET);
	if (chance(30))
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (chance(25))
		keep(open(name, chance(50) ? O_RDONLY : O_WRONLY), "open again");
	if (chance(25))
		keep(open(name, O_PATH), "open");
	if (chance(40))
		unlink(name);
}

static void make_duplicate(void)
{
	int fd =
	        chance(50) ? dup(any_file()) : fcntl(any_file(), F_DUPFD_CLOEXEC, 100 + below(400));

	keep(fd, "dup");
}

static void make_lock(void)
{
	const char *name = new_name("lock");
	int fd = keep(open(name, O_RDWR | O_CREAT, 0600), "open");
	struct flock lock = {.l_type = chance(50) ? F_RDLCK : F_WRLCK, .l_start = below(100)};

	lock.l_len = below(100);
	switch (below(3)) {
	case 0:
		flock(fd, chance(50) ? LOCK_SH : LOCK_EX);
		break;
	case 1:
		fcntl(fd, F_OFD_SETLK, &lock);
		break;
	default:
		fcntl(fd, F_SETLK, &lock);
	}
}

static void make_special(void)
{
	static const char *const names[] = {"/dev/null",   "/dev/zero", "/dev/full", "/dev/urandom",
	                                    "/etc/passwd", "/proc",     "/"};

	keep(open(names[below(7)], O_RDONLY), "open");
}

/* An end that is closed stays open in children that were made before. */
static void make_pipe(void)
{
	int ends[2];

	subject_need(pipe2(ends, O_NONBLOCK | (chance(20) ? O_DIRECT : 0)) == 0, "pipe");
	if (chance(30))
		fcntl(ends[1], F_SETPIPE_SZ, 4096 << below(6));
	fill(ends[1]);
	if (chance(50))
		fcntl(ends[0], F_SETFL, 0);
	keep_or_close(ends[0], 80);
	keep_or_close(ends[1], 80);
}

static void make_fifo(void)
{
	const char *name = new_name("fifo");
	int fd;

	subject_need(mkfifo(name, 0600) == 0, "mkfifo");
	fd = keep(open(name, O_RDWR | O_NONBLOCK), "open");
	fill(fd);
	if (chance(50))
		keep(open(name, O_RDONLY | O_NONBLOCK), "open");
	if (chance(50))
		keep(open(name, O_WRONLY | O_NONBLOCK), "open");
}

static void make_directory(void)
{
	const char *name = new_name("directory");

	subject_need(mkdir(name, 0755) == 0, "mkdir");
	if (chance(50)) {
		keep(open(name, O_RDONLY | O_DIRECTORY), "open");
	} else {
		int fd = open(name, O_PATH);

		keep(fd, "open");
	}
}

/* It was open, or is the working directory, when it was removed. */
static void remove_directory(void)
{
	const char *name = new_name("removed");

	subject_need(mkdir(name, 0700) == 0, "mkdir");
	keep(open(name, O_RDONLY | O_DIRECTORY), "open");
	subject_need(rmdir(name) == 0, "rmdir");
}

static void change_directory(void)
{
	const char *name = new_name("below");

	subject_need(mkdir(name, 0755) == 0 && chdir(name) == 0, "chdir");
}

static void make_nameless(void)
{
	int fd = keep(open(".", O_TMPFILE | O_RDWR, 0600), "open");

	fill(fd);
	lseek(fd, (off_t)below(5000), SEEK_SET);
}

/* A file that has lost the name it was opened by, and has another one. */
static void make_link(void)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "%s", new_name("linked"));
	fd = keep(open(name, O_RDWR | O_CREAT, 0600), "open");
	fill(fd);
	subject_need(link(name, new_name("link")) == 0, "link");
	if (chance(50))
		unlink(name);
}

static void make_symbolic_link(void)
{
	const char *name = new_name("symbolic");

	subject_need(symlink("somewhere", name) == 0, "symlink");
	keep(open(name, O_PATH | O_NOFOLLOW), "open");
	if (chance(30))
		unlink(name);
}

static void make_lease(void)
{
	const char *name = new_name("leased");
	bool reads = chance(50);
	int fd;

	close(open(name, O_WRONLY | O_CREAT, 0600));
	fd = keep(open(name, reads ? O_RDONLY : O_RDWR), "open");
	subject_need(fcntl(fd, F_SETLEASE, reads ? F_RDLCK : F_WRLCK) == 0, "F_SETLEASE");
}

/* Without O_ASYNC: nothing is to be sent. A directory's would be taken for one of directory notifications. */
static void set_owner(void)
{
	int fd = any_file();
	struct stat stat;

	if (fstat(fd, &stat) || S_ISDIR(stat.st_mode))
		return;

	fcntl(fd, F_SETOWN, chance(50) ? getpid() : -getpgrp());
	if (chance(50))
		fcntl(fd, F_SETSIG, 36 + (int)below(20));
}

/* Not to be sent away: that is refused. */
static void open_process_file(void)
{
	static const char *const names[] = {"status", "maps", "", "fd", "stat", "comm", "task"};
	unsigned whose = below(atomic_load(&family->processes));
	char name[64], bytes[16];
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/%s", chance(50) ? getpid() : family->pids[whose],
	         names[below(7)]);
	fd = open(name, O_RDONLY);
	if (fd >= 0 && chance(50) && read(fd, bytes, below(16)) < 0)
		return;
}

static void make_inotify(void)
{
	const char *name = new_name("watched");
	int fd = keep(inotify_init1(IN_NONBLOCK), "inotify");

	close(open(name, O_CREAT | O_WRONLY, 0600));
	inotify_add_watch(fd, name, IN_MODIFY | IN_ATTRIB);
	if (chance(30))
		inotify_add_watch(fd, "/tmp", IN_CREATE);
	if (chance(20))
		inotify_add_watch(fd, ".", IN_MOVED_FROM | IN_DELETE_SELF | IN_ONLYDIR);
	if (chance(40))
		chmod(name, 0644);
	if (chance(20))
		unlink(name);
}

const struct step file_steps[] = {
        {"file", make_file, 8},
        {"duplicate", make_duplicate, 5},
        {"close", close_any, 3},
        {"lock", make_lock, 4},
        {"lease", make_lease, 2},
        {"owner", set_owner, 3},
        {"directory", make_directory, 3},
        {"change-directory", change_directory, 2},
        {"removed-directory", remove_directory, 2},
        {"nameless", make_nameless, 2},
        {"link", make_link, 2},
        {"symbolic-link", make_symbolic_link, 2},
        {"special", make_special, 3},
        {"process-file", open_process_file, 3},
        {"pipe", make_pipe, 6},
        {"fifo", make_fifo, 3},
        {"inotify", make_inotify, 3},
        {NULL, NULL, 0},
};
