/*
 * What processes may share that fork(2) gives each of them for itself: memory, descriptors,
 * directories, signal actions (clone(2), vfork(2)).
 */
#ifndef SEALPOINT_KINDS_SHARING_H
#define SEALPOINT_KINDS_SHARING_H

#include "remote/process.h"

/**
 * Refuses a stopped process that shares such a thing with its parent or a child, by the names of
 * both: restored apart, each would have one of its own. Others than these two are not looked at.
 */
int sp_sharing_check(const struct sp_process *process, struct sp_error *err);
/** The same of any two of these processes (pid_t), which all stand still. */
int sp_sharing_check_all(const struct sp_array *pids, struct sp_error *err);

#endif
