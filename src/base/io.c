/* Whole reads and writes: see io.h. */
#include "base/io.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t sp_pread_full(int fd, void *buffer, size_t size, off_t offset)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pread(fd, (char *)buffer + done, size - done, offset + (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

int sp_write_full(int fd, const void *buffer, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t put = write(fd, (const char *)buffer + done, size - done);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		done += (size_t)put;
	}
	return 0;
}

int sp_pwrite_full(int fd, const void *buffer, size_t size, off_t offset)
{
	size_t done = 0;

	while (done < size) {
		ssize_t put =
		        pwrite(fd, (const char *)buffer + done, size - done, offset + (off_t)done);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		done += (size_t)put;
	}
	return 0;
}

int sp_reopen(int fd, int flags, struct sp_error *err)
{
	char path[64];
	int opened;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	opened = open(path, flags | O_CLOEXEC);
	return opened < 0 ? sp_fail_errno(err, errno, "cannot open it once more") : opened;
}

int sp_read_file(int dirfd, const char *path, char **text, size_t *size, struct sp_error *err)
{
	sp_cleanup_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	sp_cleanup_free char *buffer = NULL;
	size_t capacity = 0, used = 0;

	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", path);
	for (;;) {
		ssize_t got;

		if (used == capacity) {
			char *larger;

			capacity = capacity ? 2 * capacity : 4096;
			larger = realloc(buffer, capacity + 1);
			if (!larger)
				return sp_fail_errno(err, ENOMEM, "cannot read %s", path);
			buffer = larger;
		}
		got = read(fd, buffer + used, capacity - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return sp_fail_errno(err, errno, "cannot read %s", path);
		if (got == 0)
			break;
		used += (size_t)got;
	}
	buffer[used] = '\0';
	if (size)
		*size = used;
	*text = sp_steal_ptr(&buffer);
	return 0;
}

int sp_write_file(const char *path, const char *text, struct sp_error *err)
{
	sp_cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", path);
	if (write(fd, text, strlen(text)) < 0)
		return sp_fail_errno(err, errno, "cannot write \"%s\" to %s", text, path);
	return 0;
}

int sp_read_link(int dirfd, const char *path, char **target, struct sp_error *err)
{
	char buffer[PATH_MAX + 64]; /* /proc appends " (deleted)" behind a full path */
	ssize_t length = readlinkat(dirfd, path, buffer, sizeof(buffer) - 1);

	if (length < 0)
		return sp_fail_errno(err, errno, "cannot read the link %s", path);
	buffer[length] = '\0';
	*target = sp_strdup(buffer);
	return 0;
}
