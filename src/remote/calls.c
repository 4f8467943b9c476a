/*
 * Making the driver execute system calls, and waiting until it has: all of a batch with one stop,
 * by the runner; or one alone, with a stop at its entry and one at its exit.
 */
#include "base/error.h"
#include "remote/remote_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A driver that does not stop for this many rounds may be frozen; if so each time, it is given up. */
#define FROZEN_ROUNDS 1000
#define FROZEN_LOOKS 8

static int refuse_dead(const struct sp_remote *remote, struct sp_error *err)
{
	return sp_fail(err, ESRCH, "process %d ended while it was being worked on",
	               remote->process->pid);
}

/*
 * Not a waitpid(2) that blocks: it would wait for ever for a leader whose process is killed, because
 * the other threads have to be collected first, and for one whose control group is frozen. That may
 * be for a moment only; a driver that is given up heals when its group is thawed.
 */
static int next_stop(const struct sp_remote *remote, int *status, struct sp_error *err)
{
	unsigned round = 0, frozen = 0;
	struct sp_error reason;
	pid_t got;

	while ((got = waitpid(remote->driver->tid, status, __WALL | WNOHANG)) == 0) {
		sp_process_wait_a_little(remote->process, &round);
		if (round % FROZEN_ROUNDS)
			continue;
		frozen = sp_process_check_frozen(remote->process->pid, &reason) ? frozen + 1 : 0;
		if (frozen == FROZEN_LOOKS)
			return sp_fail(err, reason.code, "%s", reason.message);
	}
	if (got < 0 || !WIFSTOPPED(*status))
		return refuse_dead(remote, err);
	return 0;
}

static bool is_event(int status)
{
	return status >> 16 != 0;
}

/*
 * Where a user's queue of signals is full, the kernel does not note who has sent one: it looks like kill(2) by nobody. The
 * driver has sent such a one itself if it is where it sends one.
 */
static bool is_own(const struct sp_remote *remote, const siginfo_t *info)
{
	struct user_regs_struct general;

	if (info->si_code == SI_TKILL)
		return info->si_pid == remote->process->pid;
	return info->si_code == SI_USER && !info->si_pid &&
	       !sp_general_get(remote->driver->tid, &general, NULL) &&
	       sp_instruction_pointer(&general) == remote->code + sp_runner_stop_offset();
}

/*
 * The signal that ends batches, but sent by somebody else: the program which the stub is to become
 * must get it. In a dump there is no need: the program ignores the signal that was chosen.
 */
static int keep_foreign(struct sp_remote *remote, int status, struct sp_error *err)
{
	siginfo_t info;

	if (remote->heals || is_event(status) || WSTOPSIG(status) != remote->marker_signal)
		return 0;
	if (ptrace(PTRACE_GETSIGINFO, remote->driver->tid, 0, &info) < 0)
		return refuse_dead(remote, err);
	if (!is_own(remote, &info) && !remote->foreign.si_signo)
		remote->foreign = info;
	return 0;
}

/*
 * Lets the driver go on to its next stop, with the signal that it was about to take at the last one,
 * if it is to have that; there is none any more afterwards.
 */
static int resume(struct sp_remote *remote, enum __ptrace_request how, int *signal, int *status,
                  struct sp_error *err)
{
	int rc;

	if (ptrace(how, remote->driver->tid, 0, *signal) < 0)
		return refuse_dead(remote, err);
	*signal = 0;
	rc = next_stop(remote, status, err);
	return rc ? rc : keep_foreign(remote, *status, err);
}

static bool is_syscall_stop(int status)
{
	return !is_event(status) && WSTOPSIG(status) == (SIGTRAP | 0x80);
}

/*
 * A stop that is not the one we wait for. All signals but the marker are blocked, so it can only be
 * a stop signal, a trace event (a thread was cloned), or a fault in what we had the target do.
 *
 * The driver takes the stop signal: then the kernel knows that the process is to be stopped, until
 * SIGCONT comes, and sees to it as soon as we let go. A tracer can go on with a stopped thread.
 */
static int pass_over(const struct sp_remote *remote, int status, int *signal, struct sp_error *err)
{
	if (is_event(status) || is_syscall_stop(status) ||
	    WSTOPSIG(status) == remote->marker_signal)
		return 0;
	switch (WSTOPSIG(status)) {
	case SIGSTOP:
		*signal = SIGSTOP;
		return 0;
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGSYS:
		return sp_fail(err, EFAULT, "remote code in process %d failed with signal %d (%s)",
		               remote->process->pid, WSTOPSIG(status), strsignal(WSTOPSIG(status)));
	default:
		return 0;
	}
}

/* Lets the runner run to the end of its batch: one stop with a marker signal, else one per call. */
static int run_to_marker(struct sp_remote *remote, struct sp_error *err)
{
	enum __ptrace_request how = remote->marker_signal ? PTRACE_CONT : PTRACE_SYSCALL;
	remote_addr stop = remote->code + sp_runner_stop_offset();
	struct user_regs_struct general;
	int status, rc, signal = 0;

	for (;;) {
		rc = resume(remote, how, &signal, &status, err);
		if (rc)
			return rc;
		if (remote->marker_signal
		            ? !is_event(status) && WSTOPSIG(status) == remote->marker_signal
		            : is_syscall_stop(status)) {
			rc = sp_general_get(remote->driver->tid, &general, err);
			if (rc)
				return rc;
			/* At the entry of a call the result register holds -ENOSYS. */
			if (sp_instruction_pointer(&general) == stop &&
			    sp_general_result(&general) != -ENOSYS)
				return 0;
		}
		rc = pass_over(remote, status, &signal, err);
		if (rc)
			return rc;
	}
}

/* Lets the driver run to the entry, or the exit, of its next system call. */
static int run_to_syscall_stop(struct sp_remote *remote, struct user_regs_struct *general,
                               struct sp_error *err)
{
	int status, rc, signal = 0;

	do {
		rc = resume(remote, PTRACE_SYSCALL, &signal, &status, err);
		if (!rc)
			rc = pass_over(remote, status, &signal, err);
		if (rc)
			return rc;
	} while (!is_syscall_stop(status));
	return sp_general_get(remote->driver->tid, general, err);
}

/* Runs the one system call that the registers are set for, to the stop behind it. */
int sp_remote_run_aimed(struct sp_remote *remote, int64_t *result, struct sp_error *err)
{
	struct user_regs_struct general;
	int rc = run_to_syscall_stop(remote, &general, err);

	if (!rc)
		rc = run_to_syscall_stop(remote, &general, err);
	if (!rc)
		*result = sp_general_result(&general);
	return rc;
}

int sp_remote_stop(struct sp_remote *remote, struct sp_error *err)
{
	int status, rc, signal = 0;

	if (ptrace(PTRACE_INTERRUPT, remote->driver->tid, 0, 0) < 0)
		return refuse_dead(remote, err);
	do {
		rc = resume(remote, PTRACE_CONT, &signal, &status, err);
		if (rc)
			return rc;
		if (WSTOPSIG(status) == SIGSTOP && !is_event(status))
			signal = SIGSTOP;
	} while (status >> 16 != PTRACE_EVENT_STOP);
	return 0;
}

/* Tells the runner what to run, where to stop, and how to heal. */
static int write_block(const struct sp_remote *remote, size_t calls, struct sp_error *err)
{
	struct sp_call unmap = sp_driver_unmap_call(remote);
	remote_addr first = sp_remote_calls_address(remote);
	struct sp_runner_block block = {
	        .next = first,
	        .end = first + calls * sizeof(struct sp_call),
	        .heal_stack = sp_driver_frame(remote),
	        .heal_entry = remote->foothold.instruction,
	        .heal = {unmap.number, unmap.args[0], unmap.args[1]},
	        .marker = {SYS_tgkill, (uint64_t)remote->process->pid,
	                   (uint64_t)remote->driver->tid, (uint64_t)remote->marker_signal},
	};

	if (!remote->foothold
	             .complete) { /* straight to the runner's own sigreturn; the pages stay */
		block.heal_stack += sizeof(uint64_t);
		block.heal_entry = remote->code + sp_runner_sigreturn_offset();
	}
	if (!remote->marker_signal)
		block.marker[0] = SYS_getpid;
	return sp_remote_write(remote, sp_remote_block_address(remote), &block, sizeof(block), err);
}

int sp_remote_run_batch(struct sp_remote *remote, size_t calls, struct sp_error *err)
{
	struct user_regs_struct general = remote->driver->raw.general;
	int rc = write_block(remote, calls, err);

	if (!rc && !remote->engaged)
		rc = sp_driver_engage(remote, err);
	if (rc)
		return rc;
	sp_general_start_runner(&general, remote->code, sp_driver_frame(remote));
	rc = sp_general_set(remote->driver->tid, &general, err);
	return rc ? rc : run_to_marker(remote, err);
}

/*
 * At the entry of rt_sigreturn(2), with the healing frame, another call takes its place. Behind it
 * the thread is where it was before: about to call rt_sigreturn(2).
 */
int sp_remote_run_alone(struct sp_remote *remote, struct sp_call *call, struct sp_error *err)
{
	struct user_regs_struct general;
	int rc = remote->engaged ? 0 : sp_driver_engage(remote, err);

	if (!rc)
		rc = run_to_syscall_stop(remote, &general, err);
	if (rc)
		return rc;
	sp_general_swap_call(&general, remote->foothold.sigreturn, call);
	rc = sp_general_set(remote->driver->tid, &general, err);
	if (!rc)
		rc = run_to_syscall_stop(remote, &general, err);
	if (!rc)
		call->result = sp_general_result(&general);
	return rc;
}
