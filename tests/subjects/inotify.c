/*
 * Watches of a file and of a directory keep their numbers and masks; a program that had events to
 * read reads of an overflow.
 */
#include "subject.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/stat.h>

/* The next event of `fd`, without its name. */
static struct inotify_event *next_event(int fd)
{
	static union {
		struct inotify_event event;
		char bytes[512];
	} buffer;

	memset(&buffer, 0, sizeof(buffer));
	subject_check(read(fd, &buffer, sizeof(buffer)) > 0, "no event: %s", strerror(errno));
	return &buffer.event;
}

static void expect(int fd, int watch, uint32_t mask, const char *what)
{
	struct inotify_event *event = next_event(fd);

	subject_check(event->wd == watch && event->mask == mask, "%s: watch %d, mask %x", what,
	              event->wd, event->mask);
}

int main(void)
{
	char directory[] = "subject-XXXXXX", file[64], made[64];
	int quiet = inotify_init1(IN_NONBLOCK), busy = inotify_init1(IN_NONBLOCK);
	int of_file, of_directory, of_busy;

	subject_need(mkdtemp(directory) != NULL, "mkdtemp");
	snprintf(file, sizeof(file), "%s/file", directory);
	snprintf(made, sizeof(made), "%s/made", directory);
	subject_need(mknod(file, S_IFREG | 0600, 0) == 0, "mknod");
	for (int i = 0; i < 3; i++) /* numbers are not given twice */
		inotify_rm_watch(quiet, inotify_add_watch(quiet, "/", IN_CREATE));
	while (read(quiet, (char[512]){0}, 512) > 0)
		;
	of_file = inotify_add_watch(quiet, file, IN_ATTRIB);
	of_directory = inotify_add_watch(quiet, directory, IN_CREATE | IN_ONLYDIR);
	of_busy = inotify_add_watch(busy, file, IN_ATTRIB | IN_OPEN);
	subject_need(of_file > 3 && of_directory > 3 && of_busy > 0, "inotify_add_watch");
	close(open(file, O_RDONLY));

	subject_ready();

	/* Left running, the program reads its event; restored, it is told that there was one. */
	struct inotify_event *event = next_event(busy);
	subject_check((event->wd == of_busy && event->mask == IN_OPEN) ||
	                      (event->wd == -1 && event->mask == IN_Q_OVERFLOW),
	              "watch %d, mask %x instead of an overflow", event->wd, event->mask);
	subject_check(chmod(file, 0640) == 0, "chmod");
	expect(quiet, of_file, IN_ATTRIB, "the file's mode");
	expect(busy, of_busy, IN_ATTRIB, "the file's mode, the other instance");
	subject_check(mknod(made, S_IFREG | 0600, 0) == 0, "mknod");
	expect(quiet, of_directory, IN_CREATE, "a new file");
	unlink(made);
	return subject_end();
}
