/*
 * Where sealpoint can stand in a process that it did not make: a system call instruction to begin
 * with, and a place for the signal frame that heals the process if sealpoint dies.
 *
 * The frame must lie in the target before its first register is changed, so no remote system call can
 * make room for it. It is written to the lowest pages of the mapping that the kernel made for the main
 * thread's stack ("[stack]"): pages that have never been touched, or hold only zeros, more than
 * 64 KiB below the main thread's stack pointer when that lies in it. Nothing lives there, and a
 * coroutine's small stack is never it. After use the pages are zeroed again.
 *
 * With the stack pointer on the frame, the target's own code heals it: "system call; return" runs one
 * call and returns to the sigreturn code that every C library has, which loads the frame.
 *
 * A target that lacks one of these is still driven, with the frame in the temporary pages; `complete`
 * says so, and two windows of one system call each remain in which a killed sealpoint would leave the
 * target's registers changed (docs/architecture.md tells more).
 */
#ifndef SEALPOINT_REMOTE_FOOTHOLD_H
#define SEALPOINT_REMOTE_FOOTHOLD_H

#include "base/range.h"

#include <stdbool.h>
#include <sys/types.h>

struct sp_error;

struct sp_foothold {
	bool complete;
	remote_addr instruction; /* "system call", followed by "return" if complete */
	remote_addr sigreturn;	 /* code that calls rt_sigreturn(2); 0 if none was found */
	remote_addr frame;	 /* lowest address of the stack mapping; 0 if it cannot be used */
	size_t frame_size;	 /* bytes that may be used there */
};

/**
 * Looks for a foothold in process `pid`, which may be running: do this before the freeze. Reads the
 * executable mappings, smallest first. ENOEXEC if the process has no system call instruction at all.
 */
int sp_foothold_find(pid_t pid, struct sp_foothold *foothold, struct sp_error *err);

/** Checks, now that the process is stopped, that what was found is still there; looks again if not. */
int sp_foothold_confirm(pid_t pid, remote_addr main_stack_pointer, struct sp_foothold *foothold,
			struct sp_error *err);

#endif
