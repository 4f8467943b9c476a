/*
 * Marks of fanotify on a file, a directory, a mount and a file system keep their masks, flags and what they ignore; a
 * program that had events to read reads of an overflow.
 *
 * Only the superuser may mark mounts and file systems.
 *
 * subject: except=user
 */
#include "subject.h"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/stat.h>

#ifndef FAN_MARK_IGNORE
#define FAN_MARK_IGNORE 0x400
#endif

#define BY_NAME (FAN_CLASS_NOTIF | FAN_REPORT_DFID_NAME | FAN_NONBLOCK)
#define BY_FD (FAN_CLASS_NOTIF | FAN_NONBLOCK)

/* The mask of the next event, 0 if there is none. */
static uint64_t next_event(int fd)
{
	static union {
		struct fanotify_event_metadata event;
		char bytes[512];
	} buffer;

	if (read(fd, &buffer, sizeof(buffer)) <= 0)
		return 0;
	if (buffer.event.fd >= 0)
		close(buffer.event.fd);
	return buffer.event.mask;
}

/* The lines of fdinfo that tell of marks, but for numbers of mounts that other programs may change. */
static void read_marks(int fd, char *text, size_t size)
{
	char path[64], line[512];
	FILE *info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = fopen(path, "r");
	*text = '\0';
	while (info && fgets(line, sizeof(line), info))
		if (!strncmp(line, "fanotify ", 9))
			strncat(text, line, size - strlen(text) - 1);
	if (info)
		fclose(info);
}

static int group(unsigned flags)
{
	int fd = fanotify_init(flags, O_RDONLY | O_LARGEFILE);

	subject_need(fd >= 0, "fanotify_init");
	return fd;
}

static void mark(int fd, unsigned flags, uint64_t mask, const char *path)
{
	subject_need(fanotify_mark(fd, FAN_MARK_ADD | flags, mask, AT_FDCWD, path) == 0,
	             "fanotify_mark");
}

int main(void)
{
	char directory[] = "subject-XXXXXX", file[64], made[64];
	char before[4][2048], after[2048];
	int groups[4], quiet, busy, by_name;

	subject_need(mkdtemp(directory) != NULL, "mkdtemp");
	snprintf(file, sizeof(file), "%s/file", directory);
	snprintf(made, sizeof(made), "%s/made", directory);
	subject_need(mknod(file, S_IFREG | 0600, 0) == 0, "mknod");
	quiet = groups[0] = group(BY_FD);
	busy = groups[1] = group(BY_FD);
	by_name = groups[2] = group(BY_NAME);
	groups[3] = group(BY_FD | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS | FAN_CLOEXEC);
	mark(quiet, 0, FAN_OPEN | FAN_CLOSE_WRITE, file);
	mark(busy, 0, FAN_OPEN, file);
	mark(busy, FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_MODIFY, file);
	mark(by_name, FAN_MARK_ONLYDIR, FAN_CREATE | FAN_DELETE | FAN_ONDIR | FAN_EVENT_ON_CHILD,
	     directory);
	/* Of what nobody does here while the program is saved. */
	mark(groups[3], FAN_MARK_FILESYSTEM, FAN_OPEN_EXEC, "/proc");
	mark(groups[3], FAN_MARK_MOUNT, FAN_CLOSE_WRITE | FAN_ONDIR, "/sys");
	fanotify_mark(groups[3],
	              FAN_MARK_ADD | FAN_MARK_FILESYSTEM | FAN_MARK_IGNORE |
	                      FAN_MARK_IGNORED_SURV_MODIFY,
	              FAN_OPEN_EXEC | FAN_ONDIR, AT_FDCWD, "/sys"); /* from 6.0 on */
	for (int i = 0; i < 4; i++)
		read_marks(groups[i], before[i], sizeof(before[i]));
	close(open(file, O_RDONLY));
	subject_need(next_event(quiet) == FAN_OPEN, "no event");

	subject_ready();

	/* Left running, the program reads its event; restored, it is told that there was one. */
	uint64_t event = next_event(busy);
	subject_check(event == FAN_OPEN || event == FAN_Q_OVERFLOW, "mask %llx, not an overflow",
	              (unsigned long long)event);
	subject_check(next_event(busy) == 0, "there is more than the overflow");
	for (int i = 0; i < 4; i++) {
		read_marks(groups[i], after, sizeof(after));
		subject_check(!strcmp(before[i], after), "marks of group %d: %s were %s", i, after,
		              before[i]);
	}
	subject_check(next_event(quiet) == 0 && next_event(groups[3]) == 0,
	              "an event of the dump or of the restore");
	close(open(file, O_WRONLY));
	subject_check(next_event(quiet) == (FAN_OPEN | FAN_CLOSE_WRITE), "no event of the file");
	subject_check(next_event(busy) == FAN_OPEN, "no event of the file, the other group");
	subject_check(mkdir(made, 0700) == 0, "mkdir");
	subject_check(next_event(by_name) == (FAN_CREATE | FAN_ONDIR), "no event of a directory");
	rmdir(made);
	return subject_end();
}
