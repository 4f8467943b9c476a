/*
 * The directory in which a checkpoint is written, PATH.partial-PID beside the one that it will be. Whoever writes
 * there has it locked, so that one which nobody has locked is known to be left by a run that was killed.
 */
#ifndef SEALPOINT_IMAGE_PARTIAL_H
#define SEALPOINT_IMAGE_PARTIAL_H

#include <limits.h>

struct sp_error;

/** Fills in the name of the one that this process makes for `path`. -ENAMETOOLONG */
int sp_partial_name(const char *path, char partial[PATH_MAX]);
/**
 * Makes it, and removes what killed runs have left for the same path. Returns a descriptor, which has the lock;
 * after a failure nothing is there.
 */
int sp_partial_make(const char *path, const char *partial, struct sp_error *err);
/** Removes a directory and the files of a checkpoint in it, without a need for memory. */
void sp_partial_remove(void *partial);

#endif
