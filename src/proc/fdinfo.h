/*
 * What /proc/PID/fdinfo/N says about an open file (proc_pid_fdinfo(5)): lines of "key: value", and
 * for some kinds lines of several pairs. The first lines are the same for every open file; the rest
 * belongs to its kind.
 */
#ifndef SEALPOINT_PROC_FDINFO_H
#define SEALPOINT_PROC_FDINFO_H

#include <stdbool.h>
#include <stdint.h>

struct sp_error;

struct sp_fdinfo {
	int64_t position;
	int flags; /* access mode and status flags, without O_CLOEXEC */
	bool close_on_exec;
	int mount_id;
};

/** Reads the part that is common to all. */
int sp_fdinfo_parse(const char *text, struct sp_fdinfo *info, struct sp_error *err);

/**
 * The text behind `key` in the first line of `text` that begins with it, or NULL. To go on to the
 * next such line, search again from what was returned.
 */
const char *sp_fdinfo_find(const char *text, const char *key);

/**
 * The number behind `key`. ENODATA, with the key's name, if there is no such line or no number in
 * it.
 */
int sp_fdinfo_number(const char *text, const char *key, int base, uint64_t *value,
                     struct sp_error *err);

/**
 * Reads one "key:number" of a line of several and moves `*cursor` behind it; false if something
 * else stands there. (sscanf(3) measures the whole rest of the text at each call, which some
 * programs' ten thousand lines make too slow.)
 */
bool sp_fdinfo_field(const char **cursor, const char *key, int base, uint64_t *value);

/**
 * Reads the fdinfo of one of our own descriptors: what the kernel says now. The caller frees
 * `*text`.
 */
int sp_fdinfo_read_own(int fd, char **text, struct sp_error *err);

#endif
