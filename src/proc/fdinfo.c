/* Lines of /proc/PID/fdinfo/N: see fdinfo.h. */
#include "proc/fdinfo.h"

#include "base/error.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sp_fdinfo_find(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, length))
			return line + length;
	}
	return NULL;
}

int sp_fdinfo_number(const char *text, const char *key, int base, uint64_t *value,
                     struct sp_error *err)
{
	const char *start = sp_fdinfo_find(text, key);
	char *end;

	if (!start)
		return sp_fail(err, ENODATA, "the kernel does not tell its \"%s\" in fdinfo", key);
	*value = strtoull(start, &end, base);
	if (end == start)
		return sp_fail(err, ENODATA, "fdinfo has no number behind \"%s\"", key);
	return 0;
}

int sp_fdinfo_parse(const char *text, struct sp_fdinfo *info, struct sp_error *err)
{
	uint64_t position, flags, mount_id;

	if (sp_fdinfo_number(text, "pos:", 10, &position, err) ||
	    sp_fdinfo_number(text, "flags:", 8, &flags, err) ||
	    sp_fdinfo_number(text, "mnt_id:", 10, &mount_id, err))
		return -ENODATA;
	info->position = (int64_t)position; /* strtoull(3) takes a minus sign, too */
	info->flags = (int)(flags & ~(uint64_t)O_CLOEXEC);
	info->close_on_exec = flags & O_CLOEXEC;
	info->mount_id = (int)mount_id;
	return 0;
}

bool sp_fdinfo_field(const char **cursor, const char *key, int base, uint64_t *value)
{
	const char *start = *cursor + strspn(*cursor, " \t");
	char *end;

	if (strncmp(start, key, strlen(key)))
		return false;
	start += strlen(key);
	*value = strtoull(start, &end, base);
	*cursor = end;
	return end != start;
}

int sp_fdinfo_read_own(int fd, char **text, struct sp_error *err)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	return sp_read_file(AT_FDCWD, path, text, NULL, err);
}
