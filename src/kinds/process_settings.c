/*
 * Settings of a process as a whole: whether orphans come to it, whether its memory may be huge
 * pages or be merged, which barriers it has registered for, how likely the kernel is to kill it
 * when memory runs out, and what a core file would hold. A stub has sealpoint's where they are
 * inherited, so all are set.
 */
#include "kinds/registry.h"

#include "base/kernel_abi.h"
#include "proc/capability.h"
#include "proc/file.h"

#include "settings.pb-c.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/membarrier.h>

/* Registrations, in the order in which they are looked at. */
static const struct {
	int registration;
	int command; /* fails with EPERM unless registered; a query if there is none like that */
} barriers[] = {
        {MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, MEMBARRIER_CMD_QUERY},
        {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, MEMBARRIER_CMD_PRIVATE_EXPEDITED},
        {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
         MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE},
        {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ},
};

enum { BARRIERS = SP_COUNT_OF(barriers) };

/* --- saving --- */

static int read_number(pid_t pid, const char *file, int base, long *value, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int rc = sp_proc_read(pid, file, &text, NULL, err);

	if (rc == 0)
		*value = strtol(text, NULL, base);
	return rc;
}

/* The calls of ask(), in their order. */
enum { HUGE_PAGES, MERGE, BARRIER, SUBREAPER };

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	struct sp_remote *remote = saver->remote;

	saver->asked->room = sp_batch_room(remote, sizeof(int));
	saver->asked->call = sp_batch_try(remote, "read the huge page setting", SYS_prctl,
	                                  PR_GET_THP_DISABLE, 0, 0, 0, 0, 0);
	sp_batch_try(remote, "read the memory merge setting", SYS_prctl, PR_GET_MEMORY_MERGE, 0, 0,
	             0, 0, 0);
	sp_batch_try(remote, "read the memory barriers", SYS_membarrier,
	             SP_MEMBARRIER_CMD_GET_REGISTRATIONS, 0, 0, 0, 0, 0);
	sp_batch_call(remote, "read the child subreaper flag", SYS_prctl, PR_GET_CHILD_SUBREAPER,
	              saver->asked->room, 0, 0, 0, 0);
	return 0;
}

static int64_t answer(const struct sp_facet_saver *saver, size_t call)
{
	return sp_batch_result(saver->remote, saver->asked->call + call);
}

static int read_prctls(const struct sp_facet_saver *saver, Sealpoint__ProcessSettings *message,
                       struct sp_error *err)
{
	int subreaper;
	int rc = sp_batch_read(saver->remote, saver->asked->room, &subreaper, sizeof(subreaper),
	                       err);

	if (rc < 0)
		return rc;
	message->child_subreaper = subreaper;
	if (answer(saver, HUGE_PAGES) > 0)
		message->thp_disable = (uint32_t)answer(saver, HUGE_PAGES);
	message->memory_merge = answer(saver, MERGE) > 0;
	return 0;
}

/*
 * Before Linux 6.3 the kernel does not tell, but refuses a barrier that was not registered. A
 * global one it never refuses: it counts as registered, which does no harm.
 */
static int try_barriers(struct sp_remote *remote, uint32_t *registered, struct sp_error *err)
{
	size_t calls[BARRIERS];
	int rc;

	for (int i = 0; i < BARRIERS; i++)
		calls[i] = sp_batch_try(remote, "try the memory barriers", SYS_membarrier,
		                        (uint64_t)barriers[i].command, 0, 0, 0, 0, 0);
	rc = sp_batch_run(remote, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < BARRIERS; i++)
		if (sp_batch_result(remote, calls[i]) >= 0)
			*registered |= (uint32_t)barriers[i].registration;
	return 0;
}

static int read_barriers(const struct sp_facet_saver *saver, uint32_t *registered,
                         struct sp_error *err)
{
	int64_t result = answer(saver, BARRIER);

	if (result == -EINVAL)
		return try_barriers(saver->remote, registered, err);
	if (result > 0)
		*registered = (uint32_t)result;
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__ProcessSettings message = SEALPOINT__PROCESS_SETTINGS__INIT;
	long oom_score_adj = 0, coredump_filter = 0;
	pid_t pid = sp_process_living(saver->process);
	int rc;

	rc = read_number(pid, "oom_score_adj", 10, &oom_score_adj, err);
	if (rc == 0)
		rc = read_number(pid, "coredump_filter", 16, &coredump_filter, err);
	if (rc == 0)
		rc = read_prctls(saver, &message, err);
	if (rc == 0)
		rc = read_barriers(saver, &message.membarrier, err);
	if (rc < 0)
		return rc;
	message.oom_score_adj = (int32_t)oom_score_adj;
	message.coredump_filter = (uint32_t)coredump_filter;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- rebuilding --- */

static int write_number(pid_t pid, const char *file, const char *format, long value,
                        struct sp_error *err)
{
	char text[32];

	snprintf(text, sizeof(text), format, value);
	return sp_proc_write(pid, file, text, err);
}

static void set_prctls(struct sp_remote *remote, const Sealpoint__ProcessSettings *message)
{
	/* Bit 0 says that they are off; the others, since Linux 6.18, say which. */
	uint32_t thp_off = message->thp_disable & 1, thp_flags = message->thp_disable & ~1u;

	sp_batch_call(remote, "set the child subreaper flag", SYS_prctl, PR_SET_CHILD_SUBREAPER,
	              message->child_subreaper, 0, 0, 0, 0);
	sp_batch_call(remote, "set the huge page setting", SYS_prctl, PR_SET_THP_DISABLE, thp_off,
	              thp_flags, 0, 0, 0);
	if (message->memory_merge)
		sp_batch_call(remote, "set the memory merge setting", SYS_prctl,
		              PR_SET_MEMORY_MERGE, 1, 0, 0, 0, 0);
	for (int i = 0; i < BARRIERS; i++)
		if (message->membarrier & (uint32_t)barriers[i].registration)
			sp_batch_call(remote, "set the memory barriers", SYS_membarrier,
			              (uint64_t)barriers[i].registration, 0, 0, 0, 0, 0);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ProcessSettings *message =
	        sp_blob_unpack(body, &sealpoint__process_settings__descriptor, err);
	pid_t pid = sp_process_living(builder->remote->process);
	int rc;

	if (!message)
		return -EBADMSG;
	rc = write_number(pid, "oom_score_adj", "%ld", message->oom_score_adj, err);
	if (rc == 0)
		rc = write_number(pid, "coredump_filter", "0x%lx", message->coredump_filter, err);
	if (rc == 0)
		set_prctls(builder->remote, message);
	return rc;
}

/* --- before and after --- */

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ProcessSettings *message =
	        sp_blob_unpack(body, &sealpoint__process_settings__descriptor, err);
	long own = 0;
	int rc;

	if (!message)
		return -EBADMSG;
	rc = read_number(getpid(), "oom_score_adj", 10, &own, err);
	if (rc < 0)
		return rc;
	if (message->oom_score_adj < own && !sp_capability_have(CAP_SYS_RESOURCE))
		return sp_fail(err, EPERM,
		               "its oom_score_adj, %d, is below sealpoint's own, %ld; run "
		               "sealpoint with CAP_SYS_RESOURCE, or with that value (choom(1))",
		               message->oom_score_adj, own);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__ProcessSettings *message =
	        sp_blob_unpack(body, &sealpoint__process_settings__descriptor, NULL);

	if (message)
		snprintf(text, size, "oom_score_adj %d%s%s%s", message->oom_score_adj,
		         message->child_subreaper ? ", orphans come to it" : "",
		         message->thp_disable ? ", no huge pages" : "",
		         message->memory_merge ? ", memory is merged" : "");
}

const struct sp_facet sp_facet_process_settings = {
        .name = "process_settings",
        .title = "process settings",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
