/*
 * A save-state: a header and one zstd frame with a checksum, of the memory and then the state. All
 * functions return 0 or a negative errno.
 */
#ifndef SEALPOINT_TRACK_REWIND_SAVE_H
#define SEALPOINT_TRACK_REWIND_SAVE_H

#include <stddef.h>

/** Writes `memory_size` bytes of memory and the `state_size` bytes of state that follow them. */
int sp_state_save(int fd, const char *contents, size_t memory_size, size_t state_size);
/**
 * Reads them. -EBADMSG: damaged, cut off, or no save-state; -EINVAL: other sizes. Contents are valid
 * only if it returns 0.
 */
int sp_state_load(int fd, char *contents, size_t memory_size, size_t state_size);

#endif
