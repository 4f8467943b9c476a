/*
 * The three timers of setitimer(2): real time, user time, and processor time. What was left is set
 * again; one that has expired and not yet signalled has a microsecond left and signals when it is
 * set.
 */
#include "base/clock.h"
#include "kinds/pending_signals.h"
#include "kinds/registry.h"

#include "timers.pb-c.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { TIMERS = 3 };

static const int signals[TIMERS] = {
        [ITIMER_REAL] = SIGALRM,
        [ITIMER_VIRTUAL] = SIGVTALRM,
        [ITIMER_PROF] = SIGPROF,
};

#define US_PER_S 1000000ULL
#define NS_PER_US 1000ULL

static uint64_t to_us(struct timeval time)
{
	return (uint64_t)time.tv_sec * US_PER_S + (uint64_t)time.tv_usec;
}

static struct timeval from_us(uint64_t us)
{
	return (struct timeval){(time_t)(us / US_PER_S), (suseconds_t)(us % US_PER_S)};
}

/*
 * What is left until the next signal, 0 if none will come. A periodic timer of real time whose
 * signal is still pending is not armed: the kernel does that, to the next multiple of its interval,
 * when the signal is taken. Such a signal is saved with the pending ones, and here the timer gets
 * one interval.
 */
static uint64_t left(unsigned which, const struct itimerval *value)
{
	uint64_t us = to_us(value->it_value);

	return us || which != ITIMER_REAL ? us : to_us(value->it_interval);
}

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	uint64_t *read_ns = sp_alloc(sizeof(*read_ns));
	remote_addr room = sp_batch_room(saver->remote, TIMERS * sizeof(struct itimerval));

	*read_ns = sp_now_ns();
	for (unsigned i = 0; i < TIMERS; i++)
		sp_batch_call(saver->remote, "read the interval timers", SYS_getitimer, i,
		              room + i * sizeof(struct itimerval), 0, 0, 0, 0);
	*saver->asked = (struct sp_asked){.room = room, .notes = read_ns};
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__IntervalTimers message = SEALPOINT__INTERVAL_TIMERS__INIT;
	Sealpoint__IntervalTimer items[TIMERS], *pointers[TIMERS];
	struct itimerval values[TIMERS];
	int rc = sp_batch_read(saver->remote, saver->asked->room, values, sizeof(values), err);

	if (rc < 0)
		return rc;
	message.read_ns = *(uint64_t *)saver->asked->notes;
	message.timers = pointers;
	for (unsigned i = 0; i < TIMERS; i++) {
		Sealpoint__IntervalTimer *item = &items[message.n_timers];

		if (!left(i, &values[i]))
			continue;
		sealpoint__interval_timer__init(item);
		item->which = i;
		item->left_us = left(i, &values[i]);
		item->interval_us = to_us(values[i].it_interval);
		pointers[message.n_timers++] = item;
	}
	if (message.n_timers)
		sp_blob_pack(body, &message.base);
	return 0;
}

static void set_timer(struct sp_remote *remote, const Sealpoint__IntervalTimer *item,
                      uint64_t left_us)
{
	struct itimerval value = {
	        .it_value = from_us(left_us),
	        .it_interval = from_us(item->interval_us),
	};

	sp_batch_call(remote, "set an interval timer", SYS_setitimer, item->which,
	              sp_batch_put(remote, &value, sizeof(value)), 0, 0, 0, 0);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__IntervalTimers *message =
	        sp_blob_unpack(body, &sealpoint__interval_timers__descriptor, err);
	sp_cleanup(sp_pending_release) struct sp_pending pending = {};
	int rc;

	if (!message)
		return -EBADMSG;
	if (message->n_timers > TIMERS)
		return sp_fail_damaged(err, "%zu interval timers", message->n_timers);
	rc = sp_pending_collect(builder, &pending, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < message->n_timers; i++) {
		const Sealpoint__IntervalTimer *item = message->timers[i];

		if (item->which >= TIMERS)
			return sp_fail_damaged(err, "an impossible interval timer %u", item->which);
		set_timer(builder->remote, item,
		          sp_pending_timer_left(&pending, signals[item->which], -1,
		                                message->read_ns, item->left_us * NS_PER_US,
		                                item->interval_us * NS_PER_US) /
		                  NS_PER_US);
	}
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	static const char *const names[TIMERS] = {"real", "virtual", "profiling"};
	sp_cleanup_message Sealpoint__IntervalTimers *message =
	        sp_blob_unpack(body, &sealpoint__interval_timers__descriptor, NULL);
	size_t used = 0;

	for (size_t i = 0; message && i < message->n_timers && used < size; i++) {
		const Sealpoint__IntervalTimer *item = message->timers[i];

		used += (size_t)snprintf(text + used, size - used, "%s%s in %.3f s", i ? ", " : "",
		                         item->which < TIMERS ? names[item->which] : "?",
		                         (double)item->left_us / US_PER_S);
	}
}

const struct sp_facet sp_facet_interval_timers = {
        .name = "interval_timers",
        .title = "interval timers",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
};
