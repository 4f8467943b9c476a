/* `sealpoint snapshot`: checkpoints of a running program at intervals. */
#include "cli/saving.h"
#include "cli/worker.h"

#include "base/array.h"
#include "base/clock.h"
#include "engine/engine.h"

#include <stdio.h>

#define DEFAULT_EVERY_NS SP_NS_PER_S
#define DEFAULT_SHARE 10
#define DEFAULT_KEEP 10
#define DEFAULT_MAX_CHAIN 50

enum {
	OPTION_EVERY = SP_OPTION_LONG,
	OPTION_SHARE,
	OPTION_KEEP,
	OPTION_MAX_CHAIN,
	OPTION_COUNT,
};

static const struct sp_option options[] = {
        {'o', "output", "STORE", "the directory where they are kept; it is made if need be"},
        {OPTION_EVERY, "every", "TIME", "how often: \"500ms\", \"2s\", \"5min\"; default 1s"},
        {OPTION_SHARE, "share", "PERCENT",
         "how much of the processors, and of the program's time, it may\ntake, however often that "
         "is; default 10, 100 is all"},
        {OPTION_KEEP, "keep", "N", "how many stay restorable; default 10"},
        {OPTION_MAX_CHAIN, "max-chain", "N",
         "how many older ones may pile up before they are merged\ninto one, in the background; "
         "default 50"},
        {OPTION_COUNT, "count", "N", "make so many, then end"},
        SP_OPTION_ROW_COMPRESS,
        SP_OPTION_ROW_UNLINKED_LIMIT,
        SP_OPTION_ROW_EXTERNAL,
        SP_OPTION_ROW_TCP_CLOSE,
        SP_OPTION_ROW_EXT_UNIX_SK,
        SP_OPTION_ROW_SHELL_JOB,
        {SP_OPTION_VERBOSE, "verbose", NULL, "tell what is done"},
        {SP_OPTION_QUIET, "quiet", NULL, "no line for each snapshot, no summary"},
        {0},
};

static bool apply_number(struct sp_cli *cli, const char *option, long minimum, long maximum,
                         unsigned *number)
{
	long value;

	if (!sp_parse_number(cli, option, cli->argument, minimum, maximum, &value))
		return false;
	*number = (unsigned)value;
	return true;
}

static bool apply_option(struct sp_cli *cli, struct sp_snapshot_options *snapshot, int option)
{
	switch (option) {
	case 'o':
		snapshot->store = cli->argument;
		return true;
	case OPTION_EVERY:
		return sp_parse_duration(cli, "--every", cli->argument, &snapshot->every_ns);
	case OPTION_SHARE:
		return apply_number(cli, "--share", 1, 100, &snapshot->share);
	case OPTION_KEEP:
		return apply_number(cli, "--keep", 1, 1000000, &snapshot->keep);
	case OPTION_MAX_CHAIN:
		return apply_number(cli, "--max-chain", 1, 1000000, &snapshot->max_chain);
	case OPTION_COUNT:
		return apply_number(cli, "--count", 1, 1000000, &snapshot->count);
	default:
		return sp_apply_saving_option(cli, &snapshot->dump, option);
	}
}

static bool parse(struct sp_cli *cli, struct sp_snapshot_options *snapshot)
{
	char **operands;
	int option;

	while ((option = sp_next_option(cli)) != SP_OPTION_END)
		if (!apply_option(cli, snapshot, option))
			return false;
	operands = sp_operands(cli, (const char *const[]){"PID", NULL});
	if (!operands || !sp_parse_pid(cli, operands[0], &snapshot->dump.pid))
		return false;
	if (snapshot->store && *snapshot->store)
		return true;
	sp_usage_error(cli, "say with -o STORE where to keep the snapshots of process %d",
	               snapshot->dump.pid);
	return false;
}

static void tell(void *context, const char *path, const struct sp_dump_result *result)
{
	const struct sp_cli *cli = context;

	if (cli->json) {
		sp_print_json_line(json_pack("{s:o, s:I, s:I, s:I, s:I}", "directory",
		                             sp_json_text(path), "freeze_ns",
		                             (json_int_t)result->freeze.total_ns, "total_ns",
		                             (json_int_t)result->total_ns, "contents_bytes",
		                             (json_int_t)result->pages.raw_bytes, "image_bytes",
		                             (json_int_t)result->image_bytes));
		fflush(stdout);
	} else if (!cli->log.quiet) {
		printf("%s: frozen %s, %s of contents, %s on disk, %s in all\n", path,
		       sp_show_duration(result->freeze.total_ns).text,
		       sp_show_bytes(result->pages.raw_bytes).text,
		       sp_show_bytes(result->image_bytes).text,
		       sp_show_duration(result->total_ns).text);
		fflush(stdout);
	}
}

static int run(struct sp_cli *cli)
{
	sp_cleanup_array struct sp_array external = SP_ARRAY_OF(char *);
	struct sp_snapshot_options snapshot = {
	        .dump = sp_saving_defaults(cli),
	        .every_ns = DEFAULT_EVERY_NS,
	        .share = DEFAULT_SHARE,
	        .keep = DEFAULT_KEEP,
	        .max_chain = DEFAULT_MAX_CHAIN,
	        .made = tell,
	        .context = cli,
	};
	struct sp_snapshot_result result;
	struct sp_error err = {0};
	int status;

	snapshot.dump.kinds.external = &external;
	if (!parse(cli, &snapshot))
		return SP_EXIT_USAGE;
	if (!sp_worker_begin(snapshot.dump.pid, false, &status))
		return status;
	if (sp_snapshot(&snapshot, &result, &err) < 0)
		return sp_command_failed(cli, &err);
	sp_log_succeeded(&cli->log);
	if (!cli->json && !cli->log.quiet)
		printf("%u snapshot%s made%s; the newest is %s\n", result.made,
		       result.made == 1 ? " was" : "s were",
		       result.program_ended ? " until the program ended" : "", result.newest);
	return SP_EXIT_OK;
}

const struct sp_command sp_command_snapshot = {
        .name = "snapshot",
        .synopsis = "PID -o STORE [--every TIME] [OPTION]...",
        .summary = "save a running program again and again",
        .description =
                "Makes checkpoints of process PID at intervals, in directories STORE/00000001 and\n"
                "so on, until the program ends or Ctrl-C is pressed. Each holds what was written\n"
                "since the one before, and is the program as it was at one moment. The link\n"
                "STORE/latest names the newest; whatever happens, it can be restored.\n\n"
                "Old ones are merged and removed, so that STORE does not grow for ever.",
        .options = options,
        .examples = "  sealpoint snapshot $(pidof redis-server) -o /backup/redis --every 500ms\n"
                    "  sealpoint restore /backup/redis/latest",
        .acts = true,
        .run = run,
};
