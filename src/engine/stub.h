/*
 * The stub: a process that sealpoint makes so that it can become the restored program. A copy of
 * sealpoint that never runs a line of it, with the process id of the program, traced from its first
 * moment on, and ended by the kernel if sealpoint dies.
 */
#ifndef SEALPOINT_ENGINE_STUB_H
#define SEALPOINT_ENGINE_STUB_H

#include "remote/remote.h"

/**
 * Makes the stub with process id `pid` (clone3(2) with set_tid: CAP_CHECKPOINT_RESTORE, Linux 5.9)
 * and takes control of it, with the temporary mapping at `code`. It is our child, or that of our parent if it is
 * to be a `sibling`. On failure no process is left.
 */
int sp_stub_start_process(struct sp_process *process, struct sp_remote *remote, pid_t pid,
                          remote_addr code, bool sibling, struct sp_error *err);

/**
 * Lets the driver clone a thread with id `tid` into its process; it stands still when this returns.
 */
int sp_stub_add_thread(struct sp_remote *remote, pid_t tid, struct sp_error *err);

/**
 * Lets the driver of a stub clone a child with id `pid`, a stub like itself, with its descriptors;
 * `flags` are more of clone(2), and `exit_signal` is what the parent gets at its end. Takes control of the child. On failure a child
 * that was made may be left in `process`, and ends when it is released or sealpoint ends.
 */
int sp_stub_add_process(struct sp_remote *parent, struct sp_process *process,
                        struct sp_remote *remote, pid_t pid, uint64_t flags, int exit_signal,
                        struct sp_error *err);

/** From now on it does not end with sealpoint, but runs on by itself. */
void sp_stub_outlive(const struct sp_process *process);

/**
 * Lets the stub go, and end in the way that `wait_status` tells (wait(2)); a core file is never
 * left. It may not have ended yet when this returns.
 */
int sp_stub_end(struct sp_process *process, struct sp_remote *remote, uint32_t wait_status,
                struct sp_error *err);

/**
 * Lets a thread that is not the driver end, alone, with that status, and waits for it. It is traced no
 * more, and still listed.
 */
int sp_stub_end_thread(struct sp_remote *remote, struct sp_thread *thread, uint32_t status,
                       struct sp_error *err);

#endif
