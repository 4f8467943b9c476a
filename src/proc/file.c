/* Files of /proc/PID: see file.h. */
#include "proc/file.h"

#include "base/error.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

struct proc_path {
	char text[128];
};

static struct proc_path path_of(pid_t pid, const char *name)
{
	struct proc_path path;

	snprintf(path.text, sizeof(path.text), "/proc/%d/%s", pid, name);
	return path;
}

int sp_proc_read(pid_t pid, const char *name, char **text, size_t *size, struct sp_error *err)
{
	return sp_read_file(AT_FDCWD, path_of(pid, name).text, text, size, err);
}

int sp_proc_read_thread(pid_t pid, pid_t tid, const char *name, char **text, size_t *size,
                        struct sp_error *err)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d/%s", tid, name);
	return sp_proc_read(pid, path, text, size, err);
}

int sp_proc_write(pid_t pid, const char *name, const char *text, struct sp_error *err)
{
	return sp_write_file(path_of(pid, name).text, text, err);
}

int sp_proc_read_link(pid_t pid, const char *name, char **target, struct sp_error *err)
{
	return sp_read_link(AT_FDCWD, path_of(pid, name).text, target, err);
}

int sp_proc_open(pid_t pid, const char *name, int flags, struct sp_error *err)
{
	struct proc_path path = path_of(pid, name);
	int fd = open(path.text, flags | O_CLOEXEC);

	return fd < 0 ? sp_fail_errno(err, errno, "cannot open %s", path.text) : fd;
}
