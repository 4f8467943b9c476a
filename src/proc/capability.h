/* Capabilities by name, and those that sealpoint itself has. See capabilities(7). */
#ifndef SEALPOINT_PROC_CAPABILITY_H
#define SEALPOINT_PROC_CAPABILITY_H

#include <stdbool.h>
#include <stdint.h>

struct sp_error;

/**
 * "CAP_SYS_RESOURCE"; a number for one that is newer than this program, in a buffer of the
 * thread's.
 */
const char *sp_capability_name(unsigned capability);
/** The names of the capabilities of a set, comma separated, cut where the room ends. */
void sp_capability_names(uint64_t set, char *text, unsigned size);
/** The calling thread's permitted set: what it could use or hand on. */
uint64_t sp_capability_permitted(void);
/** True if the calling thread may use `capability` now. */
bool sp_capability_have(unsigned capability);
/**
 * Refuses with EPERM, and says how to get it, unless the calling thread has what every dump and
 * every restore needs: CAP_CHECKPOINT_RESTORE, or CAP_SYS_ADMIN in its place. `purpose` goes on
 * behind "no permission to".
 */
int sp_capability_need_checkpoint(const char *purpose, struct sp_error *err);

#endif
