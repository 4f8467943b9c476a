/*
 * What remote.c and batch.c share: where things lie in the temporary mapping, and running the stub.
 */
#ifndef SEALPOINT_REMOTE_REMOTE_INTERNAL_H
#define SEALPOINT_REMOTE_REMOTE_INTERNAL_H

#include "remote/remote.h"

remote_addr sp_remote_calls_address(const struct sp_remote *remote);
remote_addr sp_remote_data_address(const struct sp_remote *remote);
size_t sp_remote_data_capacity(const struct sp_remote *remote);

/**
 * Writes to the data pages: from outside, and against their protection as long as they are
 * read-only.
 */
int sp_remote_write(const struct sp_remote *remote, remote_addr to, const void *bytes, size_t size,
                    struct sp_error *err);

/** Makes one call, if `remote->one_by_one`, and sets its result. */
int sp_remote_run_alone(struct sp_remote *remote, struct sp_call *call, struct sp_error *err);

/** Runs the first `calls` calls that lie at sp_remote_calls_address(), up to a failed one. */
int sp_remote_run_stub(struct sp_remote *remote, size_t calls, struct sp_error *err);

#endif
