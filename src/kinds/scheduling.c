/*
 * When and where a thread runs: policy, priority, nice, deadline parameters, utilization clamps,
 * processors, I/O priority and timer slack. All of it is read and set from outside, and all of it
 * is set, because a stub begins with what sealpoint runs with.
 */
#include "kinds/registry.h"

#include "proc/capability.h"
#include "proc/file.h"

#include "scheduling.pb-c.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/ioprio.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum {
	AFFINITY_SIZE = 1024, /* bytes: 8192 processors, the kernel's bound on x86_64 */
	UTILIZATION_MAX = 1024,
	POLICY_OTHER = 0, /* SCHED_OTHER; <sched.h> cannot be included beside linux/sched.h */
};

/* --- saving --- */

static int get_attributes(pid_t tid, struct sched_attr *attr, struct sp_error *err)
{
	*attr = (struct sched_attr){.size = sizeof(*attr)};
	if (syscall(SYS_sched_getattr, tid, attr, sizeof(*attr), 0) < 0)
		return sp_fail_errno(err, errno, "cannot read its scheduling policy");
	return 0;
}

/*
 * Since Linux 6.12 the run time of an ordinary task is its slice. It counts as set by the program
 * only if it differs from that of sealpoint, which sets none.
 */
static bool is_usual_slice(const struct sched_attr *attr)
{
	struct sched_attr own;

	return attr->sched_policy == POLICY_OTHER && get_attributes(0, &own, NULL) == 0 &&
	       own.sched_policy == POLICY_OTHER && own.sched_runtime == attr->sched_runtime;
}

/* The one that a task will have again as an ordinary one is known and kept under all policies. */
static int get_nice(pid_t tid)
{
	return 20 - (int)syscall(SYS_getpriority, PRIO_PROCESS, tid);
}

static int save_attributes(pid_t tid, Sealpoint__Scheduling *message, struct sp_error *err)
{
	struct sched_attr attr;
	int rc = get_attributes(tid, &attr, err);

	if (rc < 0)
		return rc;
	message->policy = attr.sched_policy;
	message->flags = attr.sched_flags;
	message->nice = get_nice(tid);
	message->priority = attr.sched_priority;
	message->runtime = is_usual_slice(&attr) ? 0 : attr.sched_runtime;
	message->deadline = attr.sched_deadline;
	message->period = attr.sched_period;
	message->utilization = attr.sched_util_min != 0 ||
	                       (attr.sched_util_max && attr.sched_util_max != UTILIZATION_MAX);
	if (message->utilization) {
		message->utilization_min = attr.sched_util_min;
		message->utilization_max = attr.sched_util_max;
	}
	return 0;
}

static bool has_bit(const uint8_t *bits, size_t size, unsigned bit)
{
	return bit / 8 < size && bits[bit / 8] >> bit % 8 & 1;
}

/* A task that may run on every processor that is there has not been told where to run. */
static int save_affinity(pid_t tid, uint8_t bits[AFFINITY_SIZE], Sealpoint__Scheduling *message,
                         struct sp_error *err)
{
	unsigned processors = (unsigned)sysconf(_SC_NPROCESSORS_CONF), allowed = 0;
	long size = syscall(SYS_sched_getaffinity, tid, AFFINITY_SIZE, bits);

	if (size < 0)
		return sp_fail_errno(err, errno, "cannot read its processor affinity");
	for (unsigned i = 0; i < processors; i++)
		allowed += has_bit(bits, (size_t)size, i);
	if (allowed < processors) {
		message->affinity.data = bits;
		message->affinity.len = (size_t)size;
	}
	return 0;
}

/* What the kernel derives from policy and nice for a task that has not set an I/O priority. */
static uint32_t derived_io_priority(const Sealpoint__Scheduling *message)
{
	int class = IOPRIO_CLASS_BE;

	if (message->policy == SCHED_IDLE)
		class = IOPRIO_CLASS_IDLE;
	else if (message->policy == SCHED_FIFO || message->policy == SCHED_RR ||
	         message->policy == SCHED_DEADLINE)
		class = IOPRIO_CLASS_RT;
	return (uint32_t)IOPRIO_PRIO_VALUE(class, (message->nice + 20) / 5);
}

static int save_io_priority(pid_t tid, Sealpoint__Scheduling *message, struct sp_error *err)
{
	long priority = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, tid);

	if (priority < 0)
		return sp_fail_errno(err, errno, "cannot read its I/O priority");
	if (IOPRIO_PRIO_CLASS(priority) != IOPRIO_CLASS_NONE &&
	    (uint32_t)priority != derived_io_priority(message))
		message->io_priority = (uint32_t)priority;
	return 0;
}

/* The file is there for processes only, but /proc has every thread's id as well. */
static int save_timer_slack(pid_t tid, Sealpoint__Scheduling *message, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int rc = sp_proc_read(tid, "timerslack_ns", &text, NULL, err);

	if (rc == 0)
		message->timer_slack_ns = strtoull(text, NULL, 10);
	return rc;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__Scheduling message = SEALPOINT__SCHEDULING__INIT;
	uint8_t affinity[AFFINITY_SIZE];
	pid_t tid = saver->thread->tid;
	int rc;

	rc = save_attributes(tid, &message, err);
	if (rc == 0)
		rc = save_affinity(tid, affinity, &message, err);
	if (rc == 0)
		rc = save_io_priority(tid, &message, err);
	if (rc == 0)
		rc = save_timer_slack(tid, &message, err);
	if (rc == 0)
		sp_blob_pack(body, &message.base);
	return rc;
}

/* --- rebuilding --- */

static int set_affinity(pid_t tid, const Sealpoint__Scheduling *message, struct sp_error *err)
{
	uint8_t all[AFFINITY_SIZE];
	const uint8_t *bits = message->affinity.data;
	size_t size = message->affinity.len;

	if (!size) {
		bits = memset(all, 0xff, sizeof(all));
		size = sizeof(all);
	}
	if (syscall(SYS_sched_setaffinity, tid, size, bits) < 0)
		return sp_fail_errno(err, errno, "cannot set its processor affinity");
	return 0;
}

static int set_attributes(pid_t tid, const Sealpoint__Scheduling *message, struct sp_error *err)
{
	struct sched_attr attr = {
	        .size = sizeof(attr),
	        .sched_policy = message->policy,
	        .sched_flags = message->flags,
	        .sched_nice = message->nice,
	        .sched_priority = message->priority,
	        .sched_runtime = message->runtime,
	        .sched_deadline = message->deadline,
	        .sched_period = message->period,
	};

	if (message->utilization) {
		attr.sched_flags |= SCHED_FLAG_UTIL_CLAMP;
		attr.sched_util_min = message->utilization_min;
		attr.sched_util_max = message->utilization_max;
	}
	/* Policies other than the ordinary ones do not set it. */
	if (setpriority(PRIO_PROCESS, (id_t)tid, message->nice) < 0 ||
	    syscall(SYS_sched_setattr, tid, &attr, 0) < 0)
		return sp_fail_errno(err, errno,
		                     "cannot set scheduling policy %u, priority %u, nice %d",
		                     message->policy, message->priority, message->nice);
	return 0;
}

static int set_timer_slack(pid_t tid, const Sealpoint__Scheduling *message, struct sp_error *err)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)message->timer_slack_ns);
	return sp_proc_write(tid, "timerslack_ns", text, err);
}

/* Affinity first: a task with a deadline may not choose its processors any more. */
static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Scheduling *message =
	        sp_blob_unpack(body, &sealpoint__scheduling__descriptor, err);
	pid_t tid = (pid_t)builder->thread->tid;
	int rc;

	if (!message)
		return -EBADMSG;
	rc = set_affinity(tid, message, err);
	if (rc == 0)
		rc = set_timer_slack(tid, message, err);
	if (rc == 0)
		rc = set_attributes(tid, message, err);
	if (rc == 0 && syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, tid, message->io_priority) < 0)
		return sp_fail_errno(err, errno, "cannot set its I/O priority");
	return rc;
}

/* --- before and after --- */

static int check_processors(const Sealpoint__Scheduling *message, struct sp_error *err)
{
	unsigned processors = (unsigned)sysconf(_SC_NPROCESSORS_CONF);

	if (!message->affinity.len)
		return 0;
	for (unsigned i = 0; i < processors; i++)
		if (has_bit(message->affinity.data, message->affinity.len, i))
			return 0;
	return sp_fail(err, EINVAL,
	               "this machine has none of the processors that it is bound to (there are "
	               "%u); free it with taskset(1) before the dump",
	               processors);
}

static bool needs_priority(const Sealpoint__Scheduling *message)
{
	return message->policy == SCHED_FIFO || message->policy == SCHED_RR ||
	       message->policy == SCHED_DEADLINE || message->nice < getpriority(PRIO_PROCESS, 0) ||
	       IOPRIO_PRIO_CLASS(message->io_priority) == IOPRIO_CLASS_RT;
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Scheduling *message =
	        sp_blob_unpack(body, &sealpoint__scheduling__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (needs_priority(message) && !sp_capability_have(CAP_SYS_NICE))
		return sp_fail(err, EPERM,
		               "it runs with a priority (policy %u, nice %d) that sealpoint may "
		               "not give; run sealpoint with CAP_SYS_NICE",
		               message->policy, message->nice);
	return check_processors(message, err);
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	static const char *const policies[] = {"other", "fifo", "rr",       "batch",
	                                       "iso",   "idle", "deadline", "ext"};
	sp_cleanup_message Sealpoint__Scheduling *message =
	        sp_blob_unpack(body, &sealpoint__scheduling__descriptor, NULL);

	if (!message)
		return;
	snprintf(text, size, "%s, nice %d, priority %u%s",
	         message->policy < SP_COUNT_OF(policies) ? policies[message->policy] : "?",
	         message->nice, message->priority,
	         message->affinity.len ? ", bound to processors" : "");
}

const struct sp_facet sp_facet_scheduling = {
        .name = "scheduling",
        .title = "scheduling",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_THREADS,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
