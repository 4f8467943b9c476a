/*
 * /proc/PID/maps (proc_pid_maps(5)): where the mappings of a process are. Cheap: the kernel does
 * not walk page tables for it. What smaps tells beyond is mem/vma.h's business.
 */
#ifndef SEALPOINT_PROC_MAPS_H
#define SEALPOINT_PROC_MAPS_H

#include "base/array.h"
#include "base/range.h"

#include <stdbool.h>
#include <sys/types.h>

struct sp_error;

struct sp_map {
	struct sp_range range;
	bool readable, writable, executable, shared;
	bool main_stack; /* "[stack]" */
	bool vdso;       /* "[vdso]" */
	uint64_t offset; /* in the file, bytes */
	uint64_t dev_major, dev_minor, inode;
};

/**
 * Takes a line of maps, or the first line of a mapping in smaps. `*path` is what stands at its end,
 * "" if nothing does. False if it is no such line.
 */
bool sp_map_parse(const char *line, struct sp_map *map, const char **path);

/** Reads the list, ascending, into an array of struct sp_map that the caller releases. */
int sp_maps_read(pid_t pid, struct sp_array *maps, struct sp_error *err);

#endif
