/*
 * Timers of timer_create(2). The kernel lists them in /proc/PID/timers; the process itself reads
 * what is left.
 *
 * A program knows a timer by its id, so each comes back with its own: since Linux 6.15 a process
 * may ask for ids; before, the kernel counts them up, and a new process gets there by making timers
 * and deleting those between.
 *
 * A clock that measures the thread that made the timer is written down as that thread's clock. What
 * was left is set again as a time from now; overrun counts begin at 0 again.
 */
#include "kinds/pending_signals.h"
#include "kinds/registry.h"
#include "proc/file.h"

#include "base/clock.h"
#include "base/kernel_abi.h"

#include "timers.pb-c.h"

#include <signal.h>
#include <string.h>
#include <time.h>

enum {
	IDS_MAX = 1000000, /* to which ids are counted up without the kernel's help */
	COUNTED_AT_ONCE = 1000,
};

/* --- saving --- */

static int parse_notify(const char *text, uint32_t *notify)
{
	static const struct {
		const char *name;
		uint32_t notify;
	} ways[] = {{"signal", SIGEV_SIGNAL}, {"none", SIGEV_NONE}, {"thread", SIGEV_THREAD}};

	for (size_t i = 0; i < SP_COUNT_OF(ways); i++)
		if (!strcmp(text, ways[i].name)) {
			*notify = ways[i].notify;
			return 0;
		}
	return -EBADMSG;
}

/* Four lines a timer; newer kernels may add lines, which are skipped up to the next "ID:". */
static int parse_timers(const char *text, struct sp_array *timers, struct sp_error *err)
{
	for (const char *at = strstr(text, "ID: "); at; at = strstr(at + 1, "\nID: ")) {
		Sealpoint__PosixTimer *timer = sp_array_push(timers);
		unsigned long long value;
		char way[8], whom[4];

		sealpoint__posix_timer__init(timer);
		if (sscanf(at, " ID: %u signal: %u/%llx notify: %7[a-z]/%3[a-z].%u ClockID: %d",
		           &timer->id, &timer->signal, &value, way, whom, &timer->tid,
		           &timer->clock) != 7 ||
		    parse_notify(way, &timer->notify) < 0)
			return sp_fail(err, EPROTO, "/proc/PID/timers is not as expected: %.100s",
			               at);
		timer->value = value;
		if (!strcmp(whom, "tid"))
			timer->notify |= SIGEV_THREAD_ID;
		else
			timer->tid = 0;
	}
	return 0;
}

/* The clock of a thread, as pthread_getcpuclockid(3) makes it. */
static int32_t thread_clock(uint32_t tid)
{
	return (int32_t)(~tid << 3 | 6);
}

static int name_thread_clock(const struct sp_process *process, Sealpoint__PosixTimer *timer,
                             struct sp_error *err)
{
	if (timer->clock != CLOCK_THREAD_CPUTIME_ID)
		return 0;
	if (timer->tid)
		timer->clock = thread_clock(timer->tid);
	else if (process->threads.count > 1)
		return sp_fail(err, ENOTSUP,
		               "timer %u measures the processor time of one of its threads, and "
		               "the kernel does not tell which one; make such timers with "
		               "pthread_getcpuclockid(3)",
		               timer->id);
	return 0;
}

/* What the kernel lists, by id, and when. */
struct listing {
	uint64_t read_ns;
	size_t count;
	Sealpoint__PosixTimer timers[];
};

/* How many timers are read at once, from one of them on. */
static size_t at_once(const struct listing *listing, size_t first)
{
	size_t left = listing->count - first;

	return left < COUNTED_AT_ONCE ? left : COUNTED_AT_ONCE;
}

static void add_reads(struct sp_remote *remote, const struct listing *listing, size_t first,
                      remote_addr room)
{
	for (size_t i = 0; i < at_once(listing, first); i++)
		sp_batch_call(remote, "read a timer", SYS_timer_gettime,
		              listing->timers[first + i].id, room + i * sizeof(struct itimerspec),
		              0, 0, 0, 0);
}

static int read_values(struct sp_remote *remote, struct listing *listing, size_t first,
                       remote_addr room, struct sp_error *err)
{
	size_t count = at_once(listing, first);
	sp_cleanup_free struct itimerspec *values = sp_alloc_zeroed(count, sizeof(*values));
	int rc = sp_batch_read(remote, room, values, count * sizeof(*values), err);

	for (size_t i = 0; i < count && !rc; i++) {
		Sealpoint__PosixTimer *timer = &listing->timers[first + i];

		timer->left_ns = sp_timespec_to_ns(values[i].it_value);
		timer->interval_ns = sp_timespec_to_ns(values[i].it_interval);
	}
	return rc;
}

static int by_id(const void *a, const void *b)
{
	const Sealpoint__PosixTimer *first = a, *second = b;

	return sp_compare(first->id, second->id);
}

static void pack(struct listing *listing, struct sp_blob *body)
{
	sp_cleanup_free Sealpoint__PosixTimer **pointers =
	        sp_alloc_zeroed(listing->count, sizeof(*pointers));
	Sealpoint__PosixTimers message = SEALPOINT__POSIX_TIMERS__INIT;

	for (size_t i = 0; i < listing->count; i++)
		pointers[i] = &listing->timers[i];
	message.n_timers = listing->count;
	message.timers = pointers;
	message.read_ns = listing->read_ns;
	sp_blob_pack(body, &message.base);
}

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	sp_cleanup_array struct sp_array timers = SP_ARRAY_OF(Sealpoint__PosixTimer);
	sp_cleanup_free char *text = NULL;
	uint64_t read_ns = sp_now_ns();
	struct listing *listing;
	int rc = sp_proc_read(sp_process_living(saver->process), "timers", &text, NULL, err);

	if (rc == 0)
		rc = parse_timers(text, &timers, err);
	if (rc < 0 || !timers.count)
		return rc;
	for (size_t i = 0; i < timers.count; i++) {
		rc = name_thread_clock(saver->process, sp_array_at(&timers, i), err);
		if (rc < 0)
			return rc;
	}
	sp_array_sort(&timers, by_id);
	listing = sp_alloc(sizeof(*listing) + timers.count * timers.item_size);
	listing->read_ns = read_ns;
	listing->count = timers.count;
	memcpy(listing->timers, timers.items, timers.count * timers.item_size);
	saver->asked->notes = listing;
	saver->asked->room =
	        sp_batch_room(saver->remote, at_once(listing, 0) * sizeof(struct itimerspec));
	add_reads(saver->remote, listing, 0, saver->asked->room);
	return 0;
}

/* Of many, the first were asked for with all that others have asked for. */
static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	struct listing *listing = saver->asked->notes;
	remote_addr room = saver->asked->room;
	int rc = 0;

	for (size_t first = 0; listing && first < listing->count && !rc; first += COUNTED_AT_ONCE) {
		if (first) {
			add_reads(saver->remote, listing, first, room);
			rc = sp_batch_run(saver->remote, err);
		}
		if (!rc)
			rc = read_values(saver->remote, listing, first, room, err);
	}
	if (listing && !rc)
		pack(listing, body);
	return rc;
}

/* --- rebuilding --- */

/* Adds the calls that make one timer and set it; returns where the kernel writes the id it gave. */
static remote_addr add_timer(struct sp_remote *remote, const Sealpoint__PosixTimer *timer)
{
	struct sigevent event = {
	        .sigev_value.sival_ptr = (void *)(uintptr_t)timer->value,
	        .sigev_signo = (int)timer->signal,
	        .sigev_notify = (int)timer->notify,
	};
	struct itimerspec value = {
	        .it_value = sp_timespec_from_ns(timer->left_ns),
	        .it_interval = sp_timespec_from_ns(timer->interval_ns),
	};
	remote_addr id = sp_batch_put(remote, &timer->id, sizeof(timer->id));

	event._sigev_un._tid = (pid_t)timer->tid;
	sp_batch_call(remote, "make a timer", SYS_timer_create, (uint64_t)(int64_t)timer->clock,
	              sp_batch_put(remote, &event, sizeof(event)), id, 0, 0, 0);
	sp_batch_call(remote, "set a timer", SYS_timer_settime, timer->id, 0,
	              sp_batch_put(remote, &value, sizeof(value)), 0, 0, 0);
	return id;
}

static int make_with_ids(struct sp_remote *remote, const Sealpoint__PosixTimers *message,
                         struct sp_error *err)
{
	for (size_t i = 0; i < message->n_timers; i++) {
		int rc = sp_batch_make_room(remote, err);

		if (rc < 0)
			return rc;
		add_timer(remote, message->timers[i]);
	}
	sp_batch_call(remote, "leave the choice of timer ids to the kernel", SYS_prctl,
	              PR_TIMER_CREATE_RESTORE_IDS, PR_TIMER_CREATE_RESTORE_IDS_OFF, 0, 0, 0, 0);
	return 0;
}

/*
 * Makes the timers with ids from `first` to below `end`: wanted ones from `*timer` on, others
 * deleted.
 */
static int count_up(struct sp_remote *remote, uint32_t first, uint32_t end,
                    Sealpoint__PosixTimer *const **timer, Sealpoint__PosixTimer *const *last,
                    struct sp_error *err)
{
	remote_addr room, id = 0;
	uint32_t given;
	int rc = sp_batch_flush(remote, err);

	if (rc < 0)
		return rc;
	room = sp_batch_room(remote, sizeof(given));
	for (uint32_t next = first; next < end; next++) {
		if (*timer < last && (**timer)->id == next) {
			id = add_timer(remote, *(*timer)++);
			continue;
		}
		id = room;
		sp_batch_call(remote, "make a timer", SYS_timer_create, CLOCK_MONOTONIC, 0, room, 0,
		              0, 0);
		sp_batch_call(remote, "delete a timer", SYS_timer_delete, next, 0, 0, 0, 0, 0);
	}
	rc = sp_batch_run(remote, err);
	if (rc == 0)
		rc = sp_batch_read(remote, id, &given, sizeof(given), err);
	if (rc == 0 && given != end - 1)
		return sp_fail(err, EAGAIN, "the kernel gave timer id %u instead of %u", given,
		               end - 1);
	return rc;
}

static int make_by_counting(struct sp_remote *remote, const Sealpoint__PosixTimers *message,
                            struct sp_error *err)
{
	Sealpoint__PosixTimer *const *timer = message->timers;
	Sealpoint__PosixTimer *const *last = timer + message->n_timers;
	uint32_t end = last[-1]->id + 1;

	if (end > IDS_MAX)
		return sp_fail(err, ENOTSUP,
		               "it has a timer with id %u: ids over %d need Linux 6.15 or newer",
		               end - 1, IDS_MAX);
	for (uint32_t next = 0; next < end; next += COUNTED_AT_ONCE) {
		uint32_t stop = end - next < COUNTED_AT_ONCE ? end : next + COUNTED_AT_ONCE;
		int rc = count_up(remote, next, stop, &timer, last, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static void bring_up_to_date(const Sealpoint__PosixTimers *message, Sealpoint__PosixTimer *timer,
                             const struct sp_pending *pending)
{
	timer->left_ns =
	        sp_pending_timer_left(pending, (int)timer->signal, (int)timer->id, message->read_ns,
	                              timer->left_ns, timer->interval_ns);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__PosixTimers *message =
	        sp_blob_unpack(body, &sealpoint__posix_timers__descriptor, err);
	sp_cleanup(sp_pending_release) struct sp_pending pending = {};
	int64_t result;
	int rc;

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_timers; i++)
		if (message->timers[i]->id > INT32_MAX ||
		    (i && message->timers[i]->id <= message->timers[i - 1]->id))
			return sp_fail_damaged(err, "timers that are not in order");
	if (!message->n_timers)
		return 0;
	rc = sp_pending_collect(builder, &pending, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < message->n_timers; i++)
		bring_up_to_date(message, message->timers[i], &pending);
	rc = sp_remote_try(builder->remote, &result, err, "choose timer ids", SYS_prctl,
	                   PR_TIMER_CREATE_RESTORE_IDS, PR_TIMER_CREATE_RESTORE_IDS_ON, 0, 0, 0, 0);
	if (rc < 0)
		return rc;
	return result == 0 ? make_with_ids(builder->remote, message, err)
	                   : make_by_counting(builder->remote, message, err);
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__PosixTimers *message =
	        sp_blob_unpack(body, &sealpoint__posix_timers__descriptor, NULL);
	size_t armed = 0;

	if (!message)
		return;
	for (size_t i = 0; i < message->n_timers; i++)
		armed += message->timers[i]->left_ns != 0;
	snprintf(text, size, "%zu, of which %zu armed", message->n_timers, armed);
}

const struct sp_facet sp_facet_posix_timers = {
        .name = "posix_timers",
        .title = "POSIX timers",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
};
