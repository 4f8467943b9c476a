/*
 * Open files with and without a name: positions and flags, renamed and unlinked ones, an O_TMPFILE
 * file, an O_PATH descriptor, a directory half read, devices.
 */
#include "subject.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

static int make(const char *path, int flags, const char *text)
{
	int fd = open(path, flags | O_CREAT, 0640);

	subject_need(fd >= 0, "open %s", path);
	subject_need(ftruncate(fd, 0) == 0, "ftruncate %s", path);
	subject_need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write %s", path);
	return fd;
}

static void expect_text(int fd, const char *expected, const char *what)
{
	char text[64] = "";

	subject_check(pread(fd, text, sizeof(text) - 1, 0) == (ssize_t)strlen(expected) &&
	                      !strcmp(text, expected),
	              "%s: \"%s\", not \"%s\"", what, text, expected);
}

static void expect_position(int fd, off_t expected, const char *what)
{
	off_t position = lseek(fd, 0, SEEK_CUR);

	subject_check(position == expected, "%s: position %lld, not %lld", what,
	              (long long)position, (long long)expected);
}

static void expect_flags(int fd, int expected, const char *what)
{
	int flags = fcntl(fd, F_GETFL);

	subject_check(flags == expected, "%s: flags %#x, not %#x", what, flags, expected);
}

static void check_unlinked(int writer, int reader)
{
	struct stat one, other;

	expect_text(reader, "no name left", "unlinked file");
	expect_position(writer, 12, "unlinked file");
	expect_position(reader, 3, "unlinked file, opened a second time");
	subject_check(!fstat(writer, &one) && !fstat(reader, &other) && one.st_ino == other.st_ino,
	              "two open files of one unlinked file are two files");
	subject_check(one.st_nlink == 0 && (one.st_mode & 07777) == 0640,
	              "unlinked file: %lu links, mode %o", (unsigned long)one.st_nlink,
	              one.st_mode);
	subject_check(pwrite(writer, "NO", 2, 0) == 2, "unlinked file cannot be written");
	expect_text(reader, "NO name left", "unlinked file, written through the other open file");
}

static void check_devices(int null, int zero)
{
	char byte = 1;

	subject_check(write(null, "x", 1) == 1 && read(null, &byte, 1) == 0, "/dev/null");
	subject_check(read(zero, &byte, 1) == 1 && byte == 0, "/dev/zero");
}

static int count_entries(DIR *dir)
{
	int count = 0;

	while (readdir(dir))
		count++;
	return count;
}

int main(void)
{
	int named = make("named", O_RDWR, "0123456789");
	int append = open("named", O_WRONLY | O_APPEND | O_DSYNC | O_NONBLOCK);
	int renamed = make("before", O_RDWR, "renamed");
	int unlinked = make("unlinked", O_RDWR, "no name left");
	int again = open("unlinked", O_RDONLY);
	int temporary = open(".", O_TMPFILE | O_RDWR, 0600);
	int path = open("named", O_PATH);
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDONLY);

	subject_need(append >= 0 && again >= 0 && path >= 0 && null >= 0 && zero >= 0, "open");
	subject_need(lseek(named, 4, SEEK_SET) == 4 && lseek(again, 3, SEEK_SET) == 3, "lseek");
	subject_need(rename("before", "after") == 0 && unlink("unlinked") == 0, "rename");
	subject_need(temporary < 0 || write(temporary, "temporary", 9) == 9, "write");

	/* A small buffer of its own, so that the kernel's position is in the middle. */
	subject_need(mkdir("directory", 0700) == 0 || errno == EEXIST, "mkdir");
	for (int i = 0; i < 5000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "directory/%d", i);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	DIR *dir = opendir("directory");

	subject_need(dir && readdir(dir), "readdir");
	int flags = fcntl(append, F_GETFL);
	int path_flags = fcntl(path, F_GETFL);
	int temporary_flags = fcntl(temporary, F_GETFL);

	subject_ready();

	expect_text(named, "0123456789", "file");
	expect_position(named, 4, "file");
	expect_flags(append, flags, "file opened to append");
	expect_flags(path, path_flags, "O_PATH descriptor");
	expect_text(renamed, "renamed", "renamed file");
	expect_position(renamed, 7, "renamed file");
	check_unlinked(unlinked, again);
	if (temporary >= 0) {
		expect_text(temporary, "temporary", "O_TMPFILE file");
		expect_flags(temporary, temporary_flags, "O_TMPFILE file");
	}
	check_devices(null, zero);
	int rest = count_entries(dir);

	subject_check(rest == 5001, "%d entries of the directory are left, not 5001", rest);
	return subject_end();
}
