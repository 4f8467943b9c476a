/*
 * What /proc/PID/fdinfo/N says about an open file (proc_pid_fdinfo(5)): lines of "key: value", and
 * for some kinds lines of several pairs.
 */
#ifndef SEALPOINT_KINDS_FDINFO_H
#define SEALPOINT_KINDS_FDINFO_H

#include <stdint.h>

struct sp_error;

/**
 * The text behind `key` in the first line of `text` that begins with it, or NULL. To go on to the
 * next such line, search again from what was returned.
 */
const char *sp_fdinfo_find(const char *text, const char *key);

/** The number behind `key`. ENODATA, with the key's name, if there is no such line or no number in
 * it. */
int sp_fdinfo_number(const char *text, const char *key, int base, uint64_t *value,
                     struct sp_error *err);

/** Reads the fdinfo of one of our own descriptors: what the kernel says now. The caller frees
 * `*text`. */
int sp_fdinfo_read_own(int fd, char **text, struct sp_error *err);

#endif
