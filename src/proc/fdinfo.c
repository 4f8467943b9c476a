/* Reading /proc/PID/fdinfo/N: see fdinfo.h. */
#include "proc/fdinfo.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *sp_fdinfo_value(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (;;) {
		if (!strncmp(text, key, length) && text[length] == ':')
			return text + length + 1 + strspn(text + length + 1, " \t");
		text = strchr(text, '\n');
		if (!text)
			return NULL;
		text++;
	}
}

static bool find_number(const char *text, const char *key, int base, uint64_t *number)
{
	const char *value = sp_fdinfo_value(text, key);
	char *end;

	if (!value)
		return false;
	*number = strtoull(value, &end, base);
	return end != value;
}

bool sp_fdinfo_parse(const char *text, struct sp_fdinfo *info)
{
	uint64_t position, flags, mount_id;

	if (!find_number(text, "pos", 10, &position) || !find_number(text, "flags", 8, &flags) ||
	    !find_number(text, "mnt_id", 10, &mount_id))
		return false;
	info->position = (int64_t)position; /* strtoull() takes a minus sign, too */
	info->flags = (int)(flags & ~(uint64_t)O_CLOEXEC);
	info->close_on_exec = flags & O_CLOEXEC;
	info->mount_id = (int)mount_id;
	return true;
}
