/* The children of a process, those of all its threads, and who descends from whom. */
#ifndef SEALPOINT_PROC_CHILDREN_H
#define SEALPOINT_PROC_CHILDREN_H

#include "base/array.h"

#include <stdbool.h>
#include <sys/types.h>

struct sp_error;

/**
 * Appends them (pid_t), those too that have ended and were not collected yet. Complete if the process
 * stands still; otherwise some may be missing.
 */
int sp_children_read(pid_t pid, struct sp_array *children, struct sp_error *err);

/** Is it the id of process `root` or a descendant of it, or of one of their threads? */
bool sp_is_of_tree(pid_t id, pid_t root);

#endif
