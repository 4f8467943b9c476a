/*
 * Fields of /proc/PID/task/TID/status, the kernel's own summary of a task: identities, signals,
 * capabilities, seccomp. The text is read once and asked many times; see proc_pid_status(5).
 */
#ifndef SEALPOINT_PROC_STATUS_H
#define SEALPOINT_PROC_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_error;

/** The status of thread `tid` of process `pid`; the text is the caller's to free. */
int sp_status_read(pid_t pid, pid_t tid, char **text, struct sp_error *err);

/**
 * What stands behind "NAME:", without the blanks around it: a pointer into `text` and the length.
 * False if there is no such line (a kernel that is older or built without it).
 */
bool sp_status_find(const char *text, const char *name, const char **value, size_t *length);
/** True if the line exists and its value is exactly `expected`. */
bool sp_status_is(const char *text, const char *name, const char *expected);

/**
 * The first number of a line, in `base` 8, 10 or 16; EBADMSG if the line is missing or holds none.
 * Signal sets and capability sets are one number in base 16.
 */
int sp_status_number(const char *text, const char *name, int base, uint64_t *value,
                     struct sp_error *err);
/**
 * Up to `capacity` decimal numbers of a line (Uid, Gid: four each; Groups: any), their count in
 * `*count`. EBADMSG if the line is missing or holds anything else; E2BIG if there are more.
 */
int sp_status_numbers(const char *text, const char *name, uint32_t *values, size_t capacity,
                      size_t *count, struct sp_error *err);

/** True if the thread is under seccomp, in strict mode or with a filter. */
bool sp_is_under_seccomp(pid_t pid, pid_t tid);

#endif
