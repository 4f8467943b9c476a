/*
 * Seccomp: strict mode, and the filters of a thread, read back from the kernel
 * (PTRACE_SECCOMP_GET_FILTER).
 *
 * They are installed before credentials are given up, because a program may have lost since then
 * what it needed to install them; the tracer suspends them meanwhile (PTRACE_O_SUSPEND_SECCOMP).
 *
 * Filters that all threads begin with are installed by the leader for all of them at once, before
 * any thread installs its others: the kernel knows a shared filter from an equal one when a program
 * asks for more filters in all its threads (SECCOMP_FILTER_FLAG_TSYNC). That is a facet of the
 * process, which finds the filters in those of the threads.
 *
 * SECCOMP_FILTER_FLAG_SPEC_ALLOW cannot be read back. It is always given, and only keeps the filter
 * from changing how the processor may speculate, which is a setting of the thread of its own
 * (thread_settings.c).
 */
#include "kinds/registry.h"

#include "proc/status.h"

#include "credentials.pb-c.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/syscall.h>

enum { FILTERS_MAX = 4096 }; /* the kernel's bound on instructions of a chain allows fewer */

/* --- saving --- */

/* Raw: the C library's header and the kernel's cannot be included together. */
static long ptrace_seccomp(long request, pid_t tid, uint64_t address, void *data)
{
	return syscall(SYS_ptrace, request, tid, address, data);
}

static bool asks_a_listener(const struct sock_filter *program, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (program[i].code == (BPF_RET | BPF_K) &&
		    (program[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF)
			return true;
	return false;
}

/* Adds filter `index`, counted from the oldest. Returns 0, 1 behind the last one, or an error. */
static int read_filter(pid_t tid, uint64_t index, Sealpoint__SeccompFilter *filter,
                       struct sp_error *err)
{
	struct seccomp_metadata metadata = {.filter_off = index};
	long length = ptrace_seccomp(PTRACE_SECCOMP_GET_FILTER, tid, index, NULL);

	if (length < 0 && errno == ENOENT)
		return 1;
	if (length < 0 && errno == EACCES)
		return sp_fail(err, EACCES,
		               "its seccomp filters can be read with CAP_SYS_ADMIN only, and not "
		               "from inside a seccomp filter; run sealpoint outside of it");
	if (length < 0)
		return sp_fail_errno(err, errno, "cannot read its seccomp filter %llu",
		                     (unsigned long long)index);
	filter->program.len = (size_t)length * sizeof(struct sock_filter);
	filter->program.data = sp_alloc(filter->program.len);
	if (ptrace_seccomp(PTRACE_SECCOMP_GET_FILTER, tid, index, filter->program.data) != length ||
	    ptrace_seccomp(PTRACE_SECCOMP_GET_METADATA, tid, sizeof(metadata), &metadata) < 0)
		return sp_fail_errno(err, errno, "cannot read its seccomp filter %llu",
		                     (unsigned long long)index);
	filter->flags = (uint32_t)metadata.flags;
	if (asks_a_listener((struct sock_filter *)filter->program.data, (size_t)length))
		return sp_fail(err, ENOTSUP,
		               "its seccomp filter %llu hands system calls to another process "
		               "(SECCOMP_RET_USER_NOTIF), which a checkpoint cannot hold; dump it "
		               "outside of that supervisor",
		               (unsigned long long)index);
	return 0;
}

static int read_filters(pid_t tid, Sealpoint__Seccomp *message, struct sp_error *err)
{
	message->filters = sp_alloc_zeroed(FILTERS_MAX, sizeof(*message->filters));
	for (uint64_t i = 0; i < FILTERS_MAX; i++) {
		Sealpoint__SeccompFilter *filter = sp_alloc(sizeof(*filter));
		int rc;

		sealpoint__seccomp_filter__init(filter);
		message->filters[message->n_filters++] = filter;
		rc = read_filter(tid, i, filter, err);
		if (rc == 1) {
			sealpoint__seccomp_filter__free_unpacked(filter, NULL);
			message->n_filters--;
			return 0;
		}
		if (rc < 0)
			return rc;
	}
	return sp_fail(err, E2BIG, "it has over %d seccomp filters", FILTERS_MAX);
}

static bool has_filters(const char *status)
{
	uint64_t mode;

	return sp_status_number(status, "Seccomp", 10, &mode, NULL) == 0 &&
	       mode == SECCOMP_MODE_FILTER;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Seccomp *message = sp_alloc(sizeof(*message));
	int rc = 0;

	sealpoint__seccomp__init(message);
	message->strict = sp_status_is(saver->status, "Seccomp", "1");
	if (has_filters(saver->status))
		rc = read_filters(saver->thread->tid, message, err);
	if (rc < 0 || (!message->strict && !message->n_filters))
		return rc;
	sp_blob_pack(body, &message->base);
	return 0;
}

/* --- rebuilding --- */

static Sealpoint__Seccomp *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Seccomp *message =
	        sp_blob_unpack(body, &sealpoint__seccomp__descriptor, err);

	for (size_t i = 0; message && i < message->n_filters; i++) {
		size_t size = message->filters[i]->program.len;

		if (!size || size % sizeof(struct sock_filter) ||
		    size / sizeof(struct sock_filter) > BPF_MAXINSNS) {
			sp_fail_damaged(err, "seccomp filter %zu of %zu bytes", i, size);
			return NULL;
		}
	}
	return sp_steal_ptr(&message);
}

static bool equal(const Sealpoint__SeccompFilter *a, const Sealpoint__SeccompFilter *b)
{
	return a->flags == b->flags && a->program.len == b->program.len &&
	       !memcmp(a->program.data, b->program.data, a->program.len);
}

static ProtobufCBinaryData facet_of(const Sealpoint__Thread *thread)
{
	for (size_t i = 0; i < thread->n_facets; i++)
		if (!strcmp(thread->facets[i]->name, sp_facet_seccomp.name))
			return thread->facets[i]->body;
	return (ProtobufCBinaryData){};
}

/* How many filters from the first on are the same in all threads of the process. */
static int count_shared(const struct sp_facet_builder *builder, const Sealpoint__Seccomp *own,
                        size_t *shared, struct sp_error *err)
{
	const struct sp_array *threads = &builder->checkpoint->threads;

	*shared = own->n_filters;
	for (size_t i = 0; i < threads->count && *shared; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(threads, i);
		sp_cleanup_message Sealpoint__Seccomp *other = NULL;
		size_t same = 0;

		if (thread->pid != builder->process->pid)
			continue;
		other = unpack(facet_of(thread), err);
		if (!other)
			return -EBADMSG;
		while (same < *shared && same < other->n_filters &&
		       equal(own->filters[same], other->filters[same]))
			same++;
		*shared = same;
	}
	return 0;
}

static int install(struct sp_remote *remote, const Sealpoint__SeccompFilter *filter, uint64_t flags,
                   struct sp_error *err)
{
	struct {
		uint16_t length;
		remote_addr filter;
	} program = {.length = (uint16_t)(filter->program.len / sizeof(struct sock_filter))};
	int64_t result;
	int rc = sp_batch_flush(remote, err);

	if (rc)
		return rc;
	program.filter = sp_batch_put(remote, filter->program.data, filter->program.len);
	rc = sp_remote_call(remote, &result, err, "install a seccomp filter", SYS_seccomp,
	                    SECCOMP_SET_MODE_FILTER,
	                    flags | filter->flags | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
	                    sp_batch_put(remote, &program, sizeof(program)), 0, 0, 0);
	if (rc == 0 && result > 0)
		return sp_fail(err, EBUSY, "thread %lld does not take the seccomp filter over",
		               (long long)result);
	return rc;
}

/*
 * The process's facet says only that there may be shared filters: it is saved when the leader has
 * any.
 */
static int save_shared(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__SharedSeccomp message = SEALPOINT__SHARED_SECCOMP__INIT;

	if (has_filters(saver->status))
		sp_blob_pack(body, &message.base);
	return 0;
}

static int rebuild_shared(struct sp_facet_builder *builder, ProtobufCBinaryData body,
                          struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Seccomp *own = unpack(facet_of(builder->thread), err);
	size_t shared;
	int rc;

	if (!own)
		return -EBADMSG;
	rc = count_shared(builder, own, &shared, err);
	for (size_t i = 0; rc == 0 && i < shared; i++)
		rc = install(builder->remote, own->filters[i], SECCOMP_FILTER_FLAG_TSYNC, err);
	return rc;
}

/* How many filters thread `tid` has beyond those of sealpoint itself, which a stub inherits. */
static int count_installed(pid_t pid, pid_t tid, size_t *installed, struct sp_error *err)
{
	sp_cleanup_free char *status = NULL, *own = NULL;
	uint64_t filters, own_filters;
	int rc = sp_status_read(pid, tid, &status, err);

	if (rc == 0)
		rc = sp_status_read(getpid(), getpid(), &own, err);
	if (rc == 0)
		rc = sp_status_number(status, "Seccomp_filters", 10, &filters, err);
	if (rc == 0)
		rc = sp_status_number(own, "Seccomp_filters", 10, &own_filters, err);
	if (rc == 0)
		*installed = filters - own_filters;
	return rc;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Seccomp *message = unpack(body, err);
	size_t installed = 0;
	int rc;

	if (!message)
		return -EBADMSG;
	if (message->strict)
		return sp_remote_call(builder->remote, NULL, err, "set the strict seccomp mode",
		                      SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0, 0, 0, 0);
	rc = count_installed((pid_t)builder->process->pid, (pid_t)builder->thread->tid, &installed,
	                     err);
	for (size_t i = installed; rc == 0 && i < message->n_filters; i++)
		rc = install(builder->remote, message->filters[i], 0, err);
	return rc;
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Seccomp *message = unpack(body, err);

	return message ? 0 : -EBADMSG;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Seccomp *message = unpack(body, NULL);

	if (message && message->strict)
		snprintf(text, size, "strict");
	else if (message)
		snprintf(text, size, "%zu filters", message->n_filters);
}

const struct sp_facet sp_facet_seccomp = {
        .name = "seccomp",
        .title = "seccomp filters",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_PRIVILEGES,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};

const struct sp_facet sp_facet_shared_seccomp = {
        .name = "shared_seccomp",
        .title = "shared seccomp filters",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .save = save_shared,
        .rebuild = rebuild_shared,
};
