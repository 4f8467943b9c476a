/* Batches of remote system calls: built here, run by the runner in the target (remote.h). */
#include "remote/remote.h"

#include "base/error.h"
#include "remote/remote_internal.h"

#include <errno.h>
#include <string.h>

#define DATA_ALIGNMENT 16

void sp_batch_begin(struct sp_remote *remote)
{
	sp_array_clear(&remote->calls);
	sp_array_clear(&remote->labels);
	sp_array_clear(&remote->data);
	remote->calls_run = 0;
	remote->data_written = 0;
}

static size_t add_call(struct sp_remote *remote, const char *label, const struct sp_call *call)
{
	sp_array_append(&remote->calls, call);
	sp_array_append(&remote->labels, &label);
	return remote->calls.count - 1;
}

size_t sp_batch_call(struct sp_remote *remote, const char *label, long number, uint64_t a0,
                     uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	return add_call(remote, label,
	                &(struct sp_call){
	                        .number = (uint64_t)number,
	                        .args = {a0, a1, a2, a3, a4, a5},
	                });
}

size_t sp_batch_try(struct sp_remote *remote, const char *label, long number, uint64_t a0,
                    uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	return add_call(remote, label,
	                &(struct sp_call){
	                        .number = (uint64_t)number,
	                        .args = {a0, a1, a2, a3, a4, a5},
	                        .flags = SP_CALL_MAY_FAIL,
	                });
}

remote_addr sp_batch_put(struct sp_remote *remote, const void *bytes, size_t size)
{
	size_t at = remote->data.count;
	size_t padded = (size + DATA_ALIGNMENT - 1) & ~(size_t)(DATA_ALIGNMENT - 1);

	/* What grows beyond the room is noticed by the run, which fails. */
	sp_array_grow(&remote->data, padded);
	if (bytes)
		memcpy((char *)remote->data.items + at, bytes, size);
	return sp_remote_data_address(remote) + at;
}

remote_addr sp_batch_string(struct sp_remote *remote, const char *text)
{
	return sp_batch_put(remote, text, strlen(text) + 1);
}

bool sp_batch_nearly_full(const struct sp_remote *remote)
{
	return remote->calls.count - remote->calls_run > SP_REMOTE_CALLS_MAX / 4 * 3 ||
	       remote->data.count > sp_remote_data_capacity(remote) / 4 * 3;
}

static struct sp_call *call_at(const struct sp_remote *remote, size_t index)
{
	return sp_array_at(&remote->calls, index);
}

static const char *label_at(const struct sp_remote *remote, size_t index)
{
	return sp_array_pointer(&remote->labels, index);
}

static bool has_failed(const struct sp_call *call)
{
	return call->result < 0 && call->result >= -4095 && !(call->flags & SP_CALL_MAY_FAIL);
}

static int write_data(struct sp_remote *remote, struct sp_error *err)
{
	size_t written = remote->data_written;

	/*
	 * What an earlier run of this batch has left in its rooms must not be wiped: new bytes
	 * only.
	 */
	remote->data_written = remote->data.count;
	if (remote->data.count <= written)
		return 0;
	return sp_remote_write(remote, sp_remote_data_address(remote) + written,
	                       (char *)remote->data.items + written, remote->data.count - written,
	                       err);
}

/* One stop for all calls from `first` on. */
static int run_together(struct sp_remote *remote, size_t first, struct sp_error *err)
{
	size_t count = remote->calls.count - first, size = count * sizeof(struct sp_call);
	remote_addr calls = sp_remote_calls_address(remote);
	int rc = sp_remote_write(remote, calls, call_at(remote, first), size, err);

	if (!rc)
		rc = sp_remote_run_batch(remote, count, err);
	if (!rc)
		rc = sp_process_read(sp_process_living(remote->process), calls,
		                     call_at(remote, first), size, err);
	return rc;
}

static int run_one_by_one(struct sp_remote *remote, size_t first, struct sp_error *err)
{
	for (size_t i = first; i < remote->calls.count; i++) {
		int rc = sp_remote_run_alone(remote, call_at(remote, i), err);

		if (rc || has_failed(call_at(remote, i)))
			return rc;
	}
	return 0;
}

/* Names the first call that failed and was not allowed to. */
static int check_results(const struct sp_remote *remote, size_t first, struct sp_error *err)
{
	for (size_t i = first; i < remote->calls.count; i++) {
		const struct sp_call *call = call_at(remote, i);

		if (has_failed(call))
			return sp_fail_errno(err, (int)-call->result, "cannot %s of process %d",
			                     label_at(remote, i), remote->process->pid);
	}
	return 0;
}

static int check_room(const struct sp_remote *remote, size_t first, struct sp_error *err)
{
	size_t count = remote->calls.count - first;

	if (count <= SP_REMOTE_CALLS_MAX && remote->data.count <= sp_remote_data_capacity(remote))
		return 0;
	return sp_fail(err, E2BIG,
	               "a batch of %zu calls and %zu bytes does not fit (to %s of process %d)",
	               count, remote->data.count, label_at(remote, first), remote->process->pid);
}

int sp_batch_run(struct sp_remote *remote, struct sp_error *err)
{
	size_t first = remote->calls_run;
	int rc;

	if (first == remote->calls.count)
		return 0;
	/* Those behind one that fails never run. */
	remote->calls_run = remote->calls.count;
	remote->batches++;
	rc = check_room(remote, first, err);
	if (!rc)
		rc = write_data(remote, err);
	if (!rc)
		rc = remote->one_by_one ? run_one_by_one(remote, first, err)
		                        : run_together(remote, first, err);
	return rc ? rc : check_results(remote, first, err);
}

int sp_batch_flush(struct sp_remote *remote, struct sp_error *err)
{
	int rc = sp_batch_run(remote, err);

	sp_batch_begin(remote);
	return rc;
}

int sp_batch_make_room(struct sp_remote *remote, struct sp_error *err)
{
	return sp_batch_nearly_full(remote) ? sp_batch_flush(remote, err) : 0;
}

int64_t sp_batch_result(const struct sp_remote *remote, size_t index)
{
	return call_at(remote, index)->result;
}

int sp_batch_read(struct sp_remote *remote, remote_addr from, void *buffer, size_t size,
                  struct sp_error *err)
{
	return sp_process_read(sp_process_living(remote->process), from, buffer, size, err);
}

/* Runs the call that was added last, behind all that have not run yet, and forgets it. */
static int run_last(struct sp_remote *remote, size_t index, int64_t *result, struct sp_error *err)
{
	int rc = sp_batch_run(remote, err);

	if (!rc && result)
		*result = sp_batch_result(remote, index);
	remote->calls_run = remote->calls.count = remote->labels.count = index;
	return rc;
}

int sp_remote_call(struct sp_remote *remote, int64_t *result, struct sp_error *err,
                   const char *label, long number, uint64_t a0, uint64_t a1, uint64_t a2,
                   uint64_t a3, uint64_t a4, uint64_t a5)
{
	size_t index = sp_batch_call(remote, label, number, a0, a1, a2, a3, a4, a5);

	return run_last(remote, index, result, err);
}

int sp_remote_try(struct sp_remote *remote, int64_t *result, struct sp_error *err,
                  const char *label, long number, uint64_t a0, uint64_t a1, uint64_t a2,
                  uint64_t a3, uint64_t a4, uint64_t a5)
{
	size_t index = sp_batch_try(remote, label, number, a0, a1, a2, a3, a4, a5);

	return run_last(remote, index, result, err);
}
