/*
 * Files of a process or of a thread in /proc, by the name that they have there: "maps", "timers",
 * "fdinfo/3". Errors name the whole path.
 */
#ifndef SEALPOINT_PROC_FILE_H
#define SEALPOINT_PROC_FILE_H

#include <stddef.h>
#include <sys/types.h>

struct sp_error;

/** Reads all of /proc/PID/NAME, as sp_read_file() does: `*text` is the caller's to free. */
int sp_proc_read(pid_t pid, const char *name, char **text, size_t *size, struct sp_error *err);
/** The same of /proc/PID/task/TID/NAME. */
int sp_proc_read_thread(pid_t pid, pid_t tid, const char *name, char **text, size_t *size,
                        struct sp_error *err);
/** Writes a short text in one write(2). */
int sp_proc_write(pid_t pid, const char *name, const char *text, struct sp_error *err);
/** Where a symbolic link leads, the caller's to free. */
int sp_proc_read_link(pid_t pid, const char *name, char **target, struct sp_error *err);
/** Opens it, close-on-exec; a negative errno if that fails. */
int sp_proc_open(pid_t pid, const char *name, int flags, struct sp_error *err);

#endif
