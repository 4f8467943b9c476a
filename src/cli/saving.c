/* What the commands that save a program share: see saving.h. */
#include "cli/saving.h"

#include "base/array.h"
#include "cli/worker.h"
#include "kinds/inherit.h"

struct sp_dump_options sp_saving_defaults(struct sp_cli *cli)
{
	return (struct sp_dump_options){
	        .after = SP_RELEASE_RUN,
	        .compression = SP_COMPRESS_DEFAULT,
	        .timeout_ns = SP_DUMP_TIMEOUT_NS,
	        .kinds = {.unlinked_file_limit = SP_DUMP_UNLINKED_LIMIT},
	        .log = &cli->log,
	};
}

static bool add_external(struct sp_cli *cli, struct sp_dump_options *dump)
{
	if (!sp_resource_is_valid(cli->argument)) {
		sp_usage_error(cli,
		               "--external takes a name like \"pipe:[123]\" or \"/dev/pts/3\", "
		               "not \"%s\"",
		               cli->argument);
		return false;
	}
	sp_array_append(dump->kinds.external, &cli->argument);
	return true;
}

bool sp_apply_saving_option(struct sp_cli *cli, struct sp_dump_options *dump, int option)
{
	switch (option) {
	case SP_OPTION_COMPRESS:
		return sp_parse_compression(cli, cli->argument, &dump->compression);
	case SP_OPTION_UNLINKED_LIMIT:
		return sp_parse_size(cli, "--unlinked-limit", cli->argument,
		                     &dump->kinds.unlinked_file_limit);
	case SP_OPTION_EXTERNAL:
		return add_external(cli, dump);
	case SP_OPTION_TCP_CLOSE:
		return dump->kinds.tcp_close = true;
	case SP_OPTION_EXT_UNIX_SK:
		return dump->kinds.connect_outside = true;
	case SP_OPTION_SHELL_JOB:
		return dump->kinds.shell_job = true;
	default:
		return false;
	}
}

int sp_save(struct sp_cli *cli, const struct sp_dump_options *dump, sp_saving_answer *json,
            sp_saving_answer *people)
{
	struct sp_dump_result result;
	struct sp_error err = {0};
	int status;

	/* A program that is left with a socket in repair mode is not helped by itself. */
	if (!sp_worker_begin(dump->pid, dump->kinds.tcp_established, &status))
		return status;
	if (sp_dump(dump, &result, &err) < 0)
		return sp_command_failed(cli, &err);
	sp_log_succeeded(&cli->log);
	if (cli->json)
		json(dump, &result);
	else if (!cli->log.quiet)
		people(dump, &result);
	return SP_EXIT_OK;
}
