/*
 * /proc/PID/fdinfo/N: lines of "key:<blanks>value". The first ones are the same for every open file
 * (proc_pid_fdinfo(5)); the rest belongs to its kind.
 */
#ifndef SEALPOINT_PROC_FDINFO_H
#define SEALPOINT_PROC_FDINFO_H

#include <stdbool.h>
#include <stdint.h>

struct sp_fdinfo {
	int64_t position;
	int flags; /* access mode and status flags, without O_CLOEXEC */
	bool close_on_exec;
	int mount_id;
};

/** Reads the common part. False if the text is not that of an fdinfo file. */
bool sp_fdinfo_parse(const char *text, struct sp_fdinfo *info);

/**
 * The value of the first line with this key, at or behind `text`: the rest of the text from there
 * on. NULL if there is none. Call again with the result to get the next one.
 */
const char *sp_fdinfo_value(const char *text, const char *key);

#endif
