/*
 * Which timers have expired while the state was read. A process stands still during a dump, its
 * timers do not: one that is read as armed may have signalled when the pending signals are read,
 * after all timers. Its signal is restored with the pending ones, and must not come a second time.
 */
#ifndef SEALPOINT_KINDS_PENDING_SIGNALS_H
#define SEALPOINT_KINDS_PENDING_SIGNALS_H

#include "kinds/kind.h"

/** What was pending for the process and all its threads. */
struct sp_pending {
	struct sp_array infos; /* siginfo_t */
	uint64_t read_ns;      /* sp_now_ns() of the dump, when the last of them had been read */
};

int sp_pending_collect(const struct sp_facet_builder *builder, struct sp_pending *pending,
                       struct sp_error *err);
void sp_pending_release(struct sp_pending *pending);

/**
 * What is left of a timer that had `left_ns` at `read_ns`, the dump's clock, and `interval_ns`: 0
 * if it has signalled once and for all since, more by an interval if it has signalled once. `timer`
 * is the id of a POSIX timer; -1 for setitimer(2).
 */
uint64_t sp_pending_timer_left(const struct sp_pending *pending, int signal, int timer,
                               uint64_t read_ns, uint64_t left_ns, uint64_t interval_ns);

#endif
