/* What process.c, process_check.c and seize.c share. */
#ifndef SEALPOINT_REMOTE_PROCESS_INTERNAL_H
#define SEALPOINT_REMOTE_PROCESS_INTERNAL_H

#include "remote/process.h"

/** True if the thread is about to end, or has: there is nothing to seize any more. */
bool sp_thread_is_ending(pid_t pid, pid_t tid);
/** The signal that a stopped thread is about to take, 0 if it stands for another reason. */
int sp_signal_of_stop(int status);

/**
 * Stops the threads of a watched process, and those that were born meanwhile, which are known when
 * their parents stand. (seize.c)
 */
int sp_process_stop_watched(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err);

/** Says why PTRACE_SEIZE has failed with `code`. (process_check.c) */
int sp_refuse_seize(pid_t pid, pid_t tid, int code, struct sp_error *err);
/** Names a thread that does not stop, and what it waits for. */
int sp_refuse_unstoppable(pid_t pid, pid_t tid, struct sp_error *err);

#endif
