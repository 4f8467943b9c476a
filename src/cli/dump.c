/* `sealpoint dump`: saves a running program. */
#include "cli/saving.h"

#include "base/array.h"
#include "base/clock.h"

#include <stdio.h>

/* Less is no time at all. */
#define TIMEOUT_LEAST_NS SP_NS_PER_MS

enum {
	OPTION_LEAVE_RUNNING = SP_OPTION_LONG,
	OPTION_LEAVE_STOPPED,
	OPTION_KILL,
	OPTION_PARENT,
	OPTION_TRACK,
	OPTION_LIVE,
	OPTION_TIMEOUT,
	OPTION_TCP_ESTABLISHED,
	OPTION_CGROUPS,
	OPTION_FREEZE_CGROUP,
};

static const struct sp_option options[] = {
        {'o', "output", "DIR",
         "where to save it: a directory that does not exist yet,\nor is empty"},
        {OPTION_KILL, "kill", NULL, "end the program once all is safely on disk (default)"},
        {OPTION_LEAVE_RUNNING, "leave-running", NULL, "let the program run on"},
        {OPTION_LEAVE_STOPPED, "leave-stopped", NULL,
         "leave the program stopped; \"kill -CONT PID\" goes on"},
        {OPTION_PARENT, "parent", "PREV",
         "store only what was written since the checkpoint PREV was\nmade; starts to track writes "
         "where they are not tracked yet"},
        {OPTION_TRACK, "track", NULL,
         "track writes from now on, so that this checkpoint can be\nthe parent of the next"},
        {OPTION_LIVE, "live", NULL,
         "save memory while the program runs, and stop it only for\nwhat it writes meanwhile; with "
         "--leave-running not even\nfor all of that"},
        SP_OPTION_ROW_COMPRESS,
        {OPTION_TIMEOUT, "timeout", "TIME",
         "give up if the program cannot be stopped by then: \"500ms\",\n\"2s\", \"5min\"; default "
         "10s"},
        SP_OPTION_ROW_UNLINKED_LIMIT,
        {OPTION_TCP_ESTABLISHED, "tcp-established", NULL,
         "save established TCP connections; their other ends see a\nquiet network until the "
         "restore"},
        {OPTION_CGROUPS, "cgroups", NULL,
         "save in which control groups the processes are, and what\nis set for these (restore "
         "--cgroups)"},
        {OPTION_FREEZE_CGROUP, "freeze-cgroup", "DIR",
         "freeze the control group DIR for the moment in which the\nprocesses are found"},
        SP_OPTION_ROW_EXTERNAL,
        SP_OPTION_ROW_TCP_CLOSE,
        SP_OPTION_ROW_EXT_UNIX_SK,
        SP_OPTION_ROW_SHELL_JOB,
        {SP_OPTION_VERBOSE, "verbose", NULL, "tell what is done"},
        {SP_OPTION_QUIET, "quiet", NULL, "no progress, no warnings, no summary"},
        {0},
};

static bool parse_timeout(struct sp_cli *cli, uint64_t *nanoseconds)
{
	if (!sp_parse_duration(cli, "--timeout", cli->argument, nanoseconds))
		return false;
	if (*nanoseconds >= TIMEOUT_LEAST_NS)
		return true;
	sp_usage_error(cli, "--timeout takes at least 1ms, not \"%s\"", cli->argument);
	return false;
}

static bool apply_option(struct sp_cli *cli, struct sp_dump_options *dump, int option)
{
	switch (option) {
	case 'o':
		dump->directory = cli->argument;
		return true;
	case OPTION_KILL:
		dump->after = SP_RELEASE_KILL;
		return true;
	case OPTION_LEAVE_RUNNING:
		dump->after = SP_RELEASE_RUN;
		return true;
	case OPTION_LEAVE_STOPPED:
		dump->after = SP_RELEASE_STOP;
		return true;
	case OPTION_PARENT:
		dump->parent = cli->argument;
		return true;
	case OPTION_TRACK:
		dump->session = SP_CUT_TRACK;
		return true;
	case OPTION_LIVE:
		if (dump->session == SP_CUT_IF_TRACKED)
			dump->session = SP_CUT_ONCE;
		return true;
	case OPTION_TIMEOUT:
		return parse_timeout(cli, &dump->timeout_ns);
	case OPTION_CGROUPS:
		dump->kinds.cgroups = SP_CGROUPS_SOFT;
		return true;
	case OPTION_FREEZE_CGROUP:
		dump->freeze_cgroup = cli->argument;
		return true;
	case OPTION_TCP_ESTABLISHED:
		return dump->kinds.tcp_established = true;
	default:
		return sp_apply_saving_option(cli, dump, option);
	}
}

/* What becomes of the program can be said once only. `*fate` is the option that has said it. */
static bool check_fate(struct sp_cli *cli, int option, int *fate)
{
	if (option != OPTION_KILL && option != OPTION_LEAVE_RUNNING &&
	    option != OPTION_LEAVE_STOPPED)
		return true;
	if (*fate && *fate != option) {
		sp_usage_error(cli, "give one of --kill, --leave-running and --leave-stopped");
		return false;
	}
	*fate = option;
	return true;
}

static bool parse(struct sp_cli *cli, struct sp_dump_options *dump)
{
	char **operands;
	int option, fate_option = 0;

	while ((option = sp_next_option(cli)) != SP_OPTION_END)
		if (!check_fate(cli, option, &fate_option) || !apply_option(cli, dump, option))
			return false;
	operands = sp_operands(cli, (const char *const[]){"PID", NULL});
	if (!operands || !sp_parse_pid(cli, operands[0], &dump->pid))
		return false;
	if (!dump->directory || !*dump->directory) {
		sp_usage_error(cli, "say with -o DIR where to save process %d", dump->pid);
		return false;
	}
	if (dump->kinds.tcp_established && dump->kinds.tcp_close) {
		sp_usage_error(cli, "give one of --tcp-established and --tcp-close");
		return false;
	}
	/* Whoever goes on with a chain will want to go on with this checkpoint, too. */
	if (dump->parent && dump->after != SP_RELEASE_KILL)
		dump->session = SP_CUT_TRACK;
	return true;
}

static const char *fate(enum sp_release after)
{
	return after == SP_RELEASE_RUN ? "running" : after == SP_RELEASE_STOP ? "stopped" : "ended";
}

static json_t *freeze_object(const struct sp_freeze *freeze)
{
	return json_pack(
	        "{s:I, s:I, s:I, s:I, s:I, s:I}", "total_ns", (json_int_t)freeze->total_ns,
	        "stop_ns", (json_int_t)freeze->stop_ns, "state_ns", (json_int_t)freeze->state_ns,
	        "descriptors_ns", (json_int_t)freeze->descriptors_ns, "mappings_ns",
	        (json_int_t)freeze->mappings_ns, "memory_ns", (json_int_t)freeze->memory_ns);
}

static void print_json(const struct sp_dump_options *dump, const struct sp_dump_result *result)
{
	json_t *object = json_pack(
	        "{s:i, s:o, s:s, s:I, s:I, s:I, s:f, s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:I, "
	        "s:I, s:I}",
	        "pid", (int)dump->pid, "directory", sp_json_text(dump->directory), "program",
	        fate(dump->after), "total_ns", (json_int_t)result->total_ns, "image_bytes",
	        (json_int_t)result->image_bytes, "contents_bytes",
	        (json_int_t)result->pages.raw_bytes, "ratio", sp_ratio(&result->pages), "freeze",
	        freeze_object(&result->freeze), "held_bytes", (json_int_t)result->held_bytes,
	        "protected_bytes", (json_int_t)result->protected_bytes, "held_writes",
	        (json_int_t)result->held_writes, "pages",
	        sp_page_counts_object(result->pages.pages), "processes",
	        (json_int_t)result->processes, "threads", (json_int_t)result->threads, "mappings",
	        (json_int_t)result->mappings, "descriptors", (json_int_t)result->descriptors,
	        "locked_connections", (json_int_t)result->connections);

	sp_print_json(object);
}

static void print_people(const struct sp_dump_options *dump, const struct sp_dump_result *result)
{
	const struct sp_freeze *freeze = &result->freeze;

	printf("saved process %d%s to %s in %s; the program %s\n", dump->pid,
	       sp_and_descendants(result->processes).text, dump->directory,
	       sp_show_duration(result->total_ns).text,
	       dump->after == SP_RELEASE_RUN    ? "runs on"
	       : dump->after == SP_RELEASE_STOP ? "is left stopped"
	                                        : "was ended");
	printf("frozen %s (stop %s, state %s, descriptors %s, mappings %s, memory %s)\n",
	       sp_show_duration(freeze->total_ns).text, sp_show_duration(freeze->stop_ns).text,
	       sp_show_duration(freeze->state_ns).text,
	       sp_show_duration(freeze->descriptors_ns).text,
	       sp_show_duration(freeze->mappings_ns).text,
	       sp_show_duration(freeze->memory_ns).text);
	if (result->held_bytes)
		printf("then %s were saved while the program ran; %s of its writes had to wait\n",
		       sp_show_bytes(result->held_bytes).text,
		       sp_show_count(result->held_writes).text);
	if (result->connections)
		printf("%u TCP connection%s locked until the restore; \"sealpoint unlock %s\" "
		       "gives "
		       "%s up\n",
		       result->connections, result->connections == 1 ? " is" : "s are",
		       dump->directory, result->connections == 1 ? "it" : "them");
	printf("%s pages, ", sp_show_count(sp_own_pages(&result->pages)).text);
	sp_print_stored(&result->pages, result->image_bytes);
}

static int run(struct sp_cli *cli)
{
	sp_cleanup_array struct sp_array external = SP_ARRAY_OF(char *);
	struct sp_dump_options dump = sp_saving_defaults(cli);

	dump.kinds.external = &external;
	dump.after = SP_RELEASE_KILL;
	return parse(cli, &dump) ? sp_save(cli, &dump, print_json, print_people) : SP_EXIT_USAGE;
}

const struct sp_command sp_command_dump = {
        .name = "dump",
        .synopsis = "PID -o DIR [OPTION]...",
        .summary = "save a running program to a directory",
        .description =
                "Stops the program with process id PID for a moment, saves all of it, its child\n"
                "processes and theirs too, to the new directory DIR, and ends it, or lets it run\n"
                "on.\n\n"
                "DIR appears when everything is safely on disk, or not at all. If anything\n"
                "fails, or sealpoint itself is killed half way through, the program runs on as\n"
                "if nothing had happened. What cannot be saved is refused before that, with the\n"
                "name of what it is and what can be done.",
        .options = options,
        .examples = "  sealpoint dump 4242 -o /var/tmp/saved\n"
                    "  sealpoint dump $(pidof redis-server) -o /backup/redis --leave-running\n"
                    "  sealpoint dump 4242 -o /dev/shm/saved --compress none\n"
                    "  sealpoint dump 4242 -o chain/1 --leave-running --track\n"
                    "  sealpoint dump 4242 -o chain/2 --leave-running --parent chain/1",
        .acts = true,
        .run = run,
};
