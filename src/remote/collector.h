/*
 * Collects threads that end while their process is being seized.
 *
 * A thread in execve(2) waits, with a lock of its process held, until all other threads are gone. A
 * traced one is gone only when its tracer has collected it; and the tracer may be waiting for that
 * very lock, in PTRACE_SEIZE of the next thread. Only another thread of the tracer can end that:
 * the collector, which works as long as the tracer says that it is in such a call.
 */
#ifndef SEALPOINT_REMOTE_COLLECTOR_H
#define SEALPOINT_REMOTE_COLLECTOR_H

#include "remote/process.h"

struct sp_collector;

/** Starts a collector for `process`. NULL if there cannot be one: then the seizing goes without. */
struct sp_collector *sp_collector_start(const struct sp_process *process);

/** Around a call that may wait for the process; the process's list of threads must not change. */
void sp_collector_begin(struct sp_collector *collector);
void sp_collector_end(struct sp_collector *collector);

/** Tells the collector that its work is done. Costs next to nothing: it may be done in a freeze. */
void sp_collector_dismiss(struct sp_collector *collector);
/** Waits for its end, and frees it. All of these do nothing with NULL. */
void sp_collector_free(struct sp_collector *collector);

#endif
