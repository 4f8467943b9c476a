/*
 * A process that sealpoint has stopped: its threads, seized with ptrace and standing still.
 *
 * Seizing sets no option that could harm the target (never PTRACE_O_EXITKILL here): if sealpoint
 * dies, the kernel lets all threads go on. Threads that appear while the others are being stopped
 * are found by reading the task list again until it stands still.
 */
#ifndef SEALPOINT_REMOTE_PROCESS_H
#define SEALPOINT_REMOTE_PROCESS_H

#include "arch/arch.h"
#include "base/array.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_collector;
struct sp_error;

struct sp_thread {
	pid_t tid;
	bool stopped;
	bool driven;             /* its registers were changed and put back */
	remote_addr rseq_abort;  /* of the rseq critical section that it stood in; 0: in none */
	uint64_t signal_mask;    /* blocked signals, bit (signal - 1) */
	struct sp_registers raw; /* exactly as the stop left them */
	struct user_regs_struct saved; /* the general ones for a new task: what an image stores */
};

struct sp_process {
	pid_t pid;
	pid_t living; /* see sp_process_living(); 0: the leader */
	int pidfd;
	struct sp_array
	        threads; /* struct sp_thread *; [0] is the leader, or if that has ended another */
	bool group_stopped;  /* it was stopped by a signal (SIGSTOP, ...) when we came */
	uint64_t stopped_ns; /* sp_now_ns() when the first thread was interrupted; 0 when none is */
	struct sp_collector *collector; /* NULL: none was needed */
	bool watched;                   /* seized, and running: see sp_process_watch() */
	/* Told of each thread of a watched process that is about to end; may be NULL. */
	void (*ending)(void *context);
	void *ending_context;
};

enum sp_release {
	SP_RELEASE_RUN,  /* goes on as it was (a stopped process stays stopped) */
	SP_RELEASE_STOP, /* left stopped with SIGSTOP */
	SP_RELEASE_KILL, /* SIGKILL, and reaped if it is our child */
};

/**
 * Says whether `pid` is a process that can be seized, without touching it. Errors as for seizing,
 * but for what only the attempt can tell.
 */
int sp_process_check(pid_t pid, struct sp_error *err);
/** Says whether its control group is not frozen: if it is, nothing runs in the process, for us either. */
int sp_process_check_frozen(pid_t pid, struct sp_error *err);
/** Says whether neither it nor a descendant traces another process. Looks at all processes there are. */
int sp_process_check_tracees(pid_t pid, struct sp_error *err);

/**
 * Stops every thread of process `pid` and reads all registers and signal masks. Until `deadline_ns`
 * (sp_now_ns()); a thread that cannot be stopped by then (uninterruptible sleep, a parent in vfork)
 * is named in the error with what it waits for. On failure everything is released again.
 *
 * A thread that stands in the vDSO, where only this very kernel's programs can go on, runs on until
 * it has left it, for up to 200 ms in all; then it is left there.
 *
 * Needs PTRACE_MODE_ATTACH_REALCREDS on the target (ptrace(2)). Errors: ESRCH, EPERM, EBUSY
 * (already traced; the tracer is named), EINVAL (a kernel thread, oneself), ETIMEDOUT.
 */
int sp_process_seize(struct sp_process *process, pid_t pid, uint64_t deadline_ns,
                     struct sp_error *err);

/**
 * Seizes every thread, and lets it run: from now on no thread ends before sp_process_attend(), or
 * sp_process_stop(), has told process->ending of it. Until then the caller has to attend every now and
 * then, because the threads wait with each signal for it.
 */
int sp_process_watch(struct sp_process *process, pid_t pid, struct sp_error *err);
/** As sp_process_seize(), of a process that is watched; it is not any more, on failure neither. */
int sp_process_stop(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err);
/** False if the process should not be watched any longer: it is being stopped, or has ended. */
bool sp_process_attend(struct sp_process *process);

/** Ends the control over all threads. Safe to call twice, and on a process that has died. */
void sp_process_release(struct sp_process *process, enum sp_release how);
void sp_process_forget(struct sp_process *process); /* frees; releases to run if still held */

struct sp_thread *sp_process_thread(const struct sp_process *process, size_t index);
static inline struct sp_thread *sp_process_leader(const struct sp_process *process)
{
	return sp_process_thread(process, 0);
}

/**
 * By this id /proc and system calls show what its threads have in common: its own, or that of a thread
 * that lives when the main thread has ended before the others.
 */
static inline pid_t sp_process_living(const struct sp_process *process)
{
	return process->living ? process->living : process->pid;
}
static inline bool sp_process_leader_has_ended(const struct sp_process *process)
{
	return sp_process_living(process) != process->pid;
}

/** The same open file as its descriptor `number`, as pidfd_getfd(2) gives it; -1 with errno. */
int sp_process_duplicate(const struct sp_process *process, int number);

/** True if the process has ended, with all its threads. */
bool sp_process_is_gone(int pidfd);
/** True if the process has ended, or is about to because somebody has killed it. */
bool sp_process_is_ending(const struct sp_process *process);

/**
 * Collects those threads but the leader that have ended. As long as one of them is a zombie, the
 * kernel neither reports the end of the leader nor lets another thread finish its execve(2).
 */
void sp_process_collect_dead(const struct sp_process *process);
/**
 * For those who wait for a thread with WNOHANG, so that they notice the end of the whole process:
 * hardly waits in the first rounds, later 50 us, and collects the dead. `*round` begins with 0.
 */
void sp_process_wait_a_little(const struct sp_process *process, unsigned *round);

/** Adds a thread that is already seized and stopped (restore: a clone of ours). */
struct sp_thread *sp_process_add_thread(struct sp_process *process, pid_t tid);

/**
 * Memory of the target, by process_vm_readv(2) and process_vm_writev(2): all of it or an error.
 * sp_process_write_forced() goes through /proc/PID/mem, and writes what the program itself may not.
 */
int sp_process_read(pid_t pid, remote_addr from, void *buffer, size_t size, struct sp_error *err);
int sp_process_write(pid_t pid, remote_addr to, const void *buffer, size_t size,
                     struct sp_error *err);
int sp_process_write_forced(pid_t pid, remote_addr to, const void *buffer, size_t size,
                            struct sp_error *err);

#endif
