/*
 * What processes may share that fork(2) gives each of them for itself: memory, descriptors,
 * directories, signal actions (clone(2), vfork(2)).
 */
#ifndef SEALPOINT_KINDS_SHARING_H
#define SEALPOINT_KINDS_SHARING_H

#include <sys/types.h>

struct sp_array;
struct sp_error;

/**
 * Refuses a process that shares such a thing with its parent, by the names of both: restored apart, each
 * would have one of its own.
 */
int sp_sharing_check_parent(pid_t pid, struct sp_error *err);
/** The same of any two of these processes (pid_t), which all stand still. */
int sp_sharing_check_all(const struct sp_array *pids, struct sp_error *err);

#endif
