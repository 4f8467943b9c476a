/* The pool of workers: what it does while it is paused. */
#include "image/pool.h"

#include "base/clock.h"
#include "base/error.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#define PLACES 4
#define RESERVE 2

struct count {
	sem_t *gate; /* lets jobs end one after the other, by one worker; or NULL */
	atomic_uint run;
	unsigned completed;
};

static int run(void *context, unsigned worker, void *job, struct sp_error *err)
{
	struct count *count = context;

	if (count->gate)
		sem_wait(count->gate);
	count->run++;
	return 0;
}

static int complete(void *context, void *job, struct sp_error *err)
{
	struct count *count = context;

	count->completed++;
	return 0;
}

static struct sp_pool *start(struct count *count)
{
	const struct sp_pool_work work = {
	        .context = count,
	        .job_size = 1,
	        .places = PLACES + RESERVE,
	        .reserve = RESERVE,
	        .run = run,
	        .complete = complete,
	};
	struct sp_pool *pool;

	assert_int_equal(sp_pool_start(&pool, &work, count->gate ? 1 : 2, NULL), 0);
	sp_pool_pause(pool, SP_NS_PER_S);
	return pool;
}

static void submit(struct sp_pool *pool, unsigned jobs)
{
	for (unsigned i = 0; i < jobs; i++) {
		sp_pool_claim(pool);
		sp_pool_submit(pool);
	}
}

/* They would have run by the time of the second pause, which waits for those that are running. */
static void paused_pool_begins_nothing(void **state)
{
	struct count count = {0};
	struct sp_pool *pool = start(&count);

	submit(pool, PLACES + RESERVE);
	sp_pool_pause(pool, SP_NS_PER_S);
	assert_int_equal(count.run, 0);
	sp_pool_resume(pool);
	assert_int_equal(sp_pool_finish(pool, NULL), 0);
	assert_int_equal(count.completed, PLACES + RESERVE);
}

static void pause_ends_when_somebody_waits(void **state)
{
	struct count count = {0};
	struct sp_pool *pool = start(&count);

	submit(pool, PLACES + RESERVE + 1);
	assert_true(count.run > 0);
	assert_int_equal(sp_pool_finish(pool, NULL), 0);
	assert_int_equal(count.completed, PLACES + RESERVE + 1);
}

/* Of two jobs that find the ring full, each waits for the end of one job, and not of the reserve's. */
static void reserve_stays_open_until_the_pause_ends(void **state)
{
	struct count count = {0};
	struct sp_pool *pool;
	sem_t gate;

	assert_int_equal(sem_init(&gate, 0, 2), 0);
	count.gate = &gate;
	pool = start(&count);
	submit(pool, PLACES + RESERVE + 2);
	assert_int_equal(count.run, 2);
	for (unsigned i = 0; i < PLACES + RESERVE; i++)
		sem_post(&gate);
	assert_int_equal(sp_pool_finish(pool, NULL), 0);
	assert_int_equal(count.completed, PLACES + RESERVE + 2);
	sem_destroy(&gate);
}

static void paused_pool_finishes_its_jobs(void **state)
{
	struct count count = {0};
	struct sp_pool *pool = start(&count);

	submit(pool, PLACES);
	assert_int_equal(sp_pool_finish(pool, NULL), 0);
	assert_int_equal(count.completed, PLACES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(paused_pool_begins_nothing),
	        cmocka_unit_test(pause_ends_when_somebody_waits),
	        cmocka_unit_test(reserve_stays_open_until_the_pause_ends),
	        cmocka_unit_test(paused_pool_finishes_its_jobs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
