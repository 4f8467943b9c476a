/*
 * The thread that is driven: its registers are changed to ones from which it heals, and put back.
 * remote.c tells the order of steps, foothold.h how a target heals.
 */
#include "base/error.h"
#include "proc/status.h"
#include "remote/remote_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define FRAME_MAX (SP_XSTATE_MAX + 2048)

remote_addr sp_driver_frame(const struct sp_remote *remote)
{
	remote_addr frames = remote->foothold.complete ? remote->foothold.frame
	                                               : sp_remote_own_frames_address(remote);

	return frames + remote->frame_slot * remote->frame_slot_size + SP_FRAME_HEAD;
}

static int set_signal_mask(pid_t tid, uint64_t mask, struct sp_error *err)
{
	if (ptrace(PTRACE_SETSIGMASK, tid, sizeof(mask), &mask) == 0)
		return 0;
	return sp_fail_errno(err, errno, "cannot set the signal mask of thread %d", tid);
}

int sp_remote_block_signals(struct sp_remote *remote, struct sp_error *err)
{
	remote->marker_signal = 0;
	return set_signal_mask(remote->driver->tid, ~0ULL, err);
}

/* Writes the driver's healing stack: the address of munmap(2), and the frame behind it. */
int sp_driver_write_frame(struct sp_remote *remote, struct sp_error *err)
{
	uint8_t buffer[SP_FRAME_HEAD + FRAME_MAX] = {0};
	struct sp_registers healed = remote->driver->raw;
	remote_addr frame = sp_driver_frame(remote);
	size_t size;

	if (!remote->heals)
		return 0;
	if (remote->driver->rseq_abort)
		sp_set_instruction_pointer(&healed.general, remote->driver->rseq_abort);
	sp_rewind_system_call(&healed.general);
	memcpy(buffer, sp_frame_mark, sizeof(sp_frame_mark));
	memcpy(buffer + SP_FRAME_HEAD - sizeof(uint64_t), &remote->foothold.unmap,
	       sizeof(uint64_t));
	size = sp_signal_frame_build(buffer + SP_FRAME_HEAD, FRAME_MAX, frame,
	                             remote->foothold.complete
	                                     ? remote->foothold.sigreturn
	                                     : remote->code + sp_runner_sigreturn_offset(),
	                             &healed, remote->driver->signal_mask);
	if (!size)
		return sp_fail(err, EOVERFLOW, "the extended state of thread %d is too large",
		               remote->driver->tid);
	return sp_process_write_forced(sp_process_living(remote->process), frame - SP_FRAME_HEAD,
	                               buffer, SP_FRAME_HEAD + size, err);
}

static bool is_under_seccomp(const struct sp_remote *remote)
{
	return remote->heals && sp_is_under_seccomp(remote->process->pid, remote->driver->tid);
}

static int set_trace_options(const struct sp_remote *remote, bool under_seccomp,
                             struct sp_error *err)
{
	unsigned long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_SUSPEND_SECCOMP;
	pid_t tid = remote->driver->tid;

	if (!remote->heals)
		options |= PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK;
	if (ptrace(PTRACE_SETOPTIONS, tid, 0, options) == 0)
		return 0;
	if (under_seccomp && errno == EPERM)
		return sp_fail(err, EPERM,
		               "thread %d is under seccomp, which can be suspended with "
		               "CAP_SYS_ADMIN only, and not from inside a seccomp filter: run "
		               "sealpoint as root, outside of it",
		               tid);
	if (ptrace(PTRACE_SETOPTIONS, tid, 0, options & ~(unsigned long)PTRACE_O_SUSPEND_SECCOMP) ==
	    0)
		return 0;
	return sp_fail_errno(err, errno, "cannot set trace options of thread %d", tid);
}

struct sp_call sp_driver_unmap_call(const struct sp_remote *remote)
{
	return (struct sp_call){
	        .number = SYS_munmap,
	        .args = {remote->code, SP_REMOTE_SIZE},
	};
}

static struct user_regs_struct resting_position(const struct sp_remote *remote)
{
	struct user_regs_struct general = remote->driver->raw.general;
	struct sp_call call = sp_driver_unmap_call(remote);
	remote_addr frame = sp_driver_frame(remote);

	if (remote->one_by_one)
		sp_general_run_sigreturn(&general, remote->foothold.sigreturn, frame);
	else
		sp_general_run_call(&general, remote->foothold.instruction, frame, &call);
	return general;
}

int sp_driver_rest(struct sp_remote *remote, struct sp_error *err)
{
	struct user_regs_struct general = resting_position(remote);

	return sp_general_set(remote->driver->tid, &general, err);
}

int sp_driver_disengage(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_thread *driver = remote->driver;
	struct user_regs_struct general = driver->raw.general;
	int rc;

	if (!remote->engaged)
		return 0;
	remote->engaged = false;
	driver->driven = true;
	if (driver->rseq_abort)
		sp_set_instruction_pointer(&general, driver->rseq_abort);
	sp_undo_interruption(&general);
	rc = set_signal_mask(driver->tid, driver->signal_mask, err);
	return rc ? rc : sp_general_set(driver->tid, &general, err);
}

/* Changes the registers, and blocks all signals that do not end a batch. */
static int take(struct sp_remote *remote, const struct user_regs_struct *general,
                struct sp_error *err)
{
	uint64_t mask = ~0ULL;
	int rc;

	if (remote->marker_signal && !remote->one_by_one)
		mask &= ~sp_signal_bit(remote->marker_signal);
	remote->engaged = true;
	rc = sp_general_set(remote->driver->tid, general, err);
	if (!rc)
		rc = set_signal_mask(remote->driver->tid, mask, err);
	if (rc)
		sp_driver_disengage(remote, NULL);
	return rc;
}

int sp_driver_engage_at(struct sp_remote *remote, const struct sp_call *call, remote_addr stack,
                        struct sp_error *err)
{
	struct user_regs_struct general = remote->driver->raw.general;
	int rc = set_trace_options(remote, is_under_seccomp(remote), err);

	sp_general_run_call(&general, remote->foothold.instruction, stack, call);
	return rc ? rc : take(remote, &general, err);
}

int sp_driver_engage(struct sp_remote *remote, struct sp_error *err)
{
	bool under_seccomp = is_under_seccomp(remote);
	struct user_regs_struct general;
	int rc = set_trace_options(remote, under_seccomp, err);

	if (!rc)
		rc = sp_driver_write_frame(remote, err);
	if (rc)
		return rc;
	if (under_seccomp && remote->foothold.complete)
		remote->one_by_one = true;
	general = resting_position(remote);
	return take(remote, &general, err);
}
