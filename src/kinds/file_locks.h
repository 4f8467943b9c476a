/*
 * Locks on files: POSIX record locks (fcntl F_SETLK), open file description locks (F_OFD_SETLK),
 * flock(2), and leases (F_SETLEASE). They belong to no kind: a regular file, a directory or a device can be locked. Found in
 * the "lock:" lines of fdinfo, saved with the open file that they were taken through, taken again
 * when the descriptors are in place.
 */
#ifndef SEALPOINT_KINDS_FILE_LOCKS_H
#define SEALPOINT_KINDS_FILE_LOCKS_H

#include "kinds/file_table.h"

struct sp_file_lock {
	uint32_t file; /* sp_open_file.id */
	Sealpoint__FileLock__Type type;
	pid_t pid; /* of a POSIX lock */
	bool exclusive;
	uint64_t start;
	uint64_t length; /* 0: to the end of the file */
};

/**
 * Adds the locks that the fdinfo text of a descriptor of process `pid` names. `first_holder` is
 * false for a further process that has the same open file: of that only its own POSIX locks are
 * new. A lease that somebody wants broken is refused until that has happened.
 */
int sp_file_locks_read(struct sp_array *locks, uint32_t file, pid_t pid, const char *fdinfo,
                       bool first_holder, struct sp_error *err);

/**
 * Takes the locks of one file again: those that belong to the open file through sealpoint's own
 * descriptor, or for a lease by a remote call, if `whole`; POSIX locks of process builder->pid by
 * remote calls.
 */
int sp_file_locks_take(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, bool whole,
                       struct sp_error *err);

#endif
