/*
 * What the files of a remote share. Downward: batch.c and remote.c, then calls.c, then driver.c.
 */
#ifndef SEALPOINT_REMOTE_REMOTE_INTERNAL_H
#define SEALPOINT_REMOTE_REMOTE_INTERNAL_H

#include "remote/remote.h"

/* --- where things lie in the temporary mapping (remote.c) --- */

remote_addr sp_remote_block_address(const struct sp_remote *remote);
remote_addr sp_remote_calls_address(const struct sp_remote *remote);
remote_addr sp_remote_data_address(const struct sp_remote *remote);
/* Frames that do not fit into the target's own stack lie at the end of the data area. */
remote_addr sp_remote_own_frames_address(const struct sp_remote *remote);
size_t sp_remote_data_capacity(const struct sp_remote *remote);

/**
 * Writes to the data pages: from outside, and against their protection as long as they are
 * read-only.
 */
int sp_remote_write(const struct sp_remote *remote, remote_addr to, const void *bytes, size_t size,
                    struct sp_error *err);

/* --- making calls (calls.c) --- */

/** Runs the first `calls` calls that lie at sp_remote_calls_address(), up to a failed one. */
int sp_remote_run_batch(struct sp_remote *remote, size_t calls, struct sp_error *err);
/** Makes one call, if `remote->one_by_one`, and sets its result. */
int sp_remote_run_alone(struct sp_remote *remote, struct sp_call *call, struct sp_error *err);
/** Runs the call that the driver's registers are set for. */
int sp_remote_run_aimed(struct sp_remote *remote, int64_t *result, struct sp_error *err);

/**
 * Brings the driver to a stop inside the kernel's signal handling, without executing anything more.
 * Only there does the kernel finish an interrupted system call when the registers are put back
 * (restart.c).
 */
int sp_remote_stop(struct sp_remote *remote, struct sp_error *err);

/* --- the registers of the driver (driver.c) --- */

#define SP_FRAME_HEAD 512 /* of a slot: the mark, then room for what the healing code pushes */

static inline uint64_t sp_signal_bit(int signal)
{
	return 1ULL << (signal - 1);
}

struct sp_call sp_driver_unmap_call(const struct sp_remote *remote);

/**
 * Where the driver's signal frame lies; the word below it is the address of munmap(2), if the
 * target has one.
 */
remote_addr sp_driver_frame(const struct sp_remote *remote);
int sp_driver_write_frame(struct sp_remote *remote, struct sp_error *err);

/**
 * Changes the driver's registers to ones from which it heals. Under seccomp there are no batches
 * from here on: the only call that may run when nothing suspends the filters any more is
 * rt_sigreturn(2).
 */
int sp_driver_engage(struct sp_remote *remote, struct sp_error *err);
/** The same, but the driver is about to make `call`, with `stack`; the frame is written already. */
int sp_driver_engage_at(struct sp_remote *remote, const struct sp_call *call, remote_addr stack,
                        struct sp_error *err);
/**
 * The position from which an untraced driver unmaps the pages and heals, without touching the
 * runner; under seccomp it only heals.
 */
int sp_driver_rest(struct sp_remote *remote, struct sp_error *err);
/** Gives the driver its own registers and mask again. It stands in a signal or event stop. */
int sp_driver_disengage(struct sp_remote *remote, struct sp_error *err);

#endif
