/*
 * What a run tells a person while it works. One `struct sp_log` is passed down with the run's
 * context; nothing here is global. Errors do not go through it (error.h): they are returned.
 *
 * Warnings are kept until the run's result is told: a run that fails says one thing, why, and not
 * first what it would have wanted to tell about a result that does not exist.
 *
 * A command with a log of its own (cli/criu.h) has a sink, which gets all lines when they are said.
 *
 * Progress is a single line that is redrawn on a terminal, starts after one second, and is not
 * written at all when stderr is not a terminal.
 */
#ifndef SEALPOINT_BASE_LOG_H
#define SEALPOINT_BASE_LOG_H

#include "base/array.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum sp_log_level { SP_LOG_WARNING, SP_LOG_VERBOSE };

struct sp_log {
	bool quiet;
	bool verbose;
	bool terminal;       /* stderr is a terminal: progress may be drawn */
	bool progress_drawn; /* a progress line stands on the terminal */
	uint64_t started_ns;
	uint64_t drawn_ns;
	struct sp_array warnings; /* char *: not told yet */
	pthread_mutex_t lock;     /* while a warning is given: any thread may */
	/* Gets each line at once, instead of stderr; NULL: nobody does. */
	void (*sink)(void *context, enum sp_log_level level, const char *line);
	void *context;
};

void sp_log_init(struct sp_log *log, bool verbose, bool quiet);
/**
 * One line that the user should see with the result, once however often it is said meanwhile; at once
 * when verbose.
 */
void sp_warn(struct sp_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** One line for those who asked for it. */
void sp_verbose(struct sp_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Redraws the progress line: `what` and how much of `total` is done. Cheap when too early. */
void sp_progress(struct sp_log *log, const char *what, uint64_t done, uint64_t total);
/** Wipes the progress line. */
void sp_progress_end(struct sp_log *log);
/**
 * Before the result of a run that has succeeded: wipes the progress line and tells the warnings.
 */
void sp_log_succeeded(struct sp_log *log);
/** Before the error of a run that has failed: wipes the progress line and drops the warnings. */
void sp_log_failed(struct sp_log *log);

#endif
