/*
 * Driving a stopped process: see remote.h for the idea, foothold.h for how a target heals.
 *
 * The temporary mapping, from `code` upward:
 *
 *	code page	the stub
 *	data		struct sp_stub_block
 *			the calls of a batch
 *			strings and structures (sp_batch_put)
 *			two signal frames, if the target's own stack cannot hold them
 *
 * The order of steps is what makes the target survive us at every instant:
 *
 *   engage     the frame is written; then the registers change, to ones from which the target
 *              heals; then the signal mask.
 *   disengage  the mask is put back while the registers still heal; then the registers.
 *   hand over  to another thread: the new driver is engaged before the old one is let go. Both rest
 *              on the target's own instruction, not on the stub, so that if we die now either may
 *              unmap the pages first. They have a frame each.
 */
#include "remote/remote.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "proc/status.h"
#include "remote/remote_internal.h"
#include "remote/room.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define FRAME_HEAD 512 /* of a slot: the mark, then room for what the healing code pushes */
#define FRAME_MAX (SP_XSTATE_MAX + 2048)

static remote_addr block_address(const struct sp_remote *remote)
{
	return remote->code + SP_PAGE_SIZE;
}

remote_addr sp_remote_calls_address(const struct sp_remote *remote)
{
	return block_address(remote) + sizeof(struct sp_stub_block);
}

remote_addr sp_remote_data_address(const struct sp_remote *remote)
{
	remote_addr behind_calls =
	        sp_remote_calls_address(remote) + SP_REMOTE_CALLS_MAX * sizeof(struct sp_call);

	return (behind_calls + 63) & ~63ULL;
}

/* Frames that do not fit into the target's own stack lie at the end of the data area. */
static remote_addr own_frames_address(const struct sp_remote *remote)
{
	return remote->code + SP_REMOTE_SIZE - 2 * remote->frame_slot_size;
}

size_t sp_remote_data_capacity(const struct sp_remote *remote)
{
	return own_frames_address(remote) - sp_remote_data_address(remote);
}

/*
 * The driver's signal frame; the word below it is the address of munmap(2), if the target has one.
 */
static remote_addr frame_address(const struct sp_remote *remote)
{
	remote_addr frames =
	        remote->foothold.complete ? remote->foothold.frame : own_frames_address(remote);

	return frames + remote->frame_slot * remote->frame_slot_size + FRAME_HEAD;
}

int sp_remote_write(const struct sp_remote *remote, remote_addr to, const void *bytes, size_t size,
                    struct sp_error *err)
{
	if (remote->data_writable)
		return sp_process_write(remote->process->pid, to, bytes, size, err);
	return sp_process_write_forced(remote->process->pid, to, bytes, size, err);
}

/* --- waiting --- */

static int refuse_dead(const struct sp_remote *remote, struct sp_error *err)
{
	return sp_fail(err, ESRCH, "process %d ended while it was being worked on",
	               remote->process->pid);
}

/*
 * Not a waitpid(2) that blocks: it would wait for ever for a leader whose process is killed, because
 * the other threads have to be collected first.
 */
static int next_stop(const struct sp_remote *remote, int *status, struct sp_error *err)
{
	unsigned round = 0;
	pid_t got;

	while ((got = waitpid(remote->driver->tid, status, __WALL | WNOHANG)) == 0)
		sp_process_wait_a_little(remote->process, &round);
	if (got < 0 || !WIFSTOPPED(*status))
		return refuse_dead(remote, err);
	return 0;
}

/*
 * Lets the driver go on to its next stop, with the signal that it was about to take at the last one,
 * if it is to have that; there is none any more afterwards.
 */
static int resume(const struct sp_remote *remote, enum __ptrace_request how, int *signal,
                  int *status, struct sp_error *err)
{
	if (ptrace(how, remote->driver->tid, 0, *signal) < 0)
		return refuse_dead(remote, err);
	*signal = 0;
	return next_stop(remote, status, err);
}

static bool is_event(int status)
{
	return status >> 16 != 0;
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

/* Lets the stub run to the end of its batch: one stop with a marker signal, else one per call. */
static int run_to_marker(struct sp_remote *remote, struct sp_error *err)
{
	enum __ptrace_request how = remote->marker_signal ? PTRACE_CONT : PTRACE_SYSCALL;
	remote_addr stop = remote->code + sp_stub_stop_offset();
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
static int run_to_syscall_stop(const struct sp_remote *remote, struct user_regs_struct *general,
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
static int run_one_call(const struct sp_remote *remote, int64_t *result, struct sp_error *err)
{
	struct user_regs_struct general;
	int rc = run_to_syscall_stop(remote, &general, err);

	if (!rc)
		rc = run_to_syscall_stop(remote, &general, err);
	if (!rc)
		*result = sp_general_result(&general);
	return rc;
}

/*
 * Brings the driver to a stop inside the kernel's signal handling, without executing anything more.
 * Only there does the kernel finish an interrupted system call when the registers are put back
 * (restart.c).
 */
static int stop_in_signal_handling(const struct sp_remote *remote, struct sp_error *err)
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

/* --- engaging and disengaging a thread --- */

static uint64_t bit(int signal)
{
	return 1ULL << (signal - 1);
}

static int set_signal_mask(pid_t tid, uint64_t mask, struct sp_error *err)
{
	if (ptrace(PTRACE_SETSIGMASK, tid, sizeof(mask), &mask) == 0)
		return 0;
	return sp_fail_errno(err, errno, "cannot set the signal mask of thread %d", tid);
}

/* Writes the driver's healing stack: the address of munmap(2), and the frame behind it. */
static int write_frame(struct sp_remote *remote, struct sp_error *err)
{
	uint8_t buffer[FRAME_HEAD + FRAME_MAX] = {0};
	struct sp_registers healed = remote->driver->raw;
	remote_addr frame = frame_address(remote);
	size_t size;

	if (!remote->heals)
		return 0;
	if (remote->driver->rseq_abort)
		sp_set_instruction_pointer(&healed.general, remote->driver->rseq_abort);
	sp_rewind_system_call(&healed.general);
	memcpy(buffer, sp_frame_mark, sizeof(sp_frame_mark));
	memcpy(buffer + FRAME_HEAD - sizeof(uint64_t), &remote->foothold.unmap, sizeof(uint64_t));
	size = sp_signal_frame_build(buffer + FRAME_HEAD, FRAME_MAX, frame,
	                             remote->foothold.complete
	                                     ? remote->foothold.sigreturn
	                                     : remote->code + sp_stub_sigreturn_offset(),
	                             &healed, remote->driver->signal_mask);
	if (!size)
		return sp_fail(err, EOVERFLOW, "the extended state of thread %d is too large",
		               remote->driver->tid);
	return sp_process_write_forced(remote->process->pid, frame - FRAME_HEAD, buffer,
	                               FRAME_HEAD + size, err);
}

static bool is_under_seccomp(const struct sp_remote *remote)
{
	return sp_is_under_seccomp(remote->process->pid, remote->driver->tid);
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

/*
 * Points the driver at one system call of the target's own code, with the healing stack below it.
 */
static int aim_at_call(struct sp_remote *remote, const struct sp_call *call, remote_addr stack,
                       struct sp_error *err)
{
	struct user_regs_struct general = remote->driver->raw.general;

	sp_general_run_call(&general, remote->foothold.instruction, stack, call);
	return sp_general_set(remote->driver->tid, &general, err);
}

static struct sp_call unmap_call(const struct sp_remote *remote)
{
	return (struct sp_call){
	        .number = SYS_munmap,
	        .args = {remote->code, SP_REMOTE_SIZE},
	};
}

/*
 * The position from which an untraced driver unmaps the pages and heals, without touching the stub;
 * under seccomp it only heals.
 */
static int rest(struct sp_remote *remote, struct sp_error *err)
{
	struct user_regs_struct general = remote->driver->raw.general;
	struct sp_call call = unmap_call(remote);

	if (!remote->one_by_one)
		return aim_at_call(remote, &call, frame_address(remote), err);
	sp_general_run_sigreturn(&general, remote->foothold.sigreturn, frame_address(remote));
	return sp_general_set(remote->driver->tid, &general, err);
}

static int block_signals(struct sp_remote *remote, struct sp_error *err)
{
	uint64_t mask = ~0ULL;

	if (remote->marker_signal && !remote->one_by_one)
		mask &= ~bit(remote->marker_signal);
	return set_signal_mask(remote->driver->tid, mask, err);
}

/* Gives the driver its own registers and mask again. It stands in a signal or event stop. */
static int disengage(struct sp_remote *remote, struct sp_error *err)
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

/*
 * Changes the driver's registers to ones from which it heals. Under seccomp there are no batches
 * from here on: the only call that may run when nothing suspends the filters any more is
 * rt_sigreturn(2).
 */
static int engage(struct sp_remote *remote, struct sp_error *err)
{
	bool under_seccomp = remote->heals && is_under_seccomp(remote);
	int rc = set_trace_options(remote, under_seccomp, err);

	if (!rc)
		rc = write_frame(remote, err);
	if (rc)
		return rc;
	if (under_seccomp && remote->foothold.complete)
		remote->one_by_one = true;
	remote->engaged = true;
	rc = rest(remote, err);
	return rc ? rc : block_signals(remote, err);
}

/* --- opening --- */

/*
 * The signal that ends a batch: one that nobody would see if it were delivered for want of a
 * tracer. That is one whose default is to be ignored, without a handler, not blocked by any thread,
 * and not pending.
 */
static int choose_marker(const struct sp_process *process)
{
	static const int candidates[] = {SIGURG, SIGWINCH, SIGCHLD};
	sp_cleanup_free char *status = NULL;
	uint64_t caught, pending, unfit;

	if (sp_status_read(process->pid, process->pid, &status, NULL) ||
	    sp_status_number(status, "SigCgt", 16, &caught, NULL) ||
	    sp_status_number(status, "ShdPnd", 16, &pending, NULL))
		return 0;
	unfit = caught | pending;
	for (size_t i = 0; i < process->threads.count; i++)
		unfit |= sp_process_thread(process, i)->signal_mask;
	for (size_t i = 0; i < SP_COUNT_OF(candidates); i++)
		if (!(unfit & bit(candidates[i])))
			return candidates[i];
	return 0;
}

static int write_stub(const struct sp_remote *remote, struct sp_error *err)
{
	size_t size;
	const void *code = sp_stub_code(&size);

	return sp_process_write_forced(remote->process->pid, remote->code, code, size, err);
}

/*
 * The call that maps the temporary pages; in a target that forbids writable code, it makes none.
 */
static struct sp_call map_call(remote_addr at, uint64_t protection)
{
	return (struct sp_call){
	        .number = SYS_mmap,
	        .args = {at, SP_REMOTE_SIZE, protection,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
	                 (uint64_t)-1, 0},
	};
}

static int check_mapped(const struct sp_remote *remote, int64_t result, struct sp_error *err)
{
	if (result >= 0)
		return 0;
	return sp_fail_errno(err, (int)-result,
	                     "cannot map %llu KiB of temporary memory in process %d",
	                     SP_REMOTE_SIZE >> 10, remote->process->pid);
}

static int map_pages(struct sp_remote *remote, struct sp_error *err)
{
	int64_t result;
	int rc = run_one_call(remote, &result, err);

	return rc ? rc : check_mapped(remote, result, err);
}

/*
 * The first batch: its only call makes the data pages writable for the results of all that follow.
 */
static int make_data_writable(struct sp_remote *remote, struct sp_error *err)
{
	int rc = sp_remote_call(remote, NULL, err, "make the temporary pages writable",
	                        SYS_mprotect, block_address(remote), SP_REMOTE_DATA_SIZE,
	                        PROT_READ | PROT_WRITE, 0, 0, 0);

	remote->data_writable = !rc;
	return rc;
}

static void init(struct sp_remote *remote, struct sp_process *process, struct sp_thread *driver,
                 bool heals)
{
	*remote = (struct sp_remote){
	        .process = process,
	        .driver = driver,
	        .heals = heals,
	        .calls = SP_ARRAY_OF(struct sp_call),
	        .labels = SP_ARRAY_OF(const char *),
	        .data = SP_ARRAY_OF(char),
	};
	remote->frame_slot_size = sp_page_up(FRAME_HEAD + sp_signal_frame_size(&driver->raw));
}

static void release_batch(struct sp_remote *remote)
{
	sp_array_release(&remote->calls);
	sp_array_release(&remote->labels);
	sp_array_release(&remote->data);
}

/* Under seccomp: no code of ours, just room for data. */
static int take_hold_one_by_one(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_call call = map_call(remote->code, PROT_READ | PROT_WRITE);
	int rc = engage(remote, err);

	if (!rc)
		rc = sp_remote_run_alone(remote, &call, err);
	if (!rc)
		rc = check_mapped(remote, call.result, err);
	remote->data_writable = !rc;
	return rc;
}

/* Maps the temporary pages by the target's own instruction, then installs the stub. */
static int take_hold(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_call call = map_call(remote->code, PROT_READ | PROT_EXEC);
	remote_addr stack = frame_address(remote);
	int rc;

	/*
	 * Whoever returns from this call without us goes through munmap(2), whose arguments are the
	 * same.
	 */
	if (remote->foothold.unmap)
		stack -= sizeof(uint64_t);
	if (remote->foothold.complete && (rc = write_frame(remote, err)))
		return rc;
	rc = set_trace_options(remote, remote->heals && is_under_seccomp(remote), err);
	if (rc)
		return rc;
	remote->engaged = true;
	rc = aim_at_call(remote, &call, stack, err);
	if (!rc)
		rc = block_signals(remote, err);
	if (!rc)
		rc = map_pages(remote, err);
	if (!rc)
		rc = write_stub(remote, err);
	if (!rc && !remote->foothold.complete)
		rc = write_frame(remote, err);
	return rc ? rc : make_data_writable(remote, err);
}

int sp_remote_open(struct sp_remote *remote, struct sp_process *process, struct sp_thread *driver,
                   const struct sp_foothold *foothold, struct sp_error *err)
{
	int rc;

	init(remote, process, driver, true);
	remote->foothold = *foothold;
	rc = sp_foothold_confirm(process, remote->frame_slot_size, &remote->foothold, err);
	if (rc)
		return sp_error_context(err, "cannot take control of process %d", process->pid);
	remote->code = remote->foothold.gap;
	remote->marker_signal = choose_marker(process);
	remote->one_by_one = remote->foothold.complete && is_under_seccomp(remote);
	rc = remote->one_by_one ? take_hold_one_by_one(remote, err) : take_hold(remote, err);
	if (rc) {
		sp_remote_close(remote, NULL);
		sp_room_explain(process->pid, err);
		return sp_error_context(err, "cannot take control of process %d", process->pid);
	}
	return 0;
}

int sp_remote_open_stub(struct sp_remote *remote, struct sp_process *process,
                        remote_addr instruction, remote_addr code, struct sp_error *err)
{
	int rc;

	init(remote, process, sp_process_leader(process), false);
	remote->foothold.instruction = instruction;
	remote->code = code;
	remote->marker_signal = SIGURG;
	rc = take_hold(remote, err);
	return rc ? sp_error_context(err, "cannot take control of the stub process %d",
	                             process->pid)
	          : 0;
}

/* Tells the stub what to run, where to stop, and how to heal. */
static int write_block(const struct sp_remote *remote, size_t calls, struct sp_error *err)
{
	struct sp_call unmap = unmap_call(remote);
	remote_addr first = sp_remote_calls_address(remote);
	struct sp_stub_block block = {
	        .next = first,
	        .end = first + calls * sizeof(struct sp_call),
	        .heal_stack = frame_address(remote),
	        .heal_entry = remote->foothold.instruction,
	        .heal = {unmap.number, unmap.args[0], unmap.args[1]},
	        .marker = {SYS_tgkill, (uint64_t)remote->process->pid,
	                   (uint64_t)remote->driver->tid, (uint64_t)remote->marker_signal},
	};

	if (!remote->foothold.complete) { /* straight to the stub's own sigreturn; the pages stay */
		block.heal_stack += sizeof(uint64_t);
		block.heal_entry = remote->code + sp_stub_sigreturn_offset();
	}
	if (!remote->marker_signal)
		block.marker[0] = SYS_getpid;
	return sp_remote_write(remote, block_address(remote), &block, sizeof(block), err);
}

int sp_remote_run_stub(struct sp_remote *remote, size_t calls, struct sp_error *err)
{
	struct user_regs_struct general = remote->driver->raw.general;
	int rc = write_block(remote, calls, err);

	if (!rc && !remote->engaged)
		rc = engage(remote, err);
	if (rc)
		return rc;
	sp_general_run_stub(&general, remote->code, frame_address(remote));
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
	int rc = remote->engaged ? 0 : engage(remote, err);

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

/* --- changing the driver, closing --- */

int sp_remote_drive(struct sp_remote *remote, struct sp_thread *driver, struct sp_error *err)
{
	struct sp_thread *old = remote->driver;
	bool old_engaged = remote->engaged;
	int rc;

	if (driver == old)
		return 0;
	if (old_engaged) {
		if ((!remote->marker_signal || remote->one_by_one) &&
		    (rc = stop_in_signal_handling(remote, err)))
			return rc;
		rc = rest(remote, err);
		if (rc)
			return rc;
	}
	remote->driver = driver;
	remote->frame_slot ^= 1;
	rc = engage(remote, err);
	if (rc)
		return rc;
	remote->driver = old;
	remote->engaged = old_engaged;
	rc = disengage(remote, err);
	remote->driver = driver;
	remote->engaged = true;
	return rc;
}

/* Zeros, and the mark where the next run could not tell by the zeros that nothing lives there. */
static void wipe_frames(const struct sp_remote *remote)
{
	remote_addr slot = remote->foothold.frame;

	for (int i = 0; slot && i < 2; i++, slot += remote->frame_slot_size) {
		sp_cleanup_free char *bytes = sp_alloc_zeroed(1, remote->frame_slot_size);

		if (remote->foothold.main_thread_elsewhere)
			memcpy(bytes, sp_frame_mark, sizeof(sp_frame_mark));
		sp_process_write(remote->process->pid, slot, bytes, remote->frame_slot_size, NULL);
	}
}

static int unmap_pages(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_call unmap = unmap_call(remote);
	int rc;

	if (remote->one_by_one)
		return sp_remote_run_alone(remote, &unmap, err);
	rc = rest(remote, err);
	return rc ? rc : run_one_call(remote, &unmap.result, err);
}

int sp_remote_close(struct sp_remote *remote, struct sp_error *err)
{
	int rc = 0;

	if (!remote->code)
		return 0;
	if (remote->engaged) {
		rc = unmap_pages(remote, err);
		if (!rc)
			rc = stop_in_signal_handling(remote, err);
		if (!rc)
			rc = disengage(remote, err);
	}
	wipe_frames(remote);
	release_batch(remote);
	remote->code = 0;
	return rc;
}
