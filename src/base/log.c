/* Messages and the progress line: see log.h. */
#include "base/log.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_AFTER_NS SP_NS_PER_S
#define PROGRESS_EVERY_NS (SP_NS_PER_S / 10)

void sp_log_init(struct sp_log *log, bool verbose, bool quiet)
{
	*log = (struct sp_log){
	        .quiet = quiet,
	        .verbose = verbose,
	        .terminal = isatty(STDERR_FILENO),
	        .started_ns = sp_now_ns(),
	        .warnings = SP_ARRAY_OF(char *),
	        .lock = PTHREAD_MUTEX_INITIALIZER,
	};
}

static void tell_warnings(struct sp_log *log)
{
	for (size_t i = 0; i < log->warnings.count; i++)
		fprintf(stderr, "sealpoint: warning: %s\n",
		        (const char *)sp_array_pointer(&log->warnings, i));
}

static void forget_warnings(struct sp_log *log)
{
	for (size_t i = 0; i < log->warnings.count; i++)
		free(sp_array_pointer(&log->warnings, i));
	sp_array_release(&log->warnings);
}

static char *format_line(const char *format, va_list args)
{
	char *line = NULL;

	if (vasprintf(&line, format, args) < 0)
		line = sp_allocated(NULL);
	sp_text_make_plain(line);
	return line;
}

static bool waits_to_be_told(const struct sp_log *log, const char *warning)
{
	for (size_t i = 0; i < log->warnings.count; i++)
		if (!strcmp(sp_array_pointer(&log->warnings, i), warning))
			return true;
	return false;
}

static void give_warning(struct sp_log *log, char *warning)
{
	if (log->sink)
		log->sink(log->context, SP_LOG_WARNING, warning);
	if (log->sink || waits_to_be_told(log, warning)) {
		free(warning);
		return;
	}
	sp_array_append(&log->warnings, &warning);
	if (log->verbose)
		sp_log_succeeded(log);
}

void sp_warn(struct sp_log *log, const char *format, ...)
{
	char *warning;
	va_list args;

	if (!log || log->quiet)
		return;
	va_start(args, format);
	warning = format_line(format, args);
	va_end(args);
	pthread_mutex_lock(&log->lock);
	give_warning(log, warning);
	pthread_mutex_unlock(&log->lock);
}

void sp_verbose(struct sp_log *log, const char *format, ...)
{
	sp_cleanup_free char *line = NULL;
	va_list args;

	if (!log || !log->verbose)
		return;
	va_start(args, format);
	line = format_line(format, args);
	va_end(args);
	sp_progress_end(log);
	if (log->sink)
		log->sink(log->context, SP_LOG_VERBOSE, line);
	else
		fprintf(stderr, "sealpoint: %s\n", line);
}

void sp_progress(struct sp_log *log, const char *what, uint64_t done, uint64_t total)
{
	uint64_t now;

	if (!log || log->quiet || !log->terminal || total == 0)
		return;
	now = sp_now_ns();
	if (now - log->started_ns < PROGRESS_AFTER_NS || now - log->drawn_ns < PROGRESS_EVERY_NS)
		return;
	log->drawn_ns = now;
	log->progress_drawn = true;
	fprintf(stderr, "\r\033[K%s  %3u%%  %.1f of %.1f MiB", what,
	        (unsigned)(100 * (double)done / (double)total), (double)done / 1048576.0,
	        (double)total / 1048576.0);
	fflush(stderr);
}

void sp_progress_end(struct sp_log *log)
{
	if (!log || !log->progress_drawn)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	log->progress_drawn = false;
}

void sp_log_succeeded(struct sp_log *log)
{
	sp_progress_end(log);
	tell_warnings(log);
	forget_warnings(log);
}

void sp_log_failed(struct sp_log *log)
{
	sp_progress_end(log);
	forget_warnings(log);
}
