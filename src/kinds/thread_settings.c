/*
 * Settings of a single thread that hardly a program changes, but that a stub would otherwise have
 * from sealpoint: personality, whether reading the time stamp counter faults, how speculation is
 * held back, and what happens on memory errors.
 *
 * Two that change how a thread enters the kernel or returns cannot be saved and are refused: system
 * call user dispatch, and shadow stacks.
 */
#include "kinds/registry.h"

#include "base/kernel_abi.h"
#include "proc/capability.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"

#include "thread.pb-c.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

enum { SPECULATION_FEATURES = 3 }; /* PR_SPEC_STORE_BYPASS, _INDIRECT_BRANCH, _L1D_FLUSH */

/*
 * What prctl(PR_SET_IO_FLUSHER) sets in a task's flags: PR_GET_IO_FLUSHER needs CAP_SYS_RESOURCE.
 */
#define PF_IO_FLUSHER (0x00080000u | 0x00100000u)

static int refuse_unsupported(const struct sp_facet_saver *saver, struct sp_error *err)
{
	struct {
		uint64_t mode, selector, offset, length;
	} dispatch = {};
	const char *features;
	size_t length;

	if (ptrace((enum __ptrace_request)SP_PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
	           saver->thread->tid, sizeof(dispatch), &dispatch) == 0 &&
	    dispatch.mode)
		return sp_fail(err, ENOTSUP,
		               "it uses system call user dispatch (prctl(2)), which sealpoint does "
		               "not support yet; switch it off before the dump");
	if (sp_status_find(saver->status, "x86_Thread_features", &features, &length) && length)
		return sp_fail(err, ENOTSUP,
		               "it has a shadow stack (%.*s), which sealpoint does not support "
		               "yet; start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off",
		               (int)length, features);
	return 0;
}

/* --- saving --- */

static int read_outside(const struct sp_facet_saver *saver, Sealpoint__ThreadSettings *message,
                        struct sp_error *err)
{
	pid_t pid = saver->process->pid, tid = saver->thread->tid;
	sp_cleanup_free char *personality = NULL;
	struct sp_stat stat;
	int rc = sp_proc_read_thread(pid, tid, "personality", &personality, NULL, err);

	if (rc == 0)
		rc = sp_stat_read(pid, tid, &stat, err);
	if (rc < 0)
		return rc;
	message->personality = (uint32_t)strtoul(personality, NULL, 16);
	message->io_flusher = (stat.flags & PF_IO_FLUSHER) == PF_IO_FLUSHER;
	return 0;
}

/* A negative value, or one without PR_SPEC_PRCTL, says that the thread has no choice. */
static bool is_chosen(int64_t control)
{
	return control > 0 && control & PR_SPEC_PRCTL;
}

/* The calls of ask(), in their order. */
enum { TSC, MEMORY_FAILURE, SPECULATION };

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	struct sp_remote *remote = saver->remote;
	remote_addr room = sp_batch_room(remote, sizeof(int));

	*saver->asked = (struct sp_asked){
	        .room = room,
	        .call = sp_batch_try(remote, "read the TSC mode", SYS_prctl, PR_GET_TSC, room, 0, 0,
	                             0, 0),
	};
	sp_batch_try(remote, "read the memory failure policy", SYS_prctl, PR_MCE_KILL_GET, 0, 0, 0,
	             0, 0);
	for (unsigned i = 0; i < SPECULATION_FEATURES; i++)
		sp_batch_try(remote, "read the speculation control", SYS_prctl,
		             PR_GET_SPECULATION_CTRL, i, 0, 0, 0, 0);
	return 0;
}

static int read_inside(const struct sp_facet_saver *saver, Sealpoint__ThreadSettings *message,
                       Sealpoint__Speculation *items, struct sp_error *err)
{
	struct sp_remote *remote = saver->remote;
	size_t call = saver->asked->call;
	int tsc_mode = 0;
	int rc = sp_batch_read(remote, saver->asked->room, &tsc_mode, sizeof(tsc_mode), err);

	if (rc < 0)
		return rc;
	message->tsc_faults =
	        sp_batch_result(remote, call + TSC) == 0 && tsc_mode == PR_TSC_SIGSEGV;
	if (sp_batch_result(remote, call + MEMORY_FAILURE) >= 0)
		message->memory_failure = (uint32_t)sp_batch_result(remote, call + MEMORY_FAILURE);
	for (unsigned i = 0; i < SPECULATION_FEATURES; i++) {
		int64_t control = sp_batch_result(remote, call + SPECULATION + i);
		Sealpoint__Speculation *item = &items[message->n_speculation];

		if (!is_chosen(control))
			continue;
		sealpoint__speculation__init(item);
		item->feature = i;
		item->control = (uint32_t)control;
		message->speculation[message->n_speculation++] = item;
	}
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__Speculation items[SPECULATION_FEATURES], *pointers[SPECULATION_FEATURES];
	Sealpoint__ThreadSettings message = SEALPOINT__THREAD_SETTINGS__INIT;
	int rc = refuse_unsupported(saver, err);

	message.speculation = pointers;
	if (rc == 0)
		rc = read_outside(saver, &message, err);
	if (rc == 0)
		rc = read_inside(saver, &message, items, err);
	if (rc == 0)
		sp_blob_pack(body, &message.base);
	return rc;
}

/* --- rebuilding --- */

static void set_settings(struct sp_remote *remote, const Sealpoint__ThreadSettings *message)
{
	sp_batch_call(remote, "set the personality", SYS_personality, message->personality, 0, 0, 0,
	              0, 0);
	if (message->tsc_faults)
		sp_batch_call(remote, "set the TSC mode", SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0,
		              0, 0, 0);
	sp_batch_call(remote, "set the memory failure policy", SYS_prctl, PR_MCE_KILL,
	              PR_MCE_KILL_SET, message->memory_failure, 0, 0, 0);
	if (message->io_flusher)
		sp_batch_call(remote, "set the I/O flusher flag", SYS_prctl, PR_SET_IO_FLUSHER, 1,
		              0, 0, 0, 0);
}

/*
 * Only what differs: this processor may need no mitigation, or another default may be in force. A stub has
 * what sealpoint has.
 */
static int set_speculation(struct sp_remote *remote, const Sealpoint__ThreadSettings *message,
                           struct sp_error *err)
{
	for (size_t i = 0; i < message->n_speculation; i++) {
		const Sealpoint__Speculation *item = message->speculation[i];
		int now;

		if (item->feature >= SPECULATION_FEATURES)
			return sp_fail_damaged(err, "an unknown speculation feature %u",
			                       item->feature);
		now = prctl(PR_GET_SPECULATION_CTRL, item->feature, 0, 0, 0);
		if (is_chosen(now) && (uint32_t)now != item->control)
			sp_batch_call(remote, "set the speculation control", SYS_prctl,
			              PR_SET_SPECULATION_CTRL, item->feature,
			              item->control & ~(uint32_t)PR_SPEC_PRCTL, 0, 0, 0);
	}
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ThreadSettings *message =
	        sp_blob_unpack(body, &sealpoint__thread_settings__descriptor, err);

	if (!message)
		return -EBADMSG;
	set_settings(builder->remote, message);
	return set_speculation(builder->remote, message, err);
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ThreadSettings *message =
	        sp_blob_unpack(body, &sealpoint__thread_settings__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (message->io_flusher && !sp_capability_have(CAP_SYS_RESOURCE))
		return sp_fail(err, EPERM,
		               "it is an I/O flusher (PR_SET_IO_FLUSHER); run sealpoint with "
		               "CAP_SYS_RESOURCE");
	return 0;
}

const struct sp_facet sp_facet_thread_settings = {
        .name = "thread_settings",
        .title = "thread settings",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_THREADS,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .check = check,
};
