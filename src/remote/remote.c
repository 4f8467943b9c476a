/*
 * Driving a stopped process: see remote.h for the idea, foothold.h for how a target heals.
 *
 * The temporary mapping, from `code` upward:
 *
 *	code page	the runner
 *	data		struct sp_runner_block
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
 *              on the target's own instruction, not on the runner, so that if we die now either may
 *              unmap the pages first. They have a frame each.
 */
#include "remote/remote.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/status.h"
#include "remote/remote_internal.h"
#include "remote/room.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

remote_addr sp_remote_block_address(const struct sp_remote *remote)
{
	return remote->code + SP_PAGE_SIZE;
}

remote_addr sp_remote_calls_address(const struct sp_remote *remote)
{
	return sp_remote_block_address(remote) + sizeof(struct sp_runner_block);
}

remote_addr sp_remote_data_address(const struct sp_remote *remote)
{
	remote_addr behind_calls =
	        sp_remote_calls_address(remote) + SP_REMOTE_CALLS_MAX * sizeof(struct sp_call);

	return (behind_calls + 63) & ~63ULL;
}

remote_addr sp_remote_own_frames_address(const struct sp_remote *remote)
{
	return remote->code + SP_REMOTE_SIZE - 2 * remote->frame_slot_size;
}

size_t sp_remote_data_capacity(const struct sp_remote *remote)
{
	return sp_remote_own_frames_address(remote) - sp_remote_data_address(remote);
}

int sp_remote_write(const struct sp_remote *remote, remote_addr to, const void *bytes, size_t size,
                    struct sp_error *err)
{
	if (remote->data_writable)
		return sp_process_write(sp_process_living(remote->process), to, bytes, size, err);
	return sp_process_write_forced(sp_process_living(remote->process), to, bytes, size, err);
}

/* --- opening --- */

/*
 * The signals that may end a batch: nobody would see one if it were delivered for want of a tracer,
 * because its default is to be ignored, and it has no handler and is not pending. Nor would anybody
 * have seen one that is sent to the process meanwhile: the main thread does not block it.
 */
static uint64_t find_markers(const struct sp_process *process)
{
	uint64_t markers = sp_signal_bit(SIGURG) | sp_signal_bit(SIGWINCH) | sp_signal_bit(SIGCHLD);
	sp_cleanup_free char *status = NULL;
	uint64_t caught, pending;

	if (sp_status_read(process->pid, sp_process_living(process), &status, NULL) ||
	    sp_status_number(status, "SigCgt", 16, &caught, NULL) ||
	    sp_status_number(status, "ShdPnd", 16, &pending, NULL))
		return 0;
	return markers & ~(caught | pending | sp_process_leader(process)->signal_mask);
}

/* One that the driver does not block either: it could wait for it, and have one pending. */
static void choose_marker(struct sp_remote *remote)
{
	static const int candidates[] = {SIGURG, SIGWINCH, SIGCHLD};
	uint64_t markers = remote->markers & ~remote->driver->signal_mask;

	remote->marker_signal = 0;
	for (size_t i = 0; i < SP_COUNT_OF(candidates) && !remote->marker_signal; i++)
		if (markers & sp_signal_bit(candidates[i]))
			remote->marker_signal = candidates[i];
}

static int write_runner(const struct sp_remote *remote, struct sp_error *err)
{
	size_t size;
	const void *code = sp_runner_code(&size);

	return sp_process_write_forced(sp_process_living(remote->process), remote->code, code, size,
	                               err);
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
	int rc = sp_remote_run_aimed(remote, &result, err);

	return rc ? rc : check_mapped(remote, result, err);
}

/*
 * The first batch: its only call makes the data pages writable for the results of all that follow.
 * Where the kernel refuses that, which it does for want of memory, the runner faults as it notes
 * the refusal.
 */
static int make_data_writable(struct sp_remote *remote, struct sp_error *err)
{
	int rc = sp_remote_call(remote, NULL, err, "make the temporary pages writable",
	                        SYS_mprotect, sp_remote_block_address(remote), SP_REMOTE_DATA_SIZE,
	                        PROT_READ | PROT_WRITE, 0, 0, 0);

	remote->data_writable = !rc;
	if (rc == -EFAULT)
		return sp_fail(err, ENOMEM,
		               "cannot make the temporary pages of process %d writable",
		               remote->process->pid);
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
	remote->frame_slot_size = sp_page_up(SP_FRAME_HEAD + sp_signal_frame_size(&driver->raw));
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
	int rc = sp_driver_engage(remote, err);

	if (!rc)
		rc = sp_remote_run_alone(remote, &call, err);
	if (!rc)
		rc = check_mapped(remote, call.result, err);
	remote->data_writable = !rc;
	return rc;
}

/* Maps the temporary pages by the target's own instruction, then installs the runner. */
static int take_hold(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_call call = map_call(remote->code, PROT_READ | PROT_EXEC);
	remote_addr stack = sp_driver_frame(remote);
	int rc;

	/*
	 * Whoever returns from this call without us goes through munmap(2), whose arguments are the
	 * same.
	 */
	if (remote->foothold.unmap)
		stack -= sizeof(uint64_t);
	if (remote->foothold.complete && (rc = sp_driver_write_frame(remote, err)))
		return rc;
	rc = sp_driver_engage_at(remote, &call, stack, err);
	if (!rc)
		rc = map_pages(remote, err);
	if (!rc)
		rc = write_runner(remote, err);
	if (!rc && !remote->foothold.complete)
		rc = sp_driver_write_frame(remote, err);
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
	remote->markers = find_markers(process);
	choose_marker(remote);
	remote->one_by_one =
	        remote->foothold.complete && sp_is_under_seccomp(process->pid, driver->tid);
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

int sp_remote_inherit(struct sp_remote *remote, struct sp_process *process,
                      const struct sp_remote *parent, struct sp_error *err)
{
	int rc;

	init(remote, process, sp_process_leader(process), false);
	remote->foothold.instruction = parent->foothold.instruction;
	remote->code = parent->code;
	remote->marker_signal = SIGURG;
	remote->data_writable = true;
	rc = sp_driver_engage(remote, err);
	return rc ? sp_error_context(err, "cannot take control of the stub process %d",
	                             process->pid)
	          : 0;
}

int sp_remote_leave(struct sp_remote *remote, const struct sp_call *call, struct sp_error *err)
{
	struct sp_thread *driver = remote->driver;

	sp_general_run_call(&driver->raw.general, remote->foothold.instruction,
	                    sp_driver_frame(remote), call);
	driver->signal_mask = 0;
	driver->rseq_abort = 0;
	return sp_driver_disengage(remote, err);
}

/* --- changing the driver, closing --- */

/*
 * The signal from outside that the driver has taken instead of the program: it queues it for itself
 * again, which nobody else could do without saying that it comes from somebody else. Blocked, it
 * stays pending until the program runs.
 */
static int give_back_foreign(struct sp_remote *remote, struct sp_error *err)
{
	siginfo_t info = remote->foreign;
	uint64_t signal = (uint64_t)info.si_signo, pid = (uint64_t)remote->process->pid;
	const char *label = "queue a signal";
	remote_addr place;
	int rc;

	if (!info.si_signo)
		return 0;
	remote->foreign.si_signo = 0;
	rc = sp_remote_block_signals(remote, err);
	if (rc)
		return rc;
	sp_batch_begin(remote);
	place = sp_batch_put(remote, &info, sizeof(info));
	if (info.si_code == SI_TKILL)
		sp_batch_call(remote, label, SYS_rt_tgsigqueueinfo, pid,
		              (uint64_t)remote->driver->tid, signal, place, 0, 0);
	else
		sp_batch_call(remote, label, SYS_rt_sigqueueinfo, pid, signal, place, 0, 0, 0);
	return sp_batch_run(remote, err);
}

int sp_remote_drive(struct sp_remote *remote, struct sp_thread *driver, struct sp_error *err)
{
	struct sp_thread *old = remote->driver;
	bool old_engaged = remote->engaged;
	int rc;

	if (driver == old)
		return 0;
	rc = give_back_foreign(remote, err);
	if (rc)
		return rc;
	if (old_engaged) {
		if ((!remote->marker_signal || remote->one_by_one) &&
		    (rc = sp_remote_stop(remote, err)))
			return rc;
		rc = sp_driver_rest(remote, err);
		if (rc)
			return rc;
	}
	remote->driver = driver;
	remote->frame_slot ^= 1;
	if (remote->heals)
		choose_marker(remote);
	rc = sp_driver_engage(remote, err);
	if (rc) { /* the old one is still the one that has to get its registers back */
		remote->driver = old;
		remote->frame_slot ^= 1;
		remote->engaged = old_engaged;
		if (remote->heals)
			choose_marker(remote);
		return rc;
	}
	remote->driver = old;
	remote->engaged = old_engaged;
	rc = sp_driver_disengage(remote, err);
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
		sp_process_write(sp_process_living(remote->process), slot, bytes,
		                 remote->frame_slot_size, NULL);
	}
}

static int unmap_pages(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_call unmap = sp_driver_unmap_call(remote);
	int rc;

	if (remote->one_by_one)
		return sp_remote_run_alone(remote, &unmap, err);
	rc = sp_driver_rest(remote, err);
	return rc ? rc : sp_remote_run_aimed(remote, &unmap.result, err);
}

int sp_remote_close(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_error unheard = {0};
	int rc = 0;

	if (!err)
		err = &unheard;
	if (!remote->code)
		return 0;
	if (remote->engaged) {
		if (!remote->heals) /* no signal is taken any more */
			rc = sp_remote_block_signals(remote, err);
		if (!rc)
			rc = give_back_foreign(remote, err);
		if (!rc && !remote->leaves_pages)
			rc = unmap_pages(remote, err);
		if (!rc)
			rc = sp_remote_stop(remote, err);
		if (!rc)
			rc = sp_driver_disengage(remote, err);
	}
	if (!rc) /* else the driver may need its frame to heal from */
		wipe_frames(remote);
	release_batch(remote);
	remote->code = 0;
	return rc;
}
