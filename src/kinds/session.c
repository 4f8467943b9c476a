/*
 * The session and the process group of a process. One that leads its own session gets a new one of
 * that number. A session that somebody else leads cannot be made again: with --shell-job the
 * process joins sealpoint's session and group, so that it goes on as a job of the shell that
 * sealpoint was started from.
 */
#include "kinds/registry.h"

#include "proc/stat.h"

#include "settings.pb-c.h"

#include <sys/syscall.h>

static int refuse_foreign(int32_t session, struct sp_error *err)
{
	return sp_fail(err, ENOTSUP,
	               "it belongs to session %d, which another process leads; start it with "
	               "setsid(1), or use --shell-job, and it joins the session of sealpoint",
	               session);
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__Session message = SEALPOINT__SESSION__INIT;
	pid_t pid = saver->process->pid;
	struct sp_stat stat;
	int rc = sp_stat_read(pid, pid, &stat, err);

	if (rc < 0)
		return rc;
	message.leads_session = stat.session == pid;
	if (!message.leads_session && !saver->options->shell_job)
		return refuse_foreign(stat.session, err);
	if (!message.leads_session)
		message.session = (uint32_t)stat.session;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Session *message =
	        sp_blob_unpack(body, &sealpoint__session__descriptor, err);

	if (!message)
		return -EBADMSG;
	sp_batch_begin(builder->remote);
	if (message->leads_session)
		return sp_remote_call(builder->remote, NULL, err, "begin the session", SYS_setsid,
		                      0, 0, 0, 0, 0, 0);
	if (!builder->options->shell_job)
		return refuse_foreign((int32_t)message->session, err);
	return 0; /* the stub is in sealpoint's session and group already */
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Session *message =
	        sp_blob_unpack(body, &sealpoint__session__descriptor, NULL);

	if (message && message->leads_session)
		snprintf(text, size, "leads its own");
	else if (message)
		snprintf(text, size, "of process %u (--shell-job)", message->session);
}

const struct sp_facet sp_facet_session = {
        .name = "session",
        .title = "session",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_STUB,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
};
