/*
 * Going back in time: a ring of snapshots of one's own memory, as an emulator's rewind and save-states
 * need it. Each capture stores only what was written since the last one (write_watch.h), compressed.
 *
 *	struct sp_rewind *rewind;
 *	struct sp_span ram = {memory, memory + size};
 *
 *	sp_rewind_open(&rewind, ram, &cpu, sizeof(cpu), 64 << 20, SP_WRITE_WATCH_AUTO);
 *	each frame:	sp_rewind_capture(rewind);
 *	a key is held:	sp_rewind_back(rewind, 1);
 *
 * Captured are a range of memory, and a small state outside of it, such as the registers of the
 * machine. What is kept: a copy of both as of the last capture, and for each capture the difference
 * to the one before, up to a limit of memory; then the oldest go.
 *
 * Functions that can fail return a negative errno. An object is used by one thread at a time, while
 * no other thread writes to the memory or the state: the machine stands still during a call. In a
 * child of fork(2), what would capture or change memory returns -ECHILD.
 *
 * Memory can be watched once, so an emulator that redraws what has changed asks sp_rewind_changed()
 * instead of having a watch of its own.
 *
 * Overview: sp_rewind(7). libsealpoint-rewind needs libzstd; the kernel versions are those of
 * write_watch.h.
 */
#ifndef SEALPOINT_REWIND_H
#define SEALPOINT_REWIND_H

#include <sealpoint/write_watch.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sp_rewind;

struct sp_rewind_stats {
	size_t frames;      /* how far sp_rewind_back() can go */
	size_t bytes;       /* that they take, of the limit */
	size_t last_bytes;  /* that the last capture has taken */
	size_t last_blocks; /* of 4096 bytes, that differed in it */
};

/**
 * Starts with a first capture, to which sp_rewind_back() can return. `memory` as for
 * sp_write_watch_open(), whose errors it returns. `state` has `state_size` bytes, at most 4096, and may
 * be NULL with 0; it must stay where it is. `limit`: bytes for the differences; the copy of the
 * memory comes on top. `*rewind` is the caller's to close.
 */
SP_WRITE_WATCH_API int sp_rewind_open(struct sp_rewind **rewind, struct sp_span memory, void *state,
                                      size_t state_size, size_t limit,
                                      enum sp_write_watch_backend backend);

/** Frees everything; memory and state stay as they are. NULL is allowed. */
SP_WRITE_WATCH_API void sp_rewind_close(struct sp_rewind *rewind);

/**
 * Captures memory and state as they are now. The oldest captures are dropped to stay within the limit;
 * if this one alone is larger than it, none remains to go back to but this one itself. -ENOMEM: out of
 * memory; nothing was captured, and what was written still counts as written.
 */
SP_WRITE_WATCH_API int sp_rewind_capture(struct sp_rewind *rewind);

/**
 * Makes memory and state what they were `frames` captures before the last one, byte for byte; 0: at
 * the last one. That capture is now the last one, later ones are dropped. -ERANGE: there are not so
 * many (sp_rewind_stats()), and nothing was changed.
 */
SP_WRITE_WATCH_API int sp_rewind_back(struct sp_rewind *rewind, size_t frames);

/**
 * Reports what captures and going back have found or made different, in ranges of 4096 bytes, since it
 * was last reset: arguments and result as sp_write_watch_ranges(). At first, nothing.
 */
SP_WRITE_WATCH_API ssize_t sp_rewind_changed(struct sp_rewind *rewind, struct sp_span *left,
                                             unsigned flags, struct sp_span *ranges, size_t room);

/** Writes the last capture to a file, from its position on: a save-state. */
SP_WRITE_WATCH_API int sp_rewind_save(struct sp_rewind *rewind, int fd);

/**
 * Makes memory and state what was saved, and captures them: going back leads to what was before.
 * -EBADMSG: it is damaged or no save-state; -EINVAL: it is one of another memory or state size. Then
 * nothing was changed.
 */
SP_WRITE_WATCH_API int sp_rewind_load(struct sp_rewind *rewind, int fd);

SP_WRITE_WATCH_API void sp_rewind_stats(const struct sp_rewind *rewind,
                                        struct sp_rewind_stats *stats);

/** What the underlying watch guarantees: sp_write_watch_guarantees(). */
SP_WRITE_WATCH_API unsigned sp_rewind_guarantees(const struct sp_rewind *rewind);

#ifdef __cplusplus
}
#endif

#endif
