/* `sealpoint unlock`: gives up TCP connections that a dump has locked. */
#include "cli/cli.h"

#include "engine/engine.h"

#include <stdio.h>

enum { OPTION_PID = SP_OPTION_LONG };

static const struct sp_option options[] = {
        {OPTION_PID, "pid", "PID",
         "instead of a checkpoint: let the running program PID have\nconnections again that a "
         "killed "
         "dump has stopped"},
        {SP_OPTION_QUIET, "quiet", NULL, "say nothing"},
        {0},
};

static int unlock_process(struct sp_cli *cli, pid_t pid)
{
	struct sp_error err = {0};
	unsigned count;

	if (sp_unlock_process(pid, &count, &err) < 0)
		return sp_command_failed(cli, &err);
	if (cli->json)
		sp_print_json(json_pack("{s:i, s:i}", "pid", (int)pid, "connections", (int)count));
	else if (!cli->log.quiet)
		printf("%u connections of process %d had been stopped, and go on\n", count, pid);
	return SP_EXIT_OK;
}

static int unlock_checkpoint(struct sp_cli *cli, const char *directory)
{
	struct sp_error err = {0};

	if (sp_unlock_checkpoint(directory, &err) < 0)
		return sp_command_failed(cli, &err);
	if (cli->json)
		sp_print_json(json_pack("{s:o}", "directory", sp_json_text(directory)));
	else if (!cli->log.quiet)
		printf("the connections of %s are not locked any more; restore it with "
		       "--tcp-close\n",
		       directory);
	return SP_EXIT_OK;
}

static int run(struct sp_cli *cli)
{
	char **operands;
	pid_t pid = 0;
	int option;

	while ((option = sp_next_option(cli)) != SP_OPTION_END)
		if (option != OPTION_PID || !sp_parse_pid(cli, cli->argument, &pid))
			return SP_EXIT_USAGE;
	operands = sp_operands(cli, pid ? (const char *const[]){NULL}
	                                : (const char *const[]){"DIR", NULL});
	if (!operands)
		return SP_EXIT_USAGE;
	return pid ? unlock_process(cli, pid) : unlock_checkpoint(cli, operands[0]);
}

const struct sp_command sp_command_unlock = {
        .name = "unlock",
        .synopsis = "DIR | --pid PID",
        .summary = "give up TCP connections that a dump has locked",
        .description =
                "A dump with --tcp-established that ends the program locks its connections: the\n"
                "kernel drops their packets, and the other ends wait. The restore unlocks them.\n"
                "This command does it for a checkpoint in DIR that is not going to be restored:\n"
                "the other ends find their connections reset.",
        .options = options,
        .examples = "  sealpoint unlock /var/tmp/saved\n"
                    "  sealpoint unlock --pid 4242",
        .acts = true,
        .run = run,
};
