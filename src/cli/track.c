/* `sealpoint track`: sessions that track the writes of a program. */
#include "cli/cli.h"
#include "cli/worker.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "engine/engine.h"
#include "proc/stat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_BACKEND = SP_OPTION_LONG };

static const struct sp_option options[] = {
        {OPTION_BACKEND, "backend", "NAME", "scan or soft-dirty; default: the best there is"},
        {SP_OPTION_QUIET, "quiet", NULL, "say nothing if all goes well"},
        {0},
};

static json_t *to_json(const struct sp_tracking_status *status)
{
	sp_cleanup_free char *id =
	        sp_format_hex(status->id, status->tracked ? sizeof(status->id) : 0);

	return json_pack("{s:i, s:b, s:s?, s:s, s:I, s:i, s:I, s:I}", "pid", (int)status->pid,
	                 "tracked", status->tracked, "backend",
	                 status->tracked ? sp_session_backend_name(status->backend) : NULL,
	                 "session", id, "generation", (json_int_t)status->generation, "holder",
	                 (int)status->holder, "tracked_bytes", (json_int_t)status->tracked_bytes,
	                 "written_bytes", (json_int_t)status->written_bytes);
}

static void print(const struct sp_tracking_status *status, const char *not_tracked)
{
	sp_cleanup_free char *id = sp_format_hex(status->id, sizeof(status->id));

	printf("the writes of %s are %s\n", sp_process_name(status->pid).text,
	       status->tracked ? "tracked" : not_tracked);
	if (!status->tracked)
		return;
	printf("  session %s, generation %" PRIu64 ", by %s, held by process %d\n", id,
	       status->generation, sp_session_backend_name(status->backend), status->holder);
	printf("  %s of memory is tracked, %s was written since the last cut\n",
	       sp_show_bytes(status->tracked_bytes).text,
	       sp_show_bytes(status->written_bytes).text);
}

/* JSON tells of the process as such, and of its descendants in a list. */
static int answer(struct sp_cli *cli, const struct sp_array *statuses, const char *not_tracked)
{
	json_t *json = cli->json ? to_json(sp_array_at(statuses, 0)) : NULL;
	json_t *descendants = json_array();

	sp_log_succeeded(&cli->log);
	for (size_t i = 1; json && i < statuses->count; i++)
		json_array_append_new(descendants, to_json(sp_array_at(statuses, i)));
	if (json) {
		json_object_set(json, "descendants", descendants);
		sp_print_json(json);
	}
	json_decref(descendants);
	for (size_t i = 0; !cli->json && !cli->log.quiet && i < statuses->count; i++)
		print(sp_array_at(statuses, i), not_tracked);
	return SP_EXIT_OK;
}

static int act(struct sp_cli *cli, const char *verb, pid_t pid, enum sp_session_backend backend)
{
	sp_cleanup_array struct sp_array statuses = SP_ARRAY_OF(struct sp_tracking_status);
	const char *not_tracked = "not tracked";
	struct sp_error err = {0};
	int rc;

	if (!strcmp(verb, "start")) {
		rc = sp_tracking_start(pid, backend, &statuses, &err);
	} else if (!strcmp(verb, "stop")) {
		rc = sp_tracking_stop(pid, &statuses, &err);
		not_tracked = "not tracked any more";
	} else {
		rc = sp_tracking_read_status(pid, &statuses, &err);
	}
	return rc < 0 ? sp_command_failed(cli, &err) : answer(cli, &statuses, not_tracked);
}

static int run(struct sp_cli *cli)
{
	char **operands;
	pid_t pid;
	int option, status, backend = SP_SESSION_ANY;

	while ((option = sp_next_option(cli)) != SP_OPTION_END) {
		if (option != OPTION_BACKEND)
			return SP_EXIT_USAGE;
		backend = sp_session_backend_by_name(cli->argument);
		if (backend < 0)
			return sp_usage_error(cli, "--backend takes scan or soft-dirty, not \"%s\"",
			                      cli->argument);
	}
	operands = sp_operands(cli, (const char *const[]){"start|status|stop", "PID", NULL});
	if (!operands)
		return SP_EXIT_USAGE;
	if (strcmp(operands[0], "start") && strcmp(operands[0], "status") &&
	    strcmp(operands[0], "stop"))
		return sp_usage_error(cli, "\"%s\" is none of start, status and stop", operands[0]);
	if (!sp_parse_pid(cli, operands[1], &pid))
		return SP_EXIT_USAGE;
	if (!strcmp(operands[0], "start") && !sp_worker_begin(pid, false, &status))
		return status;
	return act(cli, operands[0], pid, (enum sp_session_backend)backend);
}

const struct sp_command sp_command_track = {
        .name = "track",
        .synopsis = "start|status|stop PID",
        .summary = "begin and end to track the writes of a program",
        .description =
                "\"track start\" begins to track which pages process PID and its descendants "
                "write,\n"
                "each with a session of its own: the kernel notes it, at about a microsecond for\n"
                "the first write to each page. A child that begins later is not tracked yet;\n"
                "another \"track start\", or the next dump, does that.\n"
                "Dumps use the sessions that there are, and \"dump --track\", \"dump --parent\" "
                "and\n"
                "pre-dump begin them by themselves; so this command is only for those who want\n"
                "to begin earlier.\n\n"
                "Without asynchronous write protection (Linux 6.7) the soft-dirty bits of the\n"
                "page tables serve, if the kernel has them: the program is then stopped while\n"
                "they are read.\n\n"
                "A session is kept by a small process of its own. It ends with the process that\n"
                "it tracks, or with \"track stop\". \"track status\" tells what was written since\n"
                "the last cut, without disturbing anybody. Both are about all descendants, too.",
        .options = options,
        .examples = "  sealpoint track start 4242\n"
                    "  sealpoint track status 4242 --json\n"
                    "  sealpoint track stop 4242",
        .acts = true,
        .run = run,
};
