/*
 * A pool of workers with a bounded ring of jobs: one producer fills jobs, workers run them at the
 * same time in any order, and each is completed in the order in which it was submitted.
 *
 * The ring is all the memory there is: a producer that is ahead waits in sp_pool_claim(). Threads
 * are started as jobs come, so that a small task costs one.
 */
#ifndef SEALPOINT_IMAGE_POOL_H
#define SEALPOINT_IMAGE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_error;
struct sp_pool;

struct sp_pool_work {
	void *context;
	size_t job_size;
	size_t places;  /* jobs that there is room for; 0: a few for each worker */
	size_t reserve; /* how many of these places are only used from a pause to its end */
	/**
	 * Does a job. `worker` is below the number of workers, and no two threads have the same.
	 * Called for every job, also after a failure: then it should only let go of what the job
	 * holds.
	 */
	int (*run)(void *context, unsigned worker, void *job, struct sp_error *err);
	/** May be NULL. Called for one job at a time, in order; not any more after a failure. */
	int (*complete)(void *context, void *job, struct sp_error *err);
};

/** One worker per online processor, at most 16: what 0 means wherever workers are counted. */
unsigned sp_pool_default_workers(void);

int sp_pool_start(struct sp_pool **pool, const struct sp_pool_work *work, unsigned workers,
                  struct sp_error *err);
/** The next job to fill in; holds what an earlier one left there. Waits for a free place. */
void *sp_pool_claim(struct sp_pool *pool);
/** Hands over the job that was claimed last. */
void sp_pool_submit(struct sp_pool *pool);
/**
 * Lets the workers finish what they do, and begin nothing more; waits for that, `patience_ns` at
 * most. They go on with sp_pool_resume(), or when somebody has to wait for them.
 */
void sp_pool_pause(struct sp_pool *pool, uint64_t patience_ns);
void sp_pool_resume(struct sp_pool *pool);
/** True once a job has failed. Any thread may ask. */
bool sp_pool_failed(const struct sp_pool *pool);
/** Makes the pool fail, with an error of the caller's. */
void sp_pool_fail(struct sp_pool *pool, const struct sp_error *err);
/** Copies the error of the first job that failed, or returns 0. */
int sp_pool_error(struct sp_pool *pool, struct sp_error *err);
/** Waits for all jobs, ends the threads, frees the pool. Returns the first job's error, if any. */
int sp_pool_finish(struct sp_pool *pool, struct sp_error *err);

#endif
