/*
 * Acting in the guise of another process. The kernel remembers of a socket who made it, and of a message
 * who sent it: a process id, a user, a group. So whatever is to be remembered of a process of the
 * checkpoint is done by a passing process that has its id, while that is still free, and its user. It
 * shares our memory and our descriptors, and nothing else, and we wait for it.
 */
#ifndef SEALPOINT_KINDS_GUISE_H
#define SEALPOINT_KINDS_GUISE_H

#include <sys/types.h>

/**
 * Calls act(context) in a passing process, or in another one beside that: it has the files that its caller has. If no process can have the id `pid` (0: any will do), it gets
 * another one. Returns what act returns, 0 or a negative errno.
 */
int sp_guise_run(pid_t pid, int (*act)(void *context), void *context);
/** In there: takes on a user and a group, and gives them back. */
void sp_guise_put_on(uid_t uid, gid_t gid);
void sp_guise_take_off(void);

/**
 * In there: gives the passing process a root directory that is empty and its own, so that a path can be
 * bound which is in use outside, or whose directories are not there. All of it is gone with the process.
 * Returns 0 or a negative errno.
 */
int sp_guise_leave_files(void);

#endif
