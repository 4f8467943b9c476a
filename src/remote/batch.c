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
	return remote->calls.count > SP_REMOTE_CALLS_MAX / 4 * 3 ||
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

/* One stop for all calls. */
static int run_together(struct sp_remote *remote, struct sp_error *err)
{
	size_t size = remote->calls.count * sizeof(struct sp_call);
	remote_addr calls = sp_remote_calls_address(remote);
	int rc = sp_remote_write(remote, calls, remote->calls.items, size, err);

	if (!rc)
		rc = sp_remote_run_batch(remote, remote->calls.count, err);
	if (!rc)
		rc = sp_process_read(remote->process->pid, calls, remote->calls.items, size, err);
	return rc;
}

static int run_one_by_one(struct sp_remote *remote, struct sp_error *err)
{
	for (size_t i = 0; i < remote->calls.count; i++) {
		int rc = sp_remote_run_alone(remote, call_at(remote, i), err);

		if (rc || has_failed(call_at(remote, i)))
			return rc;
	}
	return 0;
}

/* Names the first call that failed and was not allowed to. */
static int check_results(const struct sp_remote *remote, struct sp_error *err)
{
	for (size_t i = 0; i < remote->calls.count; i++) {
		const struct sp_call *call = call_at(remote, i);

		if (has_failed(call))
			return sp_fail_errno(err, (int)-call->result, "cannot %s of process %d",
			                     label_at(remote, i), remote->process->pid);
	}
	return 0;
}

int sp_batch_run(struct sp_remote *remote, struct sp_error *err)
{
	int rc;

	if (!remote->calls.count)
		return 0;
	if (remote->calls.count > SP_REMOTE_CALLS_MAX ||
	    remote->data.count > sp_remote_data_capacity(remote))
		return sp_fail(
		        err, E2BIG,
		        "a batch of %zu calls and %zu bytes does not fit (to %s of process %d)",
		        remote->calls.count, remote->data.count, label_at(remote, 0),
		        remote->process->pid);
	rc = write_data(remote, err);
	if (!rc)
		rc = remote->one_by_one ? run_one_by_one(remote, err) : run_together(remote, err);
	return rc ? rc : check_results(remote, err);
}

int sp_batch_make_room(struct sp_remote *remote, struct sp_error *err)
{
	int rc;

	if (!sp_batch_nearly_full(remote))
		return 0;
	rc = sp_batch_run(remote, err);
	sp_batch_begin(remote);
	return rc;
}

int64_t sp_batch_result(const struct sp_remote *remote, size_t index)
{
	return call_at(remote, index)->result;
}

int sp_batch_read(struct sp_remote *remote, remote_addr from, void *buffer, size_t size,
                  struct sp_error *err)
{
	return sp_process_read(remote->process->pid, from, buffer, size, err);
}

/* Forgets the calls of a batch that has run. The data area stays: it may hold arguments. */
static void forget_calls(struct sp_remote *remote)
{
	sp_array_clear(&remote->calls);
	sp_array_clear(&remote->labels);
}

static int run_single(struct sp_remote *remote, size_t index, int64_t *result, struct sp_error *err)
{
	int rc = sp_batch_run(remote, err);

	if (!rc && result)
		*result = sp_batch_result(remote, index);
	forget_calls(remote);
	return rc;
}

int sp_remote_call(struct sp_remote *remote, int64_t *result, struct sp_error *err,
                   const char *label, long number, uint64_t a0, uint64_t a1, uint64_t a2,
                   uint64_t a3, uint64_t a4, uint64_t a5)
{
	size_t index;

	forget_calls(remote);
	index = sp_batch_call(remote, label, number, a0, a1, a2, a3, a4, a5);
	return run_single(remote, index, result, err);
}

int sp_remote_try(struct sp_remote *remote, int64_t *result, struct sp_error *err,
                  const char *label, long number, uint64_t a0, uint64_t a1, uint64_t a2,
                  uint64_t a3, uint64_t a4, uint64_t a5)
{
	size_t index;

	forget_calls(remote);
	index = sp_batch_try(remote, label, number, a0, a1, a2, a3, a4, a5);
	return run_single(remote, index, result, err);
}
