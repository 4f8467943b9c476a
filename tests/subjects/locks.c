/*
 * File locks of every kind: the program still has them, as another process sees that tries to take
 * them, and still can give them up.
 */
#include "subject.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

static void lock_record(int fd, int command, short type, off_t start, off_t length)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = length};

	subject_need(fcntl(fd, command, &lock) == 0, "fcntl");
}

/*
 * The pid of the process that keeps others from this lock; 0 if none does, -1: an open file's lock.
 */
static pid_t holder(const char *path, short type, off_t start)
{
	int ends[2];
	pid_t found = -2, child;

	subject_need(pipe(ends) == 0, "pipe");
	child = fork();
	if (child == 0) {
		struct flock lock = {.l_type = type, .l_start = start, .l_len = 1};
		int fd = open(path, O_RDWR);

		if (fd < 0 || fcntl(fd, F_GETLK, &lock))
			_exit(1);
		found = lock.l_type == F_UNLCK ? 0 : lock.l_pid;
		_exit(write(ends[1], &found, sizeof(found)) != sizeof(found));
	}
	close(ends[1]);
	subject_check(read(ends[0], &found, sizeof(found)) == sizeof(found), "child");
	close(ends[0]);
	waitpid(child, NULL, 0);
	return found;
}

static void expect_holder(const char *path, short type, off_t start, pid_t expected)
{
	pid_t found = holder(path, type, start);

	subject_check(found == expected, "byte %lld of %s is held by %d, not %d", (long long)start,
	              path, found, expected);
}

/* Whether somebody else could lock the whole file. */
static bool is_free(const char *path, int operation)
{
	int fd = open(path, O_RDWR);
	bool result = flock(fd, operation | LOCK_NB) == 0;

	close(fd);
	return result;
}

int main(void)
{
	int posix = open("posix", O_CREAT | O_RDWR, 0600);
	int ofd = open("ofd", O_CREAT | O_RDWR, 0600);
	int exclusive = open("exclusive", O_CREAT | O_RDWR, 0600);
	int shared = open("shared", O_CREAT | O_RDWR, 0600);

	subject_need(posix >= 0 && ofd >= 0, "open");
	lock_record(posix, F_SETLK, F_RDLCK, 100, 10);
	lock_record(posix, F_SETLK, F_WRLCK, 200, 0);
	lock_record(ofd, F_OFD_SETLK, F_WRLCK, 7, 1);
	subject_need(!flock(exclusive, LOCK_EX) && !flock(shared, LOCK_SH), "flock");

	subject_ready();

	expect_holder("posix", F_WRLCK, 99, 0);
	expect_holder("posix", F_WRLCK, 100, getpid());
	expect_holder("posix", F_RDLCK, 100, 0);
	expect_holder("posix", F_WRLCK, 110, 0);
	expect_holder("posix", F_RDLCK, 1000000, getpid());
	expect_holder("ofd", F_RDLCK, 7, -1);
	expect_holder("ofd", F_WRLCK, 8, 0);
	subject_check(!is_free("exclusive", LOCK_SH), "the exclusive lock is gone");
	subject_check(is_free("shared", LOCK_SH) && !is_free("shared", LOCK_EX),
	              "the shared lock is gone, or exclusive");
	lock_record(posix, F_SETLK, F_UNLCK, 0, 0);
	lock_record(ofd, F_OFD_SETLK, F_UNLCK, 0, 0);
	subject_check(!flock(exclusive, LOCK_UN), "flock");
	expect_holder("posix", F_WRLCK, 100, 0);
	expect_holder("ofd", F_WRLCK, 7, 0);
	subject_check(is_free("exclusive", LOCK_EX), "the exclusive lock cannot be given up");
	return subject_end();
}
