/*
 * Memory of a process held as it is, while the process runs: the pages are write-protected, and the
 * first write to each waits until the page has been copied. This is what lets a program go before
 * its memory has been read.
 *
 *	sp_hold_open()    takes over the mappings
 *	sp_hold_protect() the pages; this can be done in advance, while the process runs
 *	sp_hold_begin()   while the process stands still
 *	                  the process is let go
 *	sp_hold_read()    the pages as they were, in ascending order; each is let go when it was read
 *	sp_hold_end()     nothing is protected any more
 *
 * A thread serves the writes meanwhile. It puts the page aside (stash.h) and lets it go, with what is
 * around it where much is written: it never waits for the reader, and the reader never for a disk
 * with a lock held. It also learns of discards
 * (MADV_DONTNEED, MADV_FREE) before they happen, and puts these pages aside too.
 *
 * What the kernel does not announce are munmap(2), mmap(2) over a mapping, mremap(2), execve(2) and
 * the end of the process: it tells of them when the pages are gone, or never. So what was read counts
 * only if the pages turn out to be protected still afterwards, because then nobody has changed them
 * since the hold began. Else they are lost: sp_hold_read() fails, and never gives a page of another
 * moment.
 *
 * With the last descriptor of the userfaultfd, so also if the caller dies, the kernel ends the protection and wakes all
 * who wait; therefore no other process may have one. One wait the kernel does not know: a thread that
 * ends while the word which announces that (set_tid_address(2)), or a robust futex that it holds, is
 * protected. The kernel would leave the word as it is, and whoever joins the
 * thread would wait for ever. So these words are not protected any more when the process is let go
 * (`spared`), and no thread may end while it runs before that; one that is born later writes its own
 * word, and the page is let go by that.
 */
#ifndef SEALPOINT_TRACK_HOLD_H
#define SEALPOINT_TRACK_HOLD_H

#include "base/range_set.h"
#include "track/stash.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sp_error;
struct sp_hold;

struct sp_hold_request {
	pid_t pid;
	int uffd; /* of the process, reports faults of the kernel's, not enabled yet; taken over */
	int asynchronous; /* the userfaultfd that the areas may be registered with, and leave */
	struct sp_stash
	        *stash; /* where pages are put aside, opened before the freeze; taken over */
	const struct sp_array *areas; /* struct sp_range: whole mappings, as they are now */
};

/**
 * Takes the mappings over. Nothing is protected yet. What has left the asynchronous userfaultfd does
 * not come back, which means that it counts as written.
 */
int sp_hold_open(struct sp_hold **hold, const struct sp_hold_request *request,
                 struct sp_error *err);
/**
 * Protects pages of the mappings. `go_on` is NULL while the process stands still: then what lies in
 * small gaps between them is protected, too. While it runs, the first write to a page takes its
 * protection away; no thread may end that nobody has heard of, see above; and `go_on` is asked every
 * millisecond or so: ECANCELED if it says no.
 */
int sp_hold_protect(struct sp_hold *hold, const struct sp_array *pages,
                    bool (*go_on)(void *context), void *context);
/** Adds what is not protected in the mappings. */
int sp_hold_written(struct sp_hold *hold, struct sp_array *written);
/**
 * Begins to hold `pages`, a set of ranges: all populated, and protected. The process stands still.
 * `spared`: remote_addr, see above. After a failure only sp_hold_end() is left.
 */
int sp_hold_begin(struct sp_hold *hold, const struct sp_array *pages, const struct sp_array *spared,
                  struct sp_error *err);
/**
 * Reads held pages as they were when the hold began; the `read` of a page source, `context` is the
 * hold. Each page can be read once. ESTALE: the program has taken a page away before it was read.
 */
int sp_hold_read(void *context, uint64_t address, void *buffer, size_t size, struct sp_error *err);
/** Gives the stash back, before sp_hold_end(), if the hold has not begun. */
struct sp_stash sp_hold_take_stash(struct sp_hold *hold);
/** How many writes had to wait so far. */
uint64_t sp_hold_faults(struct sp_hold *hold);
/** Ends the protection, wakes all who wait, frees the hold. NULL is allowed. */
void sp_hold_end(struct sp_hold *hold);

#endif
