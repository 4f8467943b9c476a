/*
 * A thread's registration for restartable sequences, rseq(2): where the kernel keeps the thread's
 * processor number, and in which code it must not be interrupted. Read with
 * PTRACE_GET_RSEQ_CONFIGURATION.
 *
 * The registered area itself is memory of the program; the kernel fills in the new processor
 * number. A thread that was stopped inside a critical section has already been moved to its abort
 * handler (remote/process.h).
 */
#include "kinds/registry.h"

#include "base/kernel_abi.h"

#include "thread.pb-c.h"

#include <errno.h>
#include <sys/ptrace.h>

static int get_configuration(pid_t tid, struct sp_ptrace_rseq_configuration *configuration,
                             struct sp_error *err)
{
	*configuration = (struct sp_ptrace_rseq_configuration){};
	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, sizeof(*configuration), configuration) >= 0)
		return 0;
	if (errno == EIO || errno == EINVAL)
		return 0; /* a kernel without restartable sequences */
	return sp_fail_errno(err, errno, "cannot read its rseq registration");
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__Rseq message = SEALPOINT__RSEQ__INIT;
	struct sp_ptrace_rseq_configuration configuration;
	int rc = get_configuration(saver->thread->tid, &configuration, err);

	if (rc < 0 || !configuration.rseq_abi_pointer)
		return rc;
	message.address = configuration.rseq_abi_pointer;
	message.size = configuration.rseq_abi_size;
	message.signature = configuration.signature;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Rseq *message =
	        sp_blob_unpack(body, &sealpoint__rseq__descriptor, err);

	if (!message)
		return -EBADMSG;
	sp_batch_call(builder->remote, "register the restartable sequences", SYS_rseq,
	              message->address, message->size, 0, message->signature, 0, 0);
	return 0;
}

const struct sp_facet sp_facet_rseq = {
        .name = "rseq",
        .title = "restartable sequences",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_THREADS,
        .save = save,
        .rebuild = rebuild,
};
