/*
 * mlockall(MCL_FUTURE): that mappings made from now on are locked, at once or when they are
 * touched. (Which mappings are locked today is a flag of each of them.)
 *
 * The kernel tells this nowhere, but it shows on every new mapping, and sealpoint has just made
 * one: its temporary pages. They count among the locked memory in status, so that smaps, which
 * takes its time, is read only for a program that has locked that much.
 *
 * Asked for when all mappings of a restored program are made and locked as they were, and before
 * the limits are set: a program may have lowered RLIMIT_MEMLOCK to 0 afterwards.
 */
#include "kinds/registry.h"

#include "proc/capability.h"
#include "proc/file.h"
#include "proc/status.h"

#include "settings.pb-c.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* The flags of the mapping that begins at an address, in the text of smaps: one line of them. */
static char *find_flags(char *smaps, remote_addr start)
{
	char header[32], *flags, *end;

	snprintf(header, sizeof(header), "\n%08" PRIx64 "-", start);
	flags = strstr(smaps, header);
	flags = flags ? strstr(flags, "\nVmFlags:") : NULL;
	end = flags ? strchr(flags + 1, '\n') : NULL;
	if (end)
		*end = '\0';
	return flags;
}

static int read_flags(struct sp_facet_saver *saver, Sealpoint__MemoryLocks *message,
                      struct sp_error *err)
{
	sp_cleanup_free char *smaps = NULL;
	pid_t pid = sp_process_living(saver->process);
	char *flags;
	int rc = sp_proc_read(pid, "smaps", &smaps, NULL, err);

	if (rc < 0)
		return rc;
	flags = find_flags(smaps, saver->remote->code);
	if (!flags)
		return sp_fail(err, EPROTO, "/proc/%d/smaps does not show the temporary pages",
		               pid);
	message->future = strstr(flags, " lo") != NULL;
	message->on_fault = strstr(flags, " lf") != NULL;
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__MemoryLocks message = SEALPOINT__MEMORY_LOCKS__INIT;
	uint64_t locked_kb;
	int rc = sp_status_number(saver->status, "VmLck", 10, &locked_kb, err);

	if (rc < 0 || locked_kb << 10 < SP_REMOTE_SIZE)
		return rc;
	rc = read_flags(saver, &message, err);
	if (rc == 0 && message.future)
		sp_blob_pack(body, &message.base);
	return rc;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__MemoryLocks *message =
	        sp_blob_unpack(body, &sealpoint__memory_locks__descriptor, err);

	if (!message)
		return -EBADMSG;
	sp_batch_call(builder->remote, "lock future mappings", SYS_mlockall,
	              MCL_FUTURE | (message->on_fault ? MCL_ONFAULT : 0), 0, 0, 0, 0, 0);
	return 0;
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__MemoryLocks *message =
	        sp_blob_unpack(body, &sealpoint__memory_locks__descriptor, err);
	struct rlimit own;

	if (!message)
		return -EBADMSG;
	if (getrlimit(RLIMIT_MEMLOCK, &own) < 0)
		return sp_fail_errno(err, errno, "cannot read RLIMIT_MEMLOCK");
	if (own.rlim_cur || sp_capability_have(CAP_IPC_LOCK))
		return 0;
	return sp_fail(err, EPERM,
	               "the program locks its future mappings (mlockall), and sealpoint may lock "
	               "nothing; raise RLIMIT_MEMLOCK (ulimit -l) or run sealpoint with "
	               "CAP_IPC_LOCK");
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__MemoryLocks *message =
	        sp_blob_unpack(body, &sealpoint__memory_locks__descriptor, NULL);

	if (message)
		snprintf(text, size, "future mappings%s",
		         message->on_fault ? ", when touched" : "");
}

const struct sp_facet sp_facet_memory_locks = {
        .name = "memory_locks",
        .title = "memory locks",
        .scope = SP_FACET_PROCESS,
        .shared = SP_SHARED_WITH_MEMORY,
        .phase = SP_PHASE_THREADS,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
