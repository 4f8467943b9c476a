/* Fields of /proc/PID/task/TID/status: see status.h. */
#include "proc/status.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sp_status_read(pid_t pid, pid_t tid, char **text, struct sp_error *err)
{
	return sp_proc_read_thread(pid, tid, "status", text, NULL, err);
}

/* Names start a line; the only value with free text, the task's name, has its newlines escaped. */
bool sp_status_find(const char *text, const char *name, const char **value, size_t *length)
{
	size_t name_length = strlen(name);

	for (const char *line = text; line && *line;) {
		const char *end = strchrnul(line, '\n');

		if (!strncmp(line, name, name_length) && line[name_length] == ':') {
			const char *first = line + name_length + 1;

			while (first < end && isblank((unsigned char)*first))
				first++;
			while (end > first && isblank((unsigned char)end[-1]))
				end--;
			*value = first;
			*length = (size_t)(end - first);
			return true;
		}
		line = *end ? end + 1 : NULL;
	}
	return false;
}

bool sp_status_is(const char *text, const char *name, const char *expected)
{
	const char *value;
	size_t length;

	return sp_status_find(text, name, &value, &length) && length == strlen(expected) &&
	       !memcmp(value, expected, length);
}

/*
 * One number at `*cursor`, before `end`: strtoull() alone would take signs and skip to other lines.
 */
static bool take_number(const char **cursor, const char *end, int base, uint64_t *value)
{
	char *behind;

	if (*cursor >= end || !isxdigit((unsigned char)**cursor))
		return false;
	errno = 0;
	*value = strtoull(*cursor, &behind, base);
	if (errno || behind == *cursor || behind > end)
		return false;
	*cursor = behind;
	return true;
}

int sp_status_number(const char *text, const char *name, int base, uint64_t *value,
                     struct sp_error *err)
{
	const char *first;
	size_t length;

	if (!sp_status_find(text, name, &first, &length))
		return sp_fail(err, EBADMSG, "/proc/PID/status has no line \"%s\"", name);
	if (!take_number(&first, first + length, base, value))
		return sp_fail(err, EBADMSG, "/proc/PID/status has no number behind \"%s\"", name);
	return 0;
}

int sp_status_numbers(const char *text, const char *name, uint32_t *values, size_t capacity,
                      size_t *count, struct sp_error *err)
{
	const char *cursor, *end;
	size_t length;

	*count = 0;
	if (!sp_status_find(text, name, &cursor, &length))
		return sp_fail(err, EBADMSG, "/proc/PID/status has no line \"%s\"", name);
	end = cursor + length;
	while (cursor < end) {
		uint64_t number;

		if (!take_number(&cursor, end, 10, &number) || number > UINT32_MAX)
			return sp_fail(err, EBADMSG, "/proc/PID/status has no number behind \"%s\"",
			               name);
		if (*count == capacity)
			return sp_fail(err, E2BIG,
			               "/proc/PID/status has over %zu numbers in \"%s\"", capacity,
			               name);
		values[(*count)++] = (uint32_t)number;
		while (cursor < end && isblank((unsigned char)*cursor))
			cursor++;
	}
	return 0;
}

bool sp_is_under_seccomp(pid_t pid, pid_t tid)
{
	sp_cleanup_free char *status = NULL;

	return !sp_status_read(pid, tid, &status, NULL) && !sp_status_is(status, "Seccomp", "0");
}
