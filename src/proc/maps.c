/* Reads /proc/PID/maps: see maps.h. */
#include "proc/maps.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

bool sp_map_parse(const char *line, struct sp_map *map, const char **path)
{
	char access[5];
	int end = 0;

	if (sscanf(line,
	           "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx64 ":%" SCNx64 " %" SCNu64 " %n",
	           &map->range.start, &map->range.end, access, &map->offset, &map->dev_major,
	           &map->dev_minor, &map->inode, &end) != 7 ||
	    map->range.start >= map->range.end || strlen(access) != 4)
		return false;
	map->readable = access[0] == 'r';
	map->writable = access[1] == 'w';
	map->executable = access[2] == 'x';
	map->shared = access[3] == 's';
	*path = line + end;
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
