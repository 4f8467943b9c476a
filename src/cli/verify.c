/* `sealpoint verify`: every checksum and every reference of a checkpoint and what it stands on. */
#include "cli/cli.h"

#include "image/checkpoint.h"

#include <stdio.h>

static const struct sp_option options[] = {
        {SP_OPTION_VERBOSE, "verbose", NULL, "tell what is looked at"},
        {0},
};

struct total {
	json_int_t files, bytes, checkpoints;
};

static struct total count(const struct sp_checkpoint *checkpoint)
{
	struct total total = {0};

	for (; checkpoint; checkpoint = checkpoint->parent) {
		struct sp_checkpoint_extent size = sp_checkpoint_extent(checkpoint);

		total.checkpoints++;
		total.files += (json_int_t)size.files;
		total.bytes += (json_int_t)size.bytes;
	}
	return total;
}

static int answer(struct sp_cli *cli, const char *directory, struct total total)
{
	sp_log_succeeded(&cli->log);
	if (cli->json)
		return sp_print_json(json_pack("{s:b, s:o, s:I, s:I, s:I}", "intact", true,
		                               "directory", sp_json_text(directory), "checkpoints",
		                               total.checkpoints, "files", total.files, "bytes",
		                               total.bytes));
	printf("%s is intact: %lld files, %s", directory, (long long)total.files,
	       sp_show_bytes((uint64_t)total.bytes).text);
	if (total.checkpoints > 1)
		printf(", in a chain of %lld checkpoints", (long long)total.checkpoints);
	putchar('\n');
	return SP_EXIT_OK;
}

static int run(struct sp_cli *cli)
{
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};
	struct total total;
	char **operands;

	if (sp_next_option(cli) != SP_OPTION_END)
		return SP_EXIT_USAGE;
	operands = sp_operands(cli, (const char *const[]){"DIR", NULL});
	if (!operands)
		return SP_EXIT_USAGE;
	if (sp_checkpoint_verify(operands[0], &cli->log, &err) < 0 ||
	    sp_checkpoint_open(&checkpoint, operands[0], &err) < 0)
		return sp_command_failed(cli, &err);
	total = count(checkpoint);
	sp_checkpoint_close(checkpoint);
	return answer(cli, operands[0], total);
}

const struct sp_command sp_command_verify = {
        .name = "verify",
        .synopsis = "DIR [--json]",
        .summary = "check every byte of a checkpoint",
        .description =
                "Reads all files of the checkpoint in DIR, and of the checkpoints it stands on,\n"
                "and checks every checksum, every size and every reference between them. Says\n"
                "what is wrong, in which file and where. Nothing is changed.",
        .options = options,
        .examples = "  sealpoint verify /var/tmp/saved && echo good",
        .run = run,
};
