/*
 * The account of held memory (hold.h): which pages are held, which of them have been put aside, and which
 * have been read. All pages have a number, counted through the held ranges; by it they have a state, and
 * a place in the stash.
 *
 * A page is copied while it is protected, and let go after that. Callers take turns: to copy pages, and to
 * note that they are copied and let them go, is one step.
 */
#ifndef SEALPOINT_TRACK_HELD_PAGES_H
#define SEALPOINT_TRACK_HELD_PAGES_H

#include "base/array.h"
#include "base/error.h"
#include "base/range.h"
#include "track/stash.h"

#include <stdint.h>
#include <sys/types.h>

/* How much is copied in one turn at most, so that a write never waits for long. */
#define SP_HELD_PART (64ULL << 10)

struct sp_held_pages {
	pid_t pid;
	int uffd, memory, pagemap;
	struct sp_stash stash;
	struct sp_error failure; /* the first; code 0: none */

	struct sp_array ranges; /* struct sp_range: a set */
	uint64_t *numbers;      /* of the first page of each range */
	uint8_t *states;        /* by number */
	uint8_t copy[SP_HELD_PART];
};

/** Holds all pages of a set of ranges, which are protected. */
void sp_held_begin(struct sp_held_pages *held, const struct sp_array *ranges);
/** Puts aside the pages of these words (remote_addr), and lets them go, before anybody runs. */
int sp_held_spare(struct sp_held_pages *held, const struct sp_array *words);
/** A thread waits to write to this page: puts it aside if it is held, with what is around it, and lets it go. */
void sp_held_write(struct sp_held_pages *held, uint64_t address);
/** Puts aside the first held pages of a range, and takes them off its front. */
int sp_held_put_aside(struct sp_held_pages *held, struct sp_range *range);
/** The pages of this range are gone: fails with ESTALE if one of them was not copied yet. */
void sp_held_gone(struct sp_held_pages *held, struct sp_range range);
/** Reads the first pages of a range, takes them off its front, and lets them go. Each can be read once. */
int sp_held_read(struct sp_held_pages *held, struct sp_range *range, uint8_t *buffer);
void sp_held_init(struct sp_held_pages *held, pid_t pid, int uffd);
/**
 * Closes and frees all that is in it. With the userfaultfd all protection ends, whatever has become of the
 * mappings, and all who wait go on. None is cut in two, as it would be by unregistering a range that
 * it has outgrown.
 */
void sp_held_release(struct sp_held_pages *held);

#endif
