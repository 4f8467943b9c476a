/*
 * `sealpoint restore`: brings a saved program back, and stands in for it until it ends, or lets it
 * go.
 */
#include "cli/cli.h"

#include "base/array.h"
#include "base/interrupt.h"
#include "cli/foreground.h"
#include "cli/worker.h"
#include "engine/engine.h"
#include "kinds/cgroups.h"
#include "kinds/inherit.h"

#include <stdio.h>

enum {
	OPTION_PIDFILE = SP_OPTION_LONG,
	OPTION_LEAVE_STOPPED,
	OPTION_SHELL_JOB,
	OPTION_SIBLING,
	OPTION_TCP_CLOSE,
	OPTION_TCP_ESTABLISHED,
	OPTION_INHERIT_FD,
	OPTION_CGROUPS,
};

static const struct sp_option options[] = {
        {'d', "detach", NULL,
         "return at once and leave the program to init; without\nthis, wait for it, pass signals "
         "on, and end as it ends"},
        {OPTION_SIBLING, "sibling", NULL,
         "with --detach, leave the program to our own parent, not\nto init"},
        {OPTION_PIDFILE, "pidfile", "FILE", "write the process id to FILE before the program runs"},
        {OPTION_LEAVE_STOPPED, "leave-stopped", NULL,
         "leave the program stopped before its first instruction;\n\"kill -CONT PID\" goes on (of "
         "a tree: each process)"},
        {OPTION_SHELL_JOB, "shell-job", NULL,
         "put a program that was a job of a shell into our own\nsession and terminal"},
        {OPTION_TCP_ESTABLISHED, "tcp-established", NULL,
         "bring saved TCP connections back even if they were not\nlocked here since the dump"},
        {OPTION_TCP_CLOSE, "tcp-close", NULL, "bring TCP connections back closed"},
        {OPTION_CGROUPS, "cgroups", "MODE",
         "put the processes into the control groups that the dump\nhas saved (--cgroups): soft "
         "makes those that are gone; none,\nprops, full, strict: see the manual"},
        {OPTION_INHERIT_FD, "inherit-fd", "fd[N]:RESOURCE",
         "put our descriptor N in the place of a saved one, named\nas \"sealpoint inspect DIR\" "
         "shows it: \"pipe:[123]\",\n\"socket:[123]\", a path"},
        {SP_OPTION_VERBOSE, "verbose", NULL, "tell what is done"},
        {SP_OPTION_QUIET, "quiet", NULL, "no progress, no warnings, no summary"},
        {0},
};

struct request {
	struct sp_restore_options restore;
	struct sp_array inherited; /* struct sp_inherited */
	bool detach;
};

static bool add_inherited(struct sp_cli *cli, struct request *request)
{
	struct sp_inherited inherited;

	if (sp_inherited_parse(cli->argument, &inherited)) {
		sp_array_append(&request->inherited, &inherited);
		return true;
	}
	sp_usage_error(cli,
	               "--inherit-fd takes a descriptor and a name like \"fd[3]:pipe:[123]\" or "
	               "\"fd[3]:/var/log/x.log\", not \"%s\"",
	               cli->argument);
	return false;
}

static bool set_cgroups(struct sp_cli *cli, struct request *request)
{
	if (sp_cgroups_parse_mode(cli->argument, &request->restore.kinds.cgroups))
		return true;
	sp_usage_error(cli, "--cgroups takes none, props, soft, full, strict or ignore, not \"%s\"",
	               cli->argument);
	return false;
}

static bool apply_option(struct sp_cli *cli, struct request *request, int option)
{
	switch (option) {
	case 'd':
		return request->detach = true;
	case OPTION_PIDFILE:
		request->restore.pidfile = cli->argument;
		return true;
	case OPTION_LEAVE_STOPPED:
		return request->restore.leave_stopped = true;
	case OPTION_SIBLING:
		return request->restore.sibling = true;
	case OPTION_SHELL_JOB:
		return request->restore.kinds.shell_job = true;
	case OPTION_CGROUPS:
		return set_cgroups(cli, request);
	case OPTION_INHERIT_FD:
		return add_inherited(cli, request);
	case OPTION_TCP_CLOSE:
		return request->restore.kinds.tcp_close = true;
	case OPTION_TCP_ESTABLISHED:
		return request->restore.kinds.tcp_established = true;
	default:
		return false;
	}
}

static bool parse(struct sp_cli *cli, struct request *request)
{
	char **operands;
	int option;

	while ((option = sp_next_option(cli)) != SP_OPTION_END)
		if (!apply_option(cli, request, option))
			return false;
	operands = sp_operands(cli, (const char *const[]){"DIR", NULL});
	if (!operands)
		return false;
	if (request->restore.kinds.tcp_established && request->restore.kinds.tcp_close) {
		sp_usage_error(cli, "give one of --tcp-established and --tcp-close");
		return false;
	}
	if (request->restore.sibling && !request->detach) {
		sp_usage_error(cli, "--sibling needs --detach");
		return false;
	}
	request->restore.directory = operands[0];
	return true;
}

static void print_json(const struct request *request, const struct sp_restore_result *result)
{
	sp_print_json(json_pack(
	        "{s:i, s:o, s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:I}", "pid", (int)result->pid,
	        "directory", sp_json_text(request->restore.directory), "program",
	        request->restore.leave_stopped ? "stopped" : "running", "total_ns",
	        (json_int_t)result->total_ns, "memory_ns", (json_int_t)result->memory_ns, "pages",
	        sp_page_counts_object(result->pages.pages), "processes",
	        (json_int_t)result->processes, "threads", (json_int_t)result->threads, "mappings",
	        (json_int_t)result->mappings, "descriptors", (json_int_t)result->descriptors));
}

/* In the foreground stdout belongs to the program, so people are told on stderr. */
static void print_people(const struct request *request, const struct sp_restore_result *result)
{
	fprintf(request->detach ? stdout : stderr,
	        "restored process %d%s from %s in %s (memory %s, %s of contents)%s\n", result->pid,
	        sp_and_descendants(result->processes).text, request->restore.directory,
	        sp_show_duration(result->total_ns).text, sp_show_duration(result->memory_ns).text,
	        sp_show_bytes(result->pages.raw_bytes).text,
	        request->restore.leave_stopped ? "; it is stopped" : "");
}

/*
 * Connections are unlocked just before the program runs, and were lost in between. One who is to stand in for
 * the program, or to lend it session and group, has to be its parent,
 * or the parent's child.
 */
static bool needs_worker(const struct request *request)
{
	return request->detach && !request->restore.sibling && !request->restore.kinds.shell_job &&
	       (request->restore.kinds.tcp_established ||
	        sp_checkpoint_has_lock(request->restore.directory));
}

static int run(struct sp_cli *cli)
{
	struct request request = {.restore.log = &cli->log,
	                          .inherited = SP_ARRAY_OF(struct sp_inherited)};
	struct sp_restore_result result = {0};
	struct sp_error err = {0};
	int status;

	request.restore.kinds.inherited = &request.inherited;
	if (!parse(cli, &request))
		return SP_EXIT_USAGE;
	request.restore.kinds.foreground = !request.detach;
	if (needs_worker(&request)) {
		if (!sp_worker_begin(0, true, &status))
			return status;
	} else {
		sp_interrupt_watch();
	}
	if (sp_restore(&request.restore, &result, &err) < 0)
		return sp_command_failed(cli, &err);
	sp_log_succeeded(&cli->log);
	if (cli->json)
		print_json(&request, &result);
	else if (!cli->log.quiet)
		print_people(&request, &result);
	if (request.detach)
		return SP_EXIT_OK;
	return sp_stand_in_for(result.pid, request.restore.leave_stopped);
}

const struct sp_command sp_command_restore = {
        .name = "restore",
        .synopsis = "DIR [OPTION]...",
        .summary = "bring a saved program back",
        .description =
                "Builds the program that was saved in DIR and lets it go on where it was, with\n"
                "its process id, its threads, its memory and its open files, and its descendants\n"
                "with theirs. The checkpoint is\n"
                "not changed: it can be restored again and again, though not twice at the same\n"
                "time, because a process id is given only once.\n\n"
                "Without --detach, sealpoint then stands in for the program: it passes signals\n"
                "on to it, stops when it stops, and ends as it ends, with its exit status or by\n"
                "its signal.\n\n"
                "If anything is missing or fails, no process is left behind.",
        .options = options,
        .examples = "  sealpoint restore /var/tmp/saved\n"
                    "  sealpoint restore /backup/redis --detach --pidfile /run/redis.pid",
        .acts = true,
        .run = run,
};
