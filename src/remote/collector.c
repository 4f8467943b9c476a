/*
 * The collector: see collector.h. Its lock is the tracer's but during a call that may wait, so that
 * it never looks at a list of threads that changes, nor takes a report that the tracer waits for.
 */
#include "remote/collector.h"

#include "base/array.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>

#define PAUSE_NS 5000000

struct sp_collector {
	const struct sp_process *process;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool dismissed;
};

static void *collect(void *argument)
{
	struct sp_collector *collector = argument;

	pthread_mutex_lock(&collector->lock);
	while (!collector->dismissed) {
		struct timespec until = sp_timespec_from_ns(sp_clock_ns(CLOCK_REALTIME) + PAUSE_NS);

		sp_process_collect_dead(collector->process);
		pthread_cond_timedwait(&collector->changed, &collector->lock, &until);
	}
	pthread_mutex_unlock(&collector->lock);
	return NULL;
}

struct sp_collector *sp_collector_start(const struct sp_process *process)
{
	struct sp_collector *collector = sp_alloc_zeroed(1, sizeof(*collector));

	collector->process = process;
	pthread_mutex_init(&collector->lock, NULL);
	pthread_cond_init(&collector->changed, NULL);
	pthread_mutex_lock(&collector->lock);
	if (!pthread_create(&collector->thread, NULL, collect, collector))
		return collector;
	free(collector);
	return NULL;
}

void sp_collector_begin(struct sp_collector *collector)
{
	if (collector)
		pthread_mutex_unlock(&collector->lock);
}

void sp_collector_end(struct sp_collector *collector)
{
	if (collector)
		pthread_mutex_lock(&collector->lock);
}

void sp_collector_dismiss(struct sp_collector *collector)
{
	if (!collector || collector->dismissed)
		return;
	collector->dismissed = true;
	pthread_cond_signal(&collector->changed);
	pthread_mutex_unlock(&collector->lock);
}

void sp_collector_free(struct sp_collector *collector)
{
	if (!collector)
		return;
	sp_collector_dismiss(collector);
	pthread_join(collector->thread, NULL);
	free(collector);
}
