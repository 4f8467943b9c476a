/* All processes of a tree, watched at the same moments: see watch.h. */
#include "engine/watch.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "engine/dump_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Between looks whether somebody wants us to end. */
#define NAP_MS 100
/* A process whose memory is gone is about to end, or has just executed another program. */
#define ENDING_MS 1000

static const uint64_t round_lengths[] = {10 * SP_NS_PER_MS, 100 * SP_NS_PER_MS, SP_NS_PER_S,
                                         10 * SP_NS_PER_S};

_Static_assert(SP_COUNT_OF(round_lengths) < SP_SAMPLE_ROUNDS, "and one for the interval");

/* --- who there is --- */

static bool is_known(const struct sp_watch *watch, pid_t pid)
{
	for (size_t i = 0; i < watch->samplers.count; i++)
		if (sp_watch_sampler(watch, i)->pid == pid)
			return true;
	return false;
}

static int add(struct sp_watch *watch, pid_t pid, struct sp_error *err)
{
	struct sp_sampler *sampler = sp_alloc(sizeof(*sampler));
	int rc = sp_sampler_open(sampler, pid, err);

	if (rc == 0) {
		sp_array_append(&watch->samplers, &sampler);
		return 0;
	}
	sp_sampler_close(sampler);
	free(sampler);
	return rc;
}

static void drop(struct sp_watch *watch, size_t index)
{
	struct sp_sampler **samplers = watch->samplers.items;

	sp_sampler_close(samplers[index]);
	free(samplers[index]);
	memmove(samplers + index, samplers + index + 1,
	        (--watch->samplers.count - index) * sizeof(*samplers));
}

/* One that is gone by then is none; one that cannot be watched, as a traced one, is counted, and tried again. */
static void add_descendants(struct sp_watch *watch)
{
	sp_cleanup_array struct sp_array pids = SP_ARRAY_OF(pid_t);
	struct tree tree;

	sp_tree_init(&tree, sp_watch_sampler(watch, 0)->pid);
	sp_tree_list(&tree);
	sp_tree_pids(&tree, &pids);
	sp_tree_release(&tree);
	watch->unwatched = 0;
	for (size_t i = 1; i < pids.count; i++) {
		pid_t pid = *(pid_t *)sp_array_at(&pids, i);
		struct sp_error failure = {0};
		int rc = is_known(watch, pid) ? -EEXIST : add(watch, pid, &failure);

		if (rc == 0)
			watch->begun++;
		else if (rc != -EEXIST && !sp_tree_has_lost(pid, rc))
			watch->unwatched++;
	}
}

int sp_watch_open(struct sp_watch *watch, pid_t root, struct sp_error *err)
{
	int rc;

	*watch = (struct sp_watch){.samplers = SP_ARRAY_OF(struct sp_sampler *)};
	rc = add(watch, root, err);
	if (rc == 0)
		add_descendants(watch);
	return rc;
}

void sp_watch_close(struct sp_watch *watch)
{
	while (watch->samplers.count)
		drop(watch, watch->samplers.count - 1);
	sp_array_release(&watch->samplers);
}

/* --- an interval --- */

/* Returns 1 when the time has come, 0 if the root has ended. */
static int wait_until(const struct sp_watch *watch, uint64_t when_ns, struct sp_error *err)
{
	const struct sp_sampler *root = sp_watch_sampler(watch, 0);

	for (;;) {
		uint64_t now = sp_now_ns();
		uint64_t left_ms =
		        when_ns > now ? (when_ns - now + SP_NS_PER_MS - 1) / SP_NS_PER_MS : 0;
		int rc = sp_interrupt_check(err);

		if (rc < 0)
			return rc;
		if (sp_sampler_ends_within(root, left_ms < NAP_MS ? (int)left_ms : NAP_MS))
			return 0;
		if (left_ms <= NAP_MS && sp_now_ns() >= when_ns)
			return 1;
	}
}

static void add_round(struct sp_sample *sum, uint64_t length_ns, uint64_t pages)
{
	sum->rounds[sum->round_count++] = (struct sp_sample_round){length_ns, pages};
}

/* What became of one that cannot be looked at is found out at the end of the interval. */
static uint64_t look_at_all(struct sp_watch *watch)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < watch->samplers.count; i++) {
		struct sp_error later = {0};
		uint64_t written;

		sp_sampler_look(sp_watch_sampler(watch, i), &written, &later);
		pages += written;
	}
	return pages;
}

static bool is_held(const struct sp_watch *watch)
{
	for (size_t i = 0; i < watch->samplers.count; i++)
		if (sp_watch_sampler(watch, i)->sample.held)
			return true;
	return false;
}

/*
 * Looks within the interval, at those lengths that it is not too late for: of a large process the
 * taking itself may last longer.
 */
static int measure_rounds(struct sp_watch *watch, uint64_t interval_ns, struct sp_error *err)
{
	uint64_t begun_ns = sp_watch_sampler(watch, 0)->begun_ns;

	for (size_t i = 0; i < SP_COUNT_OF(round_lengths); i++) {
		uint64_t length = round_lengths[i], looked_ns;
		int rc;

		if (length >= interval_ns || sp_now_ns() > begun_ns + length * 3 / 2)
			continue;
		rc = wait_until(watch, begun_ns + length, err);
		if (rc != 1)
			return rc;
		looked_ns = sp_now_ns();
		add_round(&watch->sum, looked_ns - begun_ns, look_at_all(watch));
	}
	return 1;
}

/* Returns as sp_watch_next(). A descendant that cannot be asked any more has ended, or is about to. */
static int take_all(struct sp_watch *watch, struct sp_error *err)
{
	struct sp_sampler *root = sp_watch_sampler(watch, 0);
	int rc = sp_sampler_take(root, err);

	if (rc < 0)
		return sp_sampler_ends_within(root, ENDING_MS) ? 0 : rc;
	for (size_t i = watch->samplers.count; i-- > 1;) {
		struct sp_sampler *sampler = sp_watch_sampler(watch, i);
		struct sp_error failure = {0};

		if (sp_sampler_take(sampler, &failure) == 0 && !sp_sampler_ends_within(sampler, 0))
			continue;
		drop(watch, i);
		watch->ended++;
	}
	return !sp_sampler_ends_within(root, 0);
}

static void add_sample(struct sp_sample *sum, const struct sp_sample *sample)
{
	sum->events |= sample->events;
	sum->held |= sample->held;
	sum->dirtied += sample->dirtied;
	sum->written += sample->written;
	sum->resident_bytes += sample->resident_bytes;
	sum->tracked_bytes += sample->tracked_bytes;
	sum->untracked_bytes += sample->untracked_bytes;
	sum->appeared += sample->appeared;
	sum->vanished += sample->vanished;
}

static void sum_up(struct sp_watch *watch)
{
	const struct sp_sample *root = &sp_watch_sampler(watch, 0)->sample;
	struct sp_sample *sum = &watch->sum;

	sum->time_ns = root->time_ns;
	sum->interval_ns = root->interval_ns;
	sum->generation = root->generation;
	for (size_t i = 0; i < watch->samplers.count; i++)
		add_sample(sum, &sp_watch_sampler(watch, i)->sample);
	if (!sum->held)
		add_round(sum, sum->interval_ns, sum->dirtied);
	else
		sum->round_count = 0;
}

static void begin_interval(struct sp_watch *watch)
{
	for (size_t i = 0; i < watch->samplers.count; i++) {
		struct sp_sample *sample = &sp_watch_sampler(watch, i)->sample;

		sample->events = 0;
		sample->appeared = sample->vanished = 0;
	}
	watch->sum = (struct sp_sample){0};
	watch->begun = watch->ended = 0;
}

int sp_watch_next(struct sp_watch *watch, uint64_t interval_ns, struct sp_error *err)
{
	uint64_t end_ns = sp_watch_sampler(watch, 0)->begun_ns + interval_ns;
	int rc = 1;

	begin_interval(watch);
	if (!is_held(watch))
		rc = measure_rounds(watch, interval_ns, err);
	if (rc == 1)
		rc = wait_until(watch, end_ns, err);
	if (rc == 1)
		rc = take_all(watch, err);
	if (rc != 1)
		return rc;
	add_descendants(watch);
	sum_up(watch);
	return 1;
}
