/*
 * What has been removed while it was open: directories, one of them the working directory, a FIFO
 * with something in it, a symbolic link, a file that another one has replaced.
 */
#include "subject.h"

#include <fcntl.h>
#include <sys/stat.h>

static bool is_same(int one, int other)
{
	struct stat a, b;

	return !fstat(one, &a) && !fstat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void expect_removed(int fd, mode_t mode, const char *what)
{
	struct stat stat = {0};

	subject_check(!fstat(fd, &stat) && stat.st_nlink == 0 && stat.st_mode == mode,
	              "%s: %lu links, mode %o", what, (unsigned long)stat.st_nlink, stat.st_mode);
}

static void expect_text(int fd, const char *expected, const char *what)
{
	char text[64] = "";

	subject_check(read(fd, text, sizeof(text) - 1) == (ssize_t)strlen(expected) &&
	                      !strcmp(text, expected),
	              "%s: \"%s\", not \"%s\"", what, text, expected);
}

static int make_file(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);

	subject_need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
	subject_need(lseek(fd, 0, SEEK_SET) == 0, "lseek");
	return fd;
}

int main(void)
{
	int directory, again, reader, writer, both, path, link, old, new;
	char text[64] = "";

	subject_need(!mkdir("place", 0751) && !mkdir("place/inner", 0700), "mkdir");
	directory = open("place/inner", O_RDONLY);
	again = open("place/inner", O_PATH);
	subject_need(directory >= 0 && again >= 0 && !rmdir("place/inner"), "rmdir");

	subject_need(!mkfifo("fifo", 0620) && !chmod("fifo", 0620), "mkfifo");
	both = open("fifo", O_RDWR);
	reader = open("fifo", O_RDONLY | O_NONBLOCK);
	writer = open("fifo", O_WRONLY);
	path = open("fifo", O_PATH);
	subject_need(write(writer, "waiting", 7) == 7 && !unlink("fifo"), "unlink");

	subject_need(!symlink("its target", "link"), "symlink");
	link = open("link", O_PATH | O_NOFOLLOW);
	subject_need(link >= 0 && !unlink("link"), "unlink");

	old = make_file("file", "the old one");
	new = make_file("file.new", "the new one");
	subject_need(!rename("file.new", "file"), "rename");

	subject_need(!mkdir("here", 0710) && !chdir("here") && !rmdir("../here"), "chdir");

	subject_ready();

	expect_removed(directory, S_IFDIR | 0700, "directory");
	subject_check(is_same(directory, again), "two descriptors of a removed directory");
	subject_check(openat(directory, "x", O_CREAT | O_WRONLY, 0600) < 0 && errno == ENOENT,
	              "a file can be made in a removed directory");
	expect_removed(reader, S_IFIFO | 0620, "FIFO");
	subject_check(is_same(reader, writer) && is_same(reader, both) && is_same(reader, path),
	              "the FIFO is several ones");
	expect_text(reader, "waiting", "FIFO");
	subject_check(write(both, "more", 4) == 4, "FIFO: cannot be written to");
	expect_text(reader, "more", "FIFO");
	subject_check(readlinkat(link, "", text, sizeof(text) - 1) == 10 &&
	                      !strcmp(text, "its target"),
	              "symbolic link: \"%s\"", text);
	expect_text(old, "the old one", "replaced file");
	expect_text(new, "the new one", "file that has replaced it");
	subject_check(!getcwd(text, sizeof(text)) && errno == ENOENT, "working directory: %s",
	              text);
	subject_check(open("x", O_CREAT | O_WRONLY, 0600) < 0 && errno == ENOENT,
	              "a file can be made in the removed working directory");
	return subject_end();
}
