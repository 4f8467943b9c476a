/*
 * The watches of this process whose backend acts on the whole process: a signal handler that has to
 * find the watch of an address, a reset that concerns all. One lock guards the list and the accounts
 * of the watches on it. It may be taken by a handler for SIGSEGV: who holds it has all signals blocked
 * and touches no watched memory. After fork(2) it is free in the child.
 */
#ifndef SEALPOINT_TRACK_WATCH_LIST_H
#define SEALPOINT_TRACK_WATCH_LIST_H

#include <signal.h>

struct sp_write_watch;

/** Blocks all signals and takes the lock; returns the first watch. `*mask` is for the unlock. */
struct sp_write_watch *sp_watch_list_lock(sigset_t *mask);
void sp_watch_list_unlock(const sigset_t *mask);
/** For the handler, which runs with all signals blocked. */
struct sp_write_watch *sp_watch_list_lock_in_handler(void);
void sp_watch_list_unlock_in_handler(void);

/** Under the lock. Removing one that is not on the list does nothing. */
void sp_watch_list_add(struct sp_write_watch *watch);
void sp_watch_list_remove(const struct sp_write_watch *watch);

#endif
