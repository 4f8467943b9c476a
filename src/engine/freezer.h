/*
 * A control group that is frozen for a moment (cgroups(7); the freezer of version 1, cgroup.freeze of version 2). It is
 * thawed in the end, also if this process is killed: another one sees to that.
 */
#ifndef SEALPOINT_ENGINE_FREEZER_H
#define SEALPOINT_ENGINE_FREEZER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_freezer {
	char *file; /* that says whether it is frozen; NULL: nothing has begun */
	bool version_1;
	pid_t guardian;
	int leash; /* closed, it makes the guardian end */
};

/** Freezes the group with this directory and waits until it is. Refuses one that is frozen, or that we are in. */
int sp_freezer_freeze(struct sp_freezer *freezer, const char *group, uint64_t deadline_ns,
                      struct sp_error *err);
/** Thaws it, for those in it to stop one by one. */
int sp_freezer_thaw(const struct sp_freezer *freezer, struct sp_error *err);
/** The same, whatever has become of it; the guardian ends. */
void sp_freezer_end(struct sp_freezer *freezer);

#endif
