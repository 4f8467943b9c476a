/*
 * Ctrl-C, and the other signals that ask a run to end: SIGINT, SIGTERM, SIGHUP, SIGQUIT.
 *
 * A run that has something to clean up watches for them. The first one is noted; the run looks at
 * the note where it can end in an orderly way, fails with EINTR, and when all is cleaned up and said
 * the command ends by that signal, as its caller expects. Another one, over a second later, ends
 * sealpoint at once, for a run that does not come to its next look: the kernel then lets a target go
 * on by itself, as after kill -9. (Over a second, because timeout(1) and others send each signal
 * twice, to the process and to its group.)
 *
 * The note is global because a signal handler reaches nothing else.
 */
#ifndef SEALPOINT_BASE_INTERRUPT_H
#define SEALPOINT_BASE_INTERRUPT_H

struct sp_error;

/** Begins to note the signals; one that the caller has ignored (nohup) stays ignored. */
void sp_interrupt_watch(void);
/** The signals take their usual course again. Returns the one that was noted, or 0. */
int sp_interrupt_unwatch(void);
/** Fails with EINTR ("interrupted by SIGINT") if a signal was noted. Any thread may ask. */
int sp_interrupt_check(struct sp_error *err);
/** Ends the program by the signal that was noted; does nothing if there was none. */
void sp_interrupt_follow(void);

#endif
