/* `sealpoint track`: sessions that track the writes of a program. */
#include "cli/cli.h"
#include "cli/worker.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_BACKEND = SP_OPTION_LONG };

static const struct sp_option options[] = {
        {OPTION_BACKEND, "backend", "NAME", "scan or soft-dirty; default: the best there is"},
        {SP_OPTION_QUIET, "quiet", NULL, "say nothing if all goes well"},
        {0},
};

static int answer(struct sp_cli *cli, pid_t pid, const struct sp_tracking_status *status,
                  const char *words)
{
	sp_cleanup_free char *id =
	        sp_format_hex(status->id, status->tracked ? sizeof(status->id) : 0);

	sp_log_succeeded(&cli->log);
	if (cli->json)
		sp_print_json(json_pack(
		        "{s:i, s:b, s:s, s:s, s:I, s:i, s:I, s:I}", "pid", (int)pid, "tracked",
		        status->tracked, "backend", sp_session_backend_name(status->backend),
		        "session", id, "generation", (json_int_t)status->generation, "holder",
		        (int)status->holder, "tracked_bytes", (json_int_t)status->tracked_bytes,
		        "written_bytes", (json_int_t)status->written_bytes));
	if (cli->json || cli->log.quiet)
		return SP_EXIT_OK;
	printf("%s\n", words);
	if (!status->tracked)
		return SP_EXIT_OK;
	printf("session %s, generation %" PRIu64 ", by %s, held by process %d\n", id,
	       status->generation, sp_session_backend_name(status->backend), status->holder);
	printf("%s of memory is tracked, %s was written since the last cut\n",
	       sp_show_bytes(status->tracked_bytes).text,
	       sp_show_bytes(status->written_bytes).text);
	return SP_EXIT_OK;
}

static int act(struct sp_cli *cli, const char *verb, pid_t pid, enum sp_session_backend backend)
{
	struct sp_tracking_status status = {0};
	struct sp_error err = {0};
	char words[96];
	int rc;

	if (!strcmp(verb, "start")) {
		rc = sp_tracking_start(pid, backend, &status, &err);
		snprintf(words, sizeof(words), "tracking the writes of process %d", pid);
	} else if (!strcmp(verb, "stop")) {
		rc = sp_tracking_stop(pid, &err);
		snprintf(words, sizeof(words), "the writes of process %d are not tracked any more",
		         pid);
	} else {
		rc = sp_tracking_read_status(pid, &status, &err);
		snprintf(words, sizeof(words), "the writes of process %d are %s", pid,
		         status.tracked ? "tracked" : "not tracked");
	}
	return rc < 0 ? sp_command_failed(cli, &err) : answer(cli, pid, &status, words);
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
                "\"track start\" begins a session that tracks which pages process PID writes: the\n"
                "kernel notes it, at about a microsecond for the first write to each page.\n"
                "Dumps use the session that there is, and \"dump --track\", \"dump --parent\" and\n"
                "pre-dump begin one by themselves; so this command is only for those who want\n"
                "to begin earlier.\n\n"
                "Without asynchronous write protection (Linux 6.7) the soft-dirty bits of the\n"
                "page tables serve, if the kernel has them: the program is then stopped while\n"
                "they are read.\n\n"
                "The session is kept by a small process of its own. It ends with the program,\n"
                "or with \"track stop\". \"track status\" tells what was written since the last\n"
                "cut, without disturbing anybody.",
        .options = options,
        .examples = "  sealpoint track start 4242\n"
                    "  sealpoint track status 4242 --json\n"
                    "  sealpoint track stop 4242",
        .acts = true,
        .run = run,
};
