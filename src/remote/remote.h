/*
 * A stopped process that can be asked to do things: system calls that the target executes itself,
 * driven from outside (docs/architecture.md, D1). One thread at a time is the driver; all others
 * stand still.
 *
 *	struct sp_remote remote;
 *	sp_remote_open(&remote, process, sp_process_leader(process), &foothold, err);
 *	sp_remote_call(&remote, &result, err, "get the umask", SYS_umask, 0, 0, 0, 0, 0, 0);
 *	...
 *	sp_remote_close(&remote, err);
 *
 * The target gets one temporary mapping: a code page with the runner and data pages for the calls,
 * strings and structures of a batch. From the first changed register to the last, a signal frame
 * with the original registers lies in the target (remote/foothold.h), so that a target whose tracer
 * is killed unmaps the temporary pages and goes on as if nothing had happened (D3); a target without a
 * complete foothold does not always.
 *
 * A batch costs one stop (about 10 us) whatever its length; under seccomp two for each call,
 * because there nothing but rt_sigreturn(2) may ever run that nobody traces. Not thread safe:
 * ptrace belongs to the thread that seized.
 */
#ifndef SEALPOINT_REMOTE_REMOTE_H
#define SEALPOINT_REMOTE_REMOTE_H

#include "remote/foothold.h"
#include "remote/process.h"

#include <signal.h>

/* Room for the calls, strings and structures of a batch. */
#define SP_REMOTE_DATA_SIZE (512ULL << 10)
#define SP_REMOTE_CALLS_MAX 2048
#define SP_REMOTE_SIZE (SP_PAGE_SIZE + SP_REMOTE_DATA_SIZE) /* the whole temporary mapping */

struct sp_remote {
	struct sp_process *process;
	struct sp_thread *driver;
	struct sp_foothold foothold;
	bool heals;         /* a dump: the target must survive us; false for a stub that we made */
	bool one_by_one;    /* a driver is under seccomp: no batches */
	bool data_writable; /* the data pages are not read-only any more */
	bool engaged;       /* the driver's registers are ours at the moment */
	bool leaves_pages; /* another process has its memory, and is still driven: sp_remote_close() leaves them */
	remote_addr code;  /* start of the temporary mapping; 0: not open */
	uint64_t markers;  /* a dump: signals that may end batches of whoever does not block them */
	int marker_signal; /* ends a batch with one stop; 0: stop at every system call instead */
	siginfo_t foreign; /* such a signal from outside, kept for the program; si_signo 0: none */
	unsigned frame_slot; /* which of the two frames in the target is the driver's */
	size_t frame_slot_size;
	struct sp_array calls;  /* struct sp_call: the batch under construction */
	struct sp_array labels; /* const char *: what each call is for, in error messages */
	size_t calls_run;       /* how many of them have run */
	unsigned batches;       /* how many were run so far */
	struct sp_array data;   /* bytes of the data area */
	size_t data_written;    /* how many of them the target already has */
};

/**
 * Takes control of `driver`, a stopped thread of `process`, and maps the temporary pages. On
 * failure the thread has its registers back.
 */
int sp_remote_open(struct sp_remote *remote, struct sp_process *process, struct sp_thread *driver,
                   const struct sp_foothold *foothold, struct sp_error *err);

/**
 * Takes control of a stub process that sealpoint made itself (restore): no healing, and the
 * temporary mapping is placed at `code`, which must be free. `instruction` is the address of a
 * system call instruction that the stub has mapped.
 */
int sp_remote_open_stub(struct sp_remote *remote, struct sp_process *process,
                        remote_addr instruction, remote_addr code, struct sp_error *err);

/**
 * Takes control of a stub process that another stub has just cloned, which still has the temporary
 * mapping of its parent, as its own or, having its memory, in common: batches run one after the other.
 */
int sp_remote_inherit(struct sp_remote *remote, struct sp_process *process,
                      const struct sp_remote *parent, struct sp_error *err);

/**
 * The last thing that is done with a stub: without a signal blocked and without us it will make
 * `call`, which ends it. It still has to be detached.
 */
int sp_remote_leave(struct sp_remote *remote, const struct sp_call *call, struct sp_error *err);

/**
 * Makes another stopped thread of the same process the driver; the old one gets its registers back.
 */
int sp_remote_drive(struct sp_remote *remote, struct sp_thread *driver, struct sp_error *err);

/**
 * Blocks all signals of the driver, so that those which it sends itself stay pending. Batches end in
 * another, slower way from here on: the signal that ends them is the one that was not blocked.
 */
int sp_remote_block_signals(struct sp_remote *remote, struct sp_error *err);

/**
 * Unmaps the temporary pages and gives the driver its registers back (raw ones, inside a signal
 * stop, so that the kernel finishes or restarts its interrupted system call itself). Closing a
 * remote that is not open does nothing.
 */
int sp_remote_close(struct sp_remote *remote, struct sp_error *err);

/*
 * --- batches ---
 *
 * Calls are added to a batch, and run at some time: what several parts of the engine want to know, or
 * to have done, costs one stop if each adds its calls and one of them runs. A batch can go on after
 * that: what has run is not run again, and its results stay until the next one begins.
 */

/** Starts a new batch: forgets calls and data of the one before. Results read from it are gone. */
void sp_batch_begin(struct sp_remote *remote);

/**
 * Appends a system call; returns its index, for sp_batch_result(). `label` says what it is for
 * ("set the umask") and must live until the batch has run. sp_batch_try() appends one whose failure
 * is a result; after any other failed call the batch ends and sp_batch_run() fails with the label.
 */
size_t sp_batch_call(struct sp_remote *remote, const char *label, long number, uint64_t a0,
                     uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);
size_t sp_batch_try(struct sp_remote *remote, const char *label, long number, uint64_t a0,
                    uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);

/**
 * Places `size` bytes in the target, 16-byte aligned, and returns the address to use as an
 * argument. With `bytes` NULL the room is zeroed: a place for results, read with sp_batch_read()
 * after the run.
 */
remote_addr sp_batch_put(struct sp_remote *remote, const void *bytes, size_t size);
static inline remote_addr sp_batch_room(struct sp_remote *remote, size_t size)
{
	return sp_batch_put(remote, NULL, size);
}
remote_addr sp_batch_string(struct sp_remote *remote, const char *text);

/** True when a careful caller should run what it has and begin anew: 3/4 of the room is used. */
bool sp_batch_nearly_full(const struct sp_remote *remote);

/**
 * Runs the calls that have not run yet. Fails with E2BIG if they, or the data, have grown beyond the room,
 * with ESRCH if the target died, and with the call's own errno and label if a call that had to succeed did
 * not; then those behind it never run.
 */
int sp_batch_run(struct sp_remote *remote, struct sp_error *err);
/** Runs them, and begins anew, whatever comes of it. */
int sp_batch_flush(struct sp_remote *remote, struct sp_error *err);
/** Does so if the batch is nearly full. */
int sp_batch_make_room(struct sp_remote *remote, struct sp_error *err);

/**
 * The result of call `index`, which has run: as the kernel gave it, -errno on errors.
 */
int64_t sp_batch_result(const struct sp_remote *remote, size_t index);

/** Copies what the calls left at `from`, an address that sp_batch_put() returned in this batch. */
int sp_batch_read(struct sp_remote *remote, remote_addr from, void *buffer, size_t size,
                  struct sp_error *err);

/**
 * Adds one call and runs it, behind those that have not run yet. sp_remote_call() fails if the call
 * does; sp_remote_try() fails only if the call could not be made, or one before it fails. `result` may be
 * NULL. Data placed with sp_batch_put() since sp_batch_begin() can be used in the arguments.
 */
int sp_remote_call(struct sp_remote *remote, int64_t *result, struct sp_error *err,
                   const char *label, long number, uint64_t a0, uint64_t a1, uint64_t a2,
                   uint64_t a3, uint64_t a4, uint64_t a5);
int sp_remote_try(struct sp_remote *remote, int64_t *result, struct sp_error *err,
                  const char *label, long number, uint64_t a0, uint64_t a1, uint64_t a2,
                  uint64_t a3, uint64_t a4, uint64_t a5);

#endif
