/* The pool of workers: see pool.h. */
#include "image/pool.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#define WORKERS_MAX 16
/*
 * Jobs waiting for each worker: enough to stay busy while the first of the ring is still running.
 */
#define JOBS_PER_WORKER 3

struct sp_pool {
	struct sp_pool_work work;
	unsigned workers; /* wanted */
	unsigned started;
	unsigned idle;
	pthread_t threads[WORKERS_MAX];

	pthread_mutex_t lock;
	pthread_cond_t submitted; /* there is a job to run, or the end has come */
	pthread_cond_t completed;
	bool ending;
	bool paused;
	bool reserve_open; /* from the pause to its end, also if somebody has to wait in between */
	unsigned running;  /* jobs */
	atomic_bool failed;
	struct sp_error error;

	/* Jobs have numbers; job n lies in place n % places. completed <= next <= end. */
	size_t places;
	size_t first; /* the oldest that is not completed */
	size_t next;  /* the next to run */
	size_t end;   /* the next to be submitted */
	bool *done;
	char *jobs;
};

unsigned sp_pool_default_workers(void)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (online < 1)
		return 1;
	return online > WORKERS_MAX ? WORKERS_MAX : (unsigned)online;
}

static void *place_of(const struct sp_pool *pool, size_t number)
{
	return pool->jobs + (number % pool->places) * pool->work.job_size;
}

void sp_pool_fail(struct sp_pool *pool, const struct sp_error *err)
{
	pthread_mutex_lock(&pool->lock);
	if (!pool->failed)
		pool->error = *err;
	pool->failed = true;
	pthread_mutex_unlock(&pool->lock);
}

bool sp_pool_failed(const struct sp_pool *pool)
{
	return pool->failed;
}

/* Completes what is done at the front of the ring. The lock is held. */
static void complete_in_order(struct sp_pool *pool)
{
	while (pool->first < pool->next && pool->done[pool->first % pool->places]) {
		void *job = place_of(pool, pool->first);

		if (pool->work.complete && !pool->failed &&
		    pool->work.complete(pool->work.context, job, &pool->error) < 0)
			pool->failed = true;
		pool->done[pool->first % pool->places] = false;
		pool->first++;
	}
	pthread_cond_broadcast(&pool->completed);
}

static void run_next(struct sp_pool *pool, unsigned worker)
{
	size_t number = pool->next++;
	struct sp_error err = {0};
	int rc;

	pool->running++;
	pthread_mutex_unlock(&pool->lock);
	rc = sp_interrupt_check(&err);
	if (rc == 0)
		rc = pool->work.run(pool->work.context, worker, place_of(pool, number), &err);
	if (rc < 0)
		sp_pool_fail(pool, &err);
	pthread_mutex_lock(&pool->lock);
	pool->running--;
	pool->done[number % pool->places] = true;
	complete_in_order(pool);
}

struct worker_start {
	struct sp_pool *pool;
	unsigned worker;
};

static void *worker_main(void *argument)
{
	struct worker_start start = *(struct worker_start *)argument;
	struct sp_pool *pool = start.pool;

	free(argument);
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		if (pool->next < pool->end && (!pool->paused || pool->ending)) {
			run_next(pool, start.worker);
			continue;
		}
		if (pool->ending)
			break;
		pool->idle++;
		pthread_cond_wait(&pool->submitted, &pool->lock);
		pool->idle--;
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Starts one more worker; signals stay the business of the threads that were there before. */
static int start_worker(struct sp_pool *pool)
{
	struct worker_start *start = sp_alloc(sizeof(*start));
	sigset_t all, before;
	int code;

	*start = (struct worker_start){pool, pool->started};
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&pool->threads[pool->started], NULL, worker_main, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code != 0) {
		free(start);
		return -code;
	}
	pool->started++;
	return 0;
}

static void pool_free(struct sp_pool *pool)
{
	pthread_cond_destroy(&pool->submitted);
	pthread_cond_destroy(&pool->completed);
	pthread_mutex_destroy(&pool->lock);
	free(pool->done);
	free(pool->jobs);
	free(pool);
}

int sp_pool_start(struct sp_pool **pool, const struct sp_pool_work *work, unsigned workers,
                  struct sp_error *err)
{
	struct sp_pool *started = sp_alloc_zeroed(1, sizeof(*started));
	int rc;

	started->work = *work;
	started->workers = workers < 1 ? 1 : workers > WORKERS_MAX ? WORKERS_MAX : workers;
	started->places =
	        work->places ? work->places : (size_t)started->workers * JOBS_PER_WORKER + 1;
	started->done = sp_alloc_zeroed(started->places, sizeof(bool));
	started->jobs = sp_alloc_zeroed(started->places, work->job_size);
	pthread_mutex_init(&started->lock, NULL);
	pthread_cond_init(&started->submitted, NULL);
	pthread_cond_init(&started->completed, NULL);
	rc = start_worker(started);
	if (rc < 0) {
		pool_free(started);
		return sp_fail_errno(err, -rc, "cannot start a worker thread");
	}
	*pool = started;
	return 0;
}

/* The lock is held. */
static void resume(struct sp_pool *pool)
{
	if (pool->paused)
		pthread_cond_broadcast(&pool->submitted);
	pool->paused = false;
}

void sp_pool_pause(struct sp_pool *pool, uint64_t patience_ns)
{
	struct timespec until = sp_timespec_from_ns(sp_now_ns() + patience_ns);
	int code = 0;

	pthread_mutex_lock(&pool->lock);
	pool->paused = pool->reserve_open = true;
	while (pool->running && !code)
		code = pthread_cond_clockwait(&pool->completed, &pool->lock, CLOCK_MONOTONIC,
		                              &until);
	pthread_mutex_unlock(&pool->lock);
}

void sp_pool_resume(struct sp_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	resume(pool);
	pool->reserve_open = false;
	pthread_mutex_unlock(&pool->lock);
}

void *sp_pool_claim(struct sp_pool *pool)
{
	size_t room;

	pthread_mutex_lock(&pool->lock);
	room = pool->places - (pool->reserve_open ? 0 : pool->work.reserve);
	while (pool->end - pool->first >= room) {
		resume(pool);
		pthread_cond_wait(&pool->completed, &pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return place_of(pool, pool->end);
}

void sp_pool_submit(struct sp_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->end++;
	/* A thread that cannot be started is not missed: there is always one. */
	if (pool->end - pool->next > pool->idle && pool->started < pool->workers)
		start_worker(pool);
	pthread_cond_signal(&pool->submitted);
	pthread_mutex_unlock(&pool->lock);
}

int sp_pool_error(struct sp_pool *pool, struct sp_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&pool->lock);
	if (pool->failed) {
		rc = pool->error.code ? -pool->error.code : -EIO;
		if (err)
			*err = pool->error;
	}
	pthread_mutex_unlock(&pool->lock);
	return rc;
}

int sp_pool_finish(struct sp_pool *pool, struct sp_error *err)
{
	int rc;

	pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->submitted);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->started; i++)
		pthread_join(pool->threads[i], NULL);
	rc = sp_pool_error(pool, err);
	pool_free(pool);
	return rc;
}
