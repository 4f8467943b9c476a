/*
 * Where sealpoint can stand in a process that it did not make: a system call instruction to begin
 * with, and a place for the signal frame that heals the process if sealpoint dies.
 *
 * The frame must lie in the target before its first register is changed, so no remote system call
 * can make room for it. It is written to the lowest pages of the mapping that the kernel made for
 * the main thread's stack ("[stack]"): pages that have never been touched, or hold only zeros, more
 * than 16 KiB below the main thread's stack pointer when that lies in it. Nothing lives there, and
 * a coroutine's small stack is never it. After use the pages are zeroed again. (A main thread that is
 * on another stack has no pointer in it: an array of zeros that it left there would be taken for free.)
 *
 * With the stack pointer on the frame, the target's own code heals it: "system call; return" runs
 * one call and returns to the sigreturn code that every C library has, which loads the frame. The
 * call that maps the temporary pages returns through the library's own munmap(2) first, whose two
 * arguments are those of mmap(2), so that not even an empty mapping is left behind.
 *
 * A target that lacks one of these is still driven, with the frame in the temporary pages;
 * `complete` says so, and two windows of one system call each remain in which a killed sealpoint
 * would leave the target's registers changed (docs/architecture.md tells more).
 */
#ifndef SEALPOINT_REMOTE_FOOTHOLD_H
#define SEALPOINT_REMOTE_FOOTHOLD_H

#include "base/range.h"

#include <stdbool.h>
#include <sys/types.h>

struct sp_error;

/* Room for the temporary mapping. */
#define SP_FOOTHOLD_GAP_SIZE (1ULL << 20)

/*
 * Stands at the start of each slot, so that a later run knows what an earlier, killed one has left
 * there.
 */
extern const char sp_frame_mark[16];

struct sp_foothold {
	bool complete;
	remote_addr instruction; /* "system call", followed by "return" if complete */
	remote_addr sigreturn;   /* code that calls rt_sigreturn(2); 0 if none was found */
	remote_addr unmap;       /* a function munmap(2); 0 if none was found */
	remote_addr frame;       /* lowest address of the stack mapping; 0 if it cannot be used */
	remote_addr gap;         /* a free range of SP_FOOTHOLD_GAP_SIZE; set when confirmed */
};

/**
 * Looks for a foothold in process `pid`, which may be running: do this before the freeze. Reads the
 * executable mappings but those in `except`, smallest first. ENOEXEC if the process has no system
 * call instruction at all.
 */
int sp_foothold_find(pid_t pid, struct sp_range except, struct sp_foothold *foothold,
                     struct sp_error *err);

/**
 * Checks, now that the process is stopped, that what was found is still there, and looks again if
 * not. Finds the place for the two slots of signal frames, and the gap.
 */
int sp_foothold_confirm(pid_t pid, remote_addr main_stack_pointer, size_t slot_size,
                        struct sp_foothold *foothold, struct sp_error *err);

#endif
