/* Reads /proc/PID/maps: see maps.h. */
#include "proc/maps.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Takes a number, and the character behind it, from a line. Faster than sscanf(3): programs stand still meanwhile. */
static bool take(const char **line, int base, char behind, uint64_t *number)
{
	char *end;

	*number = strtoull(*line, &end, base);
	if (end == *line || *end != behind)
		return false;
	*line = end + 1;
	return true;
}

bool sp_map_parse(const char *line, struct sp_map *map, const char **path)
{
	const char *access;

	if (!take(&line, 16, '-', &map->range.start) || !take(&line, 16, ' ', &map->range.end) ||
	    map->range.start >= map->range.end || strcspn(line, " ") != strlen("rwxp"))
		return false;
	access = line;
	line += strlen("rwxp ");
	if (!take(&line, 16, ' ', &map->offset) || !take(&line, 16, ':', &map->dev_major) ||
	    !take(&line, 16, ' ', &map->dev_minor) || !take(&line, 10, ' ', &map->inode))
		return false;
	map->readable = access[0] == 'r';
	map->writable = access[1] == 'w';
	map->executable = access[2] == 'x';
	map->shared = access[3] == 's';
	*path = line + strspn(line, " ");
	map->main_stack = !strcmp(*path, "[stack]");
	map->vdso = !strcmp(*path, "[vdso]");
	return true;
}

int sp_maps_read(pid_t pid, struct sp_array *maps, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	char *rest, *line;
	const char *path;
	int rc = sp_proc_read(pid, "maps", &text, NULL, err);

	if (rc)
		return rc;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (!sp_map_parse(line, sp_array_push(maps), &path))
			return sp_fail(err, EPROTO, "cannot understand /proc/%d/maps: %s", pid,
			               line);
	return 0;
}
