/*
 * What a restore needs of this machine, looked at before anything is made: the processor, the
 * process ids, and what each kind and facet knows it cannot give back here.
 */
#include "engine/restore_check.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "engine/processor.h"
#include "image/vma_numbers.h"
#include "kinds/kind.h"
#include "proc/capability.h"
#include "proc/stat.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define COLLECTED_NS 5000000000ULL
#define COLLECTED_PAUSE_NS 2000000
#define IN_NEW_NAMESPACE \
	"restore in a new pid namespace (unshare --pid --fork --mount-proc sealpoint restore ...)"

/*
 * Who has this id, if anybody. A process that has ended keeps its id until its parent collects its
 * status. Some take their time for that, and are given it, so that a restore can follow a dump at
 * once.
 */
static bool find_holder(pid_t tid, struct sp_stat *holder)
{
	uint64_t deadline = sp_now_ns() + COLLECTED_NS;

	while (!sp_stat_read(tid, tid, holder, NULL)) {
		if (!sp_stat_has_ended(holder) || sp_now_ns() >= deadline ||
		    sp_interrupt_check(NULL))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = COLLECTED_PAUSE_NS}, NULL);
	}
	return false;
}

static int check_pid_free(pid_t pid, uint32_t tid, struct sp_error *err)
{
	const char *what = (pid_t)tid == pid ? "process" : "thread";
	struct sp_stat holder;

	if (!find_holder((pid_t)tid, &holder))
		return 0;
	if (sp_interrupt_check(err))
		return -EINTR;
	if (sp_stat_has_ended(&holder))
		return sp_fail(
		        err, EEXIST,
		        "%s id %u is still that of \"%s\", which has ended, but whose parent, "
		        "%s, does not collect its status; end that parent, or " IN_NEW_NAMESPACE,
		        what, tid, holder.comm, sp_process_name(holder.ppid).text);
	return sp_fail(err, EEXIST,
	               "%s id %u is taken by \"%s\": end that process, or " IN_NEW_NAMESPACE, what,
	               tid, holder.comm);
}

static int check_pids(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	for (size_t i = 0; i < checkpoint->threads.count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(&checkpoint->threads, i);
		int rc = check_pid_free((pid_t)thread->pid, thread->tid, err);

		if (rc)
			return rc;
	}
	for (size_t i = 0; i < checkpoint->processes.count; i++) {
		const Sealpoint__Process *process = sp_array_pointer(&checkpoint->processes, i);
		int rc =
		        process->ended ? check_pid_free((pid_t)process->pid, process->pid, err) : 0;

		if (rc)
			return rc;
	}
	return 0;
}

static int check_facets(const struct sp_checkpoint *checkpoint, Sealpoint__Facet *const *facets,
                        size_t count, uint32_t tid, struct sp_error *err)
{
	for (size_t i = 0; i < count; i++) {
		const struct sp_facet *facet = sp_facet_by_name(facets[i]->name);
		int rc;

		if (!facet)
			return sp_fail(err, ENOTSUP,
			               "thread %u has a \"%s\", which this version of sealpoint "
			               "does not know; use the version that saved it (%s)",
			               tid, facets[i]->name, checkpoint->manifest->tool_version);
		rc = facet->check ? facet->check(facets[i]->body, err) : 0;
		if (rc)
			return sp_error_context(
			        err, "cannot restore the %s of %s %u", facet->title,
			        facet->scope == SP_FACET_PROCESS ? "process" : "thread", tid);
	}
	return 0;
}

static int check_all_facets(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < checkpoint->processes.count && !rc; i++) {
		const Sealpoint__Process *process = sp_array_pointer(&checkpoint->processes, i);

		rc = check_facets(checkpoint, process->facets, process->n_facets, process->pid,
		                  err);
	}
	for (size_t i = 0; i < checkpoint->threads.count && !rc; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(&checkpoint->threads, i);

		rc = check_facets(checkpoint, thread->facets, thread->n_facets, thread->tid, err);
	}
	return rc;
}

/*
 * Whether what a process has mapped fits into sealpoint's own hard limits, under which it is made.
 */
static int check_limits(const struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                        struct sp_error *err)
{
	struct {
		__rlimit_resource_t resource;
		const char *name;
		uint64_t needed;
	} limits[] = {{RLIMIT_AS, "RLIMIT_AS", 0}, {RLIMIT_DATA, "RLIMIT_DATA", 0}};

	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);

		if (vma->pid != process->pid)
			continue;
		limits[0].needed += vma->end - vma->start;
		if (vma->prot & PROT_WRITE && !(vma->flags & (SP_VMA_SHARED | SP_VMA_GROWS_DOWN)))
			limits[1].needed += vma->end - vma->start;
	}
	for (size_t i = 0; i < SP_COUNT_OF(limits); i++) {
		struct rlimit own;

		if (!getrlimit(limits[i].resource, &own) && limits[i].needed > own.rlim_max)
			return sp_fail(err, ENOMEM,
			               "the program has %llu KiB of memory, and sealpoint's own "
			               "hard limit %s is %llu KiB; raise that (ulimit -H, "
			               "prlimit(1))",
			               (unsigned long long)limits[i].needed >> 10, limits[i].name,
			               (unsigned long long)own.rlim_max >> 10);
	}
	return 0;
}

static int check_all_limits(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < checkpoint->processes.count && !rc; i++)
		rc = check_limits(checkpoint, sp_array_pointer(&checkpoint->processes, i), err);
	return rc;
}

int sp_restore_check(const struct sp_checkpoint *checkpoint, struct sp_log *log,
                     struct sp_error *err)
{
	int rc = sp_capability_need_checkpoint("choose process ids", err);

	if (!rc)
		rc = sp_processor_check(checkpoint->manifest, err);
	if (!rc)
		rc = check_pids(checkpoint, err);
	if (!rc)
		rc = check_all_limits(checkpoint, err);
	if (!rc)
		rc = check_all_facets(checkpoint, err);
	if (!rc)
		sp_processor_warn(checkpoint->manifest, log);
	return rc;
}
