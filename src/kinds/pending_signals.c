/*
 * Signals that have arrived and not been delivered, with all that came with them: those of a thread
 * and those that a process's threads share. They are read from outside (PTRACE_PEEKSIGINFO). The
 * kernel lets nobody forge a signal that says it comes from the kernel or from kill(2), but a task
 * may send itself what it likes: so each is queued again by the task for itself, and stays pending
 * because all signals are blocked until the program runs.
 *
 * A signal of a POSIX timer comes back as such a signal too: the timer does not know of it any
 * more, so that its overrun count is 0.
 *
 * Signals go on arriving while the process stands still, so the queues are read as late as can be:
 * behind the timers, whatever status said before.
 */
#include "kinds/pending_signals.h"

#include "base/clock.h"
#include "kinds/registry.h"
#include "proc/status.h"

#include "signals.pb-c.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

enum { AT_ONCE = 32 };

static int read_queue(pid_t tid, uint32_t flags, struct sp_array *queue, struct sp_error *err)
{
	for (;;) {
		struct __ptrace_peeksiginfo_args args = {
		        .off = queue->count,
		        .flags = flags,
		        .nr = AT_ONCE,
		};
		siginfo_t infos[AT_ONCE];
		long got = ptrace(PTRACE_PEEKSIGINFO, tid, &args, infos);

		if (got < 0)
			return sp_fail_errno(err, errno, "cannot read the queue of signals");
		for (long i = 0; i < got; i++)
			sp_array_append(queue, &infos[i]);
		if (got < AT_ONCE)
			return 0;
	}
}

/*
 * When a user's queue is full the kernel notes only that the signal is pending. Such a one is
 * delivered as if it came from kill(2) by nobody, and so it is queued.
 */
static void add_unqueued(uint64_t pending, struct sp_array *queue)
{
	for (size_t i = 0; i < queue->count; i++) {
		const siginfo_t *info = sp_array_at(queue, i);

		pending &= ~(1ULL << (info->si_signo - 1));
	}
	pending &= ~(1ULL << (SIGKILL - 1) | 1ULL << (SIGSTOP - 1));
	for (int signal = 1; signal <= 64; signal++)
		if (pending >> (signal - 1) & 1)
			sp_array_append(queue, &(siginfo_t){.si_signo = signal});
}

static void pack(const struct sp_array *queue, struct sp_blob *body)
{
	sp_cleanup_free ProtobufCBinaryData *infos = sp_alloc_zeroed(queue->count, sizeof(*infos));
	Sealpoint__PendingSignals message = SEALPOINT__PENDING_SIGNALS__INIT;

	for (size_t i = 0; i < queue->count; i++)
		infos[i] = (ProtobufCBinaryData){sizeof(siginfo_t), sp_array_at(queue, i)};
	message.n_siginfo = queue->count;
	message.siginfo = infos;
	message.read_ns = sp_now_ns();
	sp_blob_pack(body, &message.base);
}

static int save_queue(struct sp_facet_saver *saver, const char *line, uint32_t flags,
                      struct sp_blob *body, struct sp_error *err)
{
	sp_cleanup_array struct sp_array queue = SP_ARRAY_OF(siginfo_t);
	uint64_t pending;
	int rc;

	rc = sp_status_number(saver->status, line, 16, &pending, err);
	if (rc < 0)
		return rc;
	rc = read_queue(saver->thread->tid, flags, &queue, err);
	if (rc < 0)
		return rc;
	add_unqueued(pending, &queue);
	if (queue.count)
		pack(&queue, body);
	return 0;
}

static int save_thread(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	return save_queue(saver, "SigPnd", 0, body, err);
}

static int save_shared(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	return save_queue(saver, "ShdPnd", PTRACE_PEEKSIGINFO_SHARED, body, err);
}

static int queue_one(struct sp_facet_builder *builder, ProtobufCBinaryData saved, bool shared,
                     struct sp_error *err)
{
	uint32_t pid = builder->process->pid, tid = builder->thread->tid;
	struct sp_remote *remote = builder->remote;
	remote_addr place;
	siginfo_t info;
	int rc = 0;

	if (saved.len != sizeof(info))
		return sp_fail_damaged(err, "a pending signal of %zu bytes", saved.len);
	memcpy(&info, saved.data, sizeof(info));
	if (info.si_signo == remote->marker_signal)
		rc = sp_remote_block_signals(remote, err);
	if (rc == 0)
		rc = sp_batch_make_room(remote, err);
	if (rc < 0)
		return rc;
	place = sp_batch_put(remote, &info, sizeof(info));
	if (shared)
		sp_batch_call(remote, "queue a signal", SYS_rt_sigqueueinfo, pid,
		              (uint64_t)info.si_signo, place, 0, 0, 0);
	else
		sp_batch_call(remote, "queue a signal", SYS_rt_tgsigqueueinfo, pid, tid,
		              (uint64_t)info.si_signo, place, 0, 0);
	return 0;
}

static int queue_again(struct sp_facet_builder *builder, ProtobufCBinaryData body, bool shared,
                       struct sp_error *err)
{
	sp_cleanup_message Sealpoint__PendingSignals *message =
	        sp_blob_unpack(body, &sealpoint__pending_signals__descriptor, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_siginfo; i++) {
		int rc = queue_one(builder, message->siginfo[i], shared, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int rebuild_thread(struct sp_facet_builder *builder, ProtobufCBinaryData body,
                          struct sp_error *err)
{
	return queue_again(builder, body, false, err);
}

static int rebuild_shared(struct sp_facet_builder *builder, ProtobufCBinaryData body,
                          struct sp_error *err)
{
	return queue_again(builder, body, true, err);
}

/* --- for timers --- */

static int collect(Sealpoint__Facet *const *facets, size_t count, struct sp_pending *pending,
                   struct sp_error *err)
{
	for (size_t i = 0; i < count; i++) {
		sp_cleanup_message Sealpoint__PendingSignals *message = NULL;

		if (strcmp(facets[i]->name, sp_facet_pending_signals.name) &&
		    strcmp(facets[i]->name, sp_facet_shared_pending_signals.name))
			continue;
		message = sp_blob_unpack(facets[i]->body, &sealpoint__pending_signals__descriptor,
		                         err);
		if (!message)
			return -EBADMSG;
		for (size_t k = 0; k < message->n_siginfo; k++)
			if (message->siginfo[k].len == sizeof(siginfo_t))
				sp_array_append(&pending->infos, message->siginfo[k].data);
		if (message->read_ns > pending->read_ns)
			pending->read_ns = message->read_ns;
	}
	return 0;
}

int sp_pending_collect(const struct sp_facet_builder *builder, struct sp_pending *pending,
                       struct sp_error *err)
{
	const struct sp_array *threads = &builder->checkpoint->threads;
	int rc;

	*pending = (struct sp_pending){.infos = SP_ARRAY_OF(siginfo_t)};
	rc = collect(builder->process->facets, builder->process->n_facets, pending, err);
	for (size_t i = 0; i < threads->count && !rc; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(threads, i);

		if (thread->pid == builder->process->pid)
			rc = collect(thread->facets, thread->n_facets, pending, err);
	}
	return rc;
}

void sp_pending_release(struct sp_pending *pending)
{
	sp_array_release(&pending->infos);
}

static bool is_pending(const struct sp_pending *pending, int signal, int timer)
{
	for (size_t i = 0; i < pending->infos.count; i++) {
		const siginfo_t *info = sp_array_at(&pending->infos, i);

		if (info->si_signo != signal)
			continue;
		if (timer < 0 || (info->si_code == SI_TIMER && info->si_timerid == timer))
			return true;
	}
	return false;
}

/*
 * A signal of the timer alone does not tell: it may be that of an earlier expiration, and the timer
 * may have been set again.
 */
uint64_t sp_pending_timer_left(const struct sp_pending *pending, int signal, int timer,
                               uint64_t read_ns, uint64_t left_ns, uint64_t interval_ns)
{
	if (!left_ns || read_ns > pending->read_ns || left_ns > pending->read_ns - read_ns ||
	    !is_pending(pending, signal, timer))
		return left_ns;
	return interval_ns ? left_ns + interval_ns : 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__PendingSignals *message =
	        sp_blob_unpack(body, &sealpoint__pending_signals__descriptor, NULL);

	if (message)
		snprintf(text, size, "%zu", message->n_siginfo);
}

const struct sp_facet sp_facet_pending_signals = {
        .name = "pending_signals",
        .title = "pending signals",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_THREADS,
        .save = save_thread,
        .rebuild = rebuild_thread,
        .describe = describe,
};

const struct sp_facet sp_facet_shared_pending_signals = {
        .name = "shared_pending_signals",
        .title = "pending signals",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .save = save_shared,
        .rebuild = rebuild_shared,
        .describe = describe,
};
