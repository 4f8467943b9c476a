/*
 * Where sealpoint can stand in a process that it did not make: a system call instruction to begin
 * with, and a place for the signal frame that heals the process if sealpoint dies.
 *
 * The frame must lie in the target before its first register is changed, so no remote system call
 * can make room for it. It is written to the lowest pages of the mapping that the kernel made for
 * the main thread's stack ("[stack]"), more than 16 KiB below every stack pointer in it: pages that
 * have never been touched, or hold only zeros. Nothing lives there, and a coroutine's small stack is
 * never it. After use the pages are zeroed again. If there are no such pages, the mapping grows
 * downward, as it does for the program itself when that goes deeper: the kernel sees to it when
 * /proc/PID/mem is written there. It stays that much larger.
 *
 * A main thread that is on another stack may have left an array of zeros there: then only pages that
 * were never touched are free, and those that have our mark, which stays in them after use. A
 * stack pointer in the pages is that of a thread which a killed sealpoint has left, and which is
 * about to heal: its frame must stay, and other pages are used.
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
struct sp_process;

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
	bool main_thread_elsewhere; /* its stack pointer is not in that mapping */
	remote_addr gap;            /* a free range of SP_FOOTHOLD_GAP_SIZE; set when confirmed */
};

/** Where to look first in a child: fork(2) has left the code where it was. */
static inline struct sp_foothold sp_foothold_of_child(const struct sp_foothold *parent)
{
	return (struct sp_foothold){
	        .complete = parent->complete,
	        .instruction = parent->instruction,
	        .sigreturn = parent->sigreturn,
	        .unmap = parent->unmap,
	};
}

/**
 * Looks for a foothold in process `pid`, which may be running: do this before the freeze. Reads the
 * executable mappings but those in `except`, those of files and small ones first. What `foothold` has already, from
 * another process of the same tree, serves if the same code is there, and nothing is searched then; else it is zeros.
 * ENOEXEC if the process has no system call instruction at all.
 */
int sp_foothold_find(pid_t pid, struct sp_range except, struct sp_foothold *foothold,
                     struct sp_error *err);

/**
 * True if process `pid`, which may be running, is safe from the death of its tracer at every moment:
 * it has the code that heals, which is left in `foothold` (see sp_foothold_find()), and no thread of it is under seccomp.
 */
bool sp_foothold_is_safe(pid_t pid, struct sp_foothold *foothold);

/**
 * Checks, now that the process is stopped, that what was found is still there, and looks again if
 * not. Finds the place for the two slots of signal frames, and the gap.
 */
int sp_foothold_confirm(const struct sp_process *process, size_t slot_size,
                        struct sp_foothold *foothold, struct sp_error *err);

#endif
