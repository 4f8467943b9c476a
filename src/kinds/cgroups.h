/*
 * The control groups that a process is in, of each hierarchy that is mounted, and what is set for them. Threads of a process
 * in different groups are refused.
 */
#ifndef SEALPOINT_KINDS_CGROUPS_H
#define SEALPOINT_KINDS_CGROUPS_H

#include "kinds/kind.h"

/** "none", "props", "soft", "full", "strict" or "ignore". */
bool sp_cgroups_parse_mode(const char *text, enum sp_cgroup_mode *mode);

/** Appends the groups of a process: Sealpoint__Cgroup *, for sp_cgroups_free(). */
int sp_cgroups_save(const struct sp_process *process, struct sp_array *groups,
                    struct sp_error *err);
void sp_cgroups_free(struct sp_array *groups);

/** What a restore has made. */
struct sp_cgroups {
	struct sp_array made; /* char *: directories */
};

/** Puts a process that has just begun into the groups of its record, and makes them, as the mode says. */
int sp_cgroups_enter(struct sp_cgroups *cgroups, const Sealpoint__Process *record,
                     enum sp_cgroup_mode mode, struct sp_error *err);
/** What was made stays if the restore has succeeded. */
void sp_cgroups_release(struct sp_cgroups *cgroups, bool restored);

#endif
