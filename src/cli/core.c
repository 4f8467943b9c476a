/* `sealpoint core`: an ELF core file of a checkpoint, for debuggers. */
#include "cli/cli.h"

#include "base/interrupt.h"
#include "engine/engine.h"

#include <stdio.h>
#include <sys/stat.h>

static const struct sp_option options[] = {
        {'o', "output", "FILE", "the core file to write"},
        {'p', "pid", "PID", "of which process of a tree; without this, of the first"},
        {0},
};

static int answer(struct sp_cli *cli, const Sealpoint__Process *process, const char *path)
{
	struct stat stat = {0};

	lstat(path, &stat);
	sp_log_succeeded(&cli->log);
	if (cli->json) {
		sp_print_json(json_pack("{s:o, s:I, s:I, s:I}", "core", sp_json_text(path), "pid",
		                        (json_int_t)process->pid, "bytes", (json_int_t)stat.st_size,
		                        "bytes_on_disk", (json_int_t)stat.st_blocks * 512));
		return SP_EXIT_OK;
	}
	printf("wrote %s: %s, %s on disk\n", path, sp_show_bytes((uint64_t)stat.st_size).text,
	       sp_show_bytes((uint64_t)stat.st_blocks * 512).text);
	printf("look at it with: gdb '%s' '%s'\n", process->executable, path);
	return SP_EXIT_OK;
}

static int write_core(struct sp_cli *cli, struct sp_checkpoint *checkpoint, pid_t pid,
                      const char *path)
{
	const Sealpoint__Process *process;
	struct sp_error err = {0};
	int rc = sp_checkpoint_find_process(checkpoint, pid, &process, &err);

	if (!rc)
		rc = sp_write_core(checkpoint, process, path, &cli->log, &err);
	return rc ? sp_command_failed(cli, &err) : answer(cli, process, path);
}

static int run(struct sp_cli *cli)
{
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};
	const char *path = NULL;
	char **operands;
	pid_t pid = 0;
	int option, result;

	while ((option = sp_next_option(cli)) != SP_OPTION_END) {
		if (option == 'o')
			path = cli->argument;
		else if (option != 'p' || !sp_parse_pid(cli, cli->argument, &pid))
			return SP_EXIT_USAGE;
	}
	operands = sp_operands(cli, (const char *const[]){"DIR", NULL});
	if (!operands)
		return SP_EXIT_USAGE;
	if (!path)
		return sp_usage_error(cli, "say with -o FILE where to write the core file");
	if (sp_checkpoint_open(&checkpoint, operands[0], &err) < 0)
		return sp_command_failed(cli, &err);
	sp_interrupt_watch();
	result = write_core(cli, checkpoint, pid, path);
	sp_checkpoint_close(checkpoint);
	return result;
}

const struct sp_command sp_command_core = {
        .name = "core",
        .synopsis = "DIR -o FILE [--pid PID] [--json]",
        .summary = "write an ELF core file of a checkpoint, for gdb",
        .description =
                "Writes what was saved in DIR as an ELF core file, with all threads, their\n"
                "registers and all memory, so that a debugger can look into the program as it\n"
                "was. The checkpoint is not changed, and the program does not have to run.\n\n"
                "A core file is of one process: of the first, or the one that --pid names.\n\n"
                "Memory that was a page of a file is taken from that file if it is still the\n"
                "same; otherwise the debugger is left to find it.",
        .options = options,
        .examples = "  sealpoint core /var/tmp/saved -o core\n"
                    "  gdb -batch -ex 'thread apply all backtrace' /usr/bin/redis-server core",
        .acts = true,
        .run = run,
};
