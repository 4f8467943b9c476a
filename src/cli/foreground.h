/* Standing in for a restored program in the foreground. */
#ifndef SEALPOINT_CLI_FOREGROUND_H
#define SEALPOINT_CLI_FOREGROUND_H

#include <stdbool.h>
#include <sys/types.h>

/**
 * Waits for `pid`, as sp_stand_in_for() does, and returns true and its wait status; false if it is no
 * child of ours.
 */
bool sp_stand_in_until_end(pid_t pid, bool starts_stopped, int *status);
/**
 * Waits for `pid`, a child of ours, to end, and does for it what its shell expects of a job: passes
 * signals on, gives it the terminal, stops when it stops. `starts_stopped`: its first stop is not
 * news. Returns its exit status; if a signal ended it, ends by the same signal, or returns 128 +
 * signal where that is not possible.
 */
int sp_stand_in_for(pid_t pid, bool starts_stopped);

#endif
