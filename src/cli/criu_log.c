/*
 * The log as people know it from CRIU: a file with levels, and times from the level of information on.
 * Whatever the engine says goes through it (base/log.h, `sink`). What went wrong is told on standard error
 * as well.
 */
#include "cli/criu.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>

static void put_line(const struct sp_criu *criu, FILE *out, enum sp_criu_level level,
                     const char *text)
{
	static const char *const prefixes[] = {
	        [SP_CRIU_ERROR] = "Error: ",
	        [SP_CRIU_WARNING] = "Warn: ",
	        [SP_CRIU_DEBUG] = "",
	        [SP_CRIU_INFO] = "",
	};
	uint64_t us = (sp_now_ns() - criu->started_ns) / 1000;

	if (criu->verbosity >= SP_CRIU_INFO)
		fprintf(out, "(%02u.%06u) ", (unsigned)(us / 1000000), (unsigned)(us % 1000000));
	fprintf(out, "%s%s\n", prefixes[level], text);
	fflush(out);
}

void sp_criu_tell(struct sp_criu *criu, enum sp_criu_level level, const char *format, ...)
{
	char text[2048];
	va_list args;

	if ((int)level > criu->verbosity)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (criu->log)
		put_line(criu, criu->log, level, text);
	if (!criu->log || level == SP_CRIU_ERROR)
		put_line(criu, stderr, level, text);
}

void sp_criu_finished(struct sp_criu *criu, const char *line)
{
	if (criu->log && criu->verbosity > 0)
		put_line(criu, criu->log, SP_CRIU_INFO, line);
	else
		sp_criu_tell(criu, SP_CRIU_INFO, "%s", line);
}

static void take_line(void *context, enum sp_log_level level, const char *line)
{
	sp_criu_tell(context, level == SP_LOG_WARNING ? SP_CRIU_WARNING : SP_CRIU_INFO, "%s", line);
}

int sp_criu_log_open(struct sp_criu *criu, struct sp_error *err)
{
	struct sp_log *log = &criu->cli->log;

	log->quiet = criu->verbosity < SP_CRIU_WARNING;
	log->verbose = criu->verbosity >= SP_CRIU_INFO;
	log->terminal = false;
	log->sink = take_line;
	log->context = criu;
	if (!criu->log_file)
		return 0;
	criu->log = fopen(criu->log_file, "we");
	if (!criu->log)
		return sp_fail_errno(err, errno, "cannot create the log file %s", criu->log_file);
	return 0;
}
