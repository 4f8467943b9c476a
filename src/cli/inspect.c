/* `sealpoint inspect`: what a checkpoint holds, at a glance or as JSON. */
#include "cli/cli.h"

#include "cli/inspect.h"

#include <stdio.h>

static const struct sp_option options[] = {
        {'a', "all", NULL, "a line for every mapping, not for every mapped file"},
        {0},
};

static int show(struct sp_cli *cli, struct sp_checkpoint *checkpoint, bool all)
{
	sp_cleanup_array struct sp_array mappings = SP_ARRAY_OF(struct sp_mapping_summary);
	struct sp_inspection inspection = {
	        .checkpoint = checkpoint,
	        .process = sp_checkpoint_root(checkpoint),
	        .mappings = &mappings,
	        .all = all,
	};
	struct sp_error err = {0};

	if (sp_summarize_mappings(checkpoint, inspection.process, &mappings, &err) < 0)
		return sp_command_failed(cli, &err);
	sp_page_store_stats(checkpoint->pages, &inspection.pages);
	sp_page_store_chain_stats(checkpoint->pages, &inspection.chain);
	for (const struct sp_checkpoint *member = checkpoint; member; member = member->parent)
		inspection.members++;
	inspection.image = sp_checkpoint_extent(checkpoint);
	if (cli->json)
		return sp_print_json(sp_inspection_object(&inspection));
	sp_print_inspection(&inspection);
	return SP_EXIT_OK;
}

static int run(struct sp_cli *cli)
{
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};
	bool all = false;
	char **operands;
	int option, result;

	while ((option = sp_next_option(cli)) != SP_OPTION_END) {
		if (option != 'a')
			return SP_EXIT_USAGE;
		all = true;
	}
	operands = sp_operands(cli, (const char *const[]){"DIR", NULL});
	if (!operands)
		return SP_EXIT_USAGE;
	if (sp_checkpoint_open(&checkpoint, operands[0], &err) < 0)
		return sp_command_failed(cli, &err);
	result = show(cli, checkpoint, all);
	sp_checkpoint_close(checkpoint);
	return result;
}

const struct sp_command sp_command_inspect = {
        .name = "inspect",
        .synopsis = "DIR [--all] [--json]",
        .summary = "look at what a checkpoint holds",
        .description =
                "Shows the program that was saved in DIR: when and where, its threads, its\n"
                "mappings with how many pages of each are in which state, its descriptors, and\n"
                "the rest of its state. Neighbouring mappings of one file share a line, with\n"
                "their number in brackets.\n\n"
                "The states of a page: DATA has contents in the checkpoint, ZERO is populated\n"
                "with zeros, FILE is an unmodified page of a mapped file, HOLE was never\n"
                "populated, GUARD is a guard page (MADV_GUARD_INSTALL).",
        .options = options,
        .examples =
                "  sealpoint inspect /var/tmp/saved\n"
                "  sealpoint inspect /var/tmp/saved --json | jq '.mappings[] | select(.sealed)'",
        .run = run,
};
