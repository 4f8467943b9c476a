/*
 * Pages put aside until somebody asks for them, by number: the first of them in memory, the others
 * in a file without a name. Putting never waits for a disk as long as the kernel has room for what
 * is to be written. Callers take turns.
 */
#ifndef SEALPOINT_TRACK_STASH_H
#define SEALPOINT_TRACK_STASH_H

#include <stdint.h>

#define SP_STASH_NONE ((struct sp_stash){.memory = -1, .file = -1})

struct sp_stash {
	int memory;         /* a memfd, sparse */
	int file;           /* unlinked, sparse */
	uint64_t in_memory; /* pages */
};

enum sp_stash_place { SP_STASH_MEMORY, SP_STASH_FILE };

/** `dirfd`: the directory where the file is made. Returns 0 or a negative errno. */
int sp_stash_open(struct sp_stash *stash, int dirfd);
/** Puts `count` pages aside. Returns where, for sp_stash_get(), or a negative errno (ENOSPC). */
int sp_stash_put(struct sp_stash *stash, uint64_t number, const void *pages, uint64_t count);
/** Gives pages back that are in the same place, once. Returns 0 or a negative errno. */
int sp_stash_get(struct sp_stash *stash, uint64_t number, enum sp_stash_place place, void *pages,
                 uint64_t count);
void sp_stash_close(struct sp_stash *stash);

#endif
