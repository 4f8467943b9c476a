/* Reads /proc/PID/maps: see maps.h. */
#include "proc/maps.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool parse_line(const char *line, struct sp_map *map)
{
	char access[5];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &map->range.start, &map->range.end,
	           access) != 3)
		return false;
	map->readable = access[0] == 'r';
	map->writable = access[1] == 'w';
	map->executable = access[2] == 'x';
	map->shared = access[3] == 's';
	return true;
}

int sp_maps_read(pid_t pid, struct sp_array *maps, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	char path[64], *rest, *line;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	rc = sp_read_file(AT_FDCWD, path, &text, NULL, err);
	if (rc)
		return rc;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		struct sp_map *map = sp_array_push(maps);

		if (!parse_line(line, map))
			return sp_fail(err, EPROTO, "cannot understand %s: %s", path, line);
		map->main_stack = strstr(line, "[stack]") != NULL;
	}
	return 0;
}
