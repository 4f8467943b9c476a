/* Why a process has no room for the temporary pages, or for a descriptor. */
#ifndef SEALPOINT_REMOTE_ROOM_H
#define SEALPOINT_REMOTE_ROOM_H

#include <sys/types.h>

struct sp_error;

/**
 * After a failure to take control: where it was for want of memory, and a limit of the process leaves
 * no room for the temporary pages (RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK), `err` becomes a sentence
 * that names it and says how to raise it. Returns the error's negative errno.
 */
int sp_room_explain(pid_t pid, struct sp_error *err);
/**
 * After a failure to open something in a process: where that has as many descriptors as its limit allows
 * (EMFILE), the sentence says how to raise it. Returns the error's negative errno.
 */
int sp_room_explain_descriptors(pid_t pid, struct sp_error *err);

#endif
