/*
 * Taking precedence, in the moments in which a program stands still for us: each step there ends with
 * the waking of one thread by another, and on a busy machine each would wait for its turn.
 */
#ifndef SEALPOINT_BASE_URGENT_H
#define SEALPOINT_BASE_URGENT_H

#include <stdbool.h>

/** How a thread was scheduled before; {0} or what sp_urgent_end() leaves: nothing to go back to. */
struct sp_usual_turn {
	int policy;
	bool raised;
};

/**
 * From now on the calling thread runs before all that are scheduled as usual; threads and processes
 * that it starts do not. Without the privilege for that (CAP_SYS_NICE) nothing changes, nor for a
 * thread that was given another class than the usual ones.
 */
struct sp_usual_turn sp_urgent_begin(void);
/** The calling thread takes its turn again. May be called twice. */
void sp_urgent_end(struct sp_usual_turn *usual);

#endif
