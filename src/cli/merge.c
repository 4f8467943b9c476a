/* `sealpoint merge`: one checkpoint of a chain of them. */
#include "cli/saving.h"

#include "base/interrupt.h"
#include "engine/engine.h"

#include <stdio.h>

enum { OPTION_IN_PLACE = SP_OPTION_LONG };

static const struct sp_option options[] = {
        {'o', "output", "OUT",
         "where to write it: a directory that does not exist yet,\nor is empty"},
        {OPTION_IN_PLACE, "in-place", NULL, "let it take the place of DIR"},
        SP_OPTION_ROW_COMPRESS,
        {SP_OPTION_VERBOSE, "verbose", NULL, "tell what is done"},
        {SP_OPTION_QUIET, "quiet", NULL, "no progress, no summary"},
        {0},
};

static bool parse(struct sp_cli *cli, struct sp_merge_options *merge)
{
	bool in_place = false;
	char **operands;
	int option;

	while ((option = sp_next_option(cli)) != SP_OPTION_END) {
		if (option == SP_OPTION_WRONG)
			return false;
		if (option == 'o')
			merge->output = cli->argument;
		else if (option == OPTION_IN_PLACE)
			in_place = true;
		else if (!sp_parse_compression(cli, cli->argument, &merge->compression))
			return false;
	}
	operands = sp_operands(cli, (const char *const[]){"DIR", NULL});
	if (!operands)
		return false;
	merge->directory = operands[0];
	if (in_place == (merge->output != NULL)) {
		sp_usage_error(cli, in_place ? "-o OUT and --in-place exclude each other"
		                             : "say with -o OUT where to write it, or --in-place");
		return false;
	}
	return true;
}

static int answer(struct sp_cli *cli, const struct sp_merge_options *merge,
                  const struct sp_merge_result *result)
{
	const char *place = merge->output ? merge->output : merge->directory;

	sp_log_succeeded(&cli->log);
	if (cli->json) {
		sp_print_json(json_pack(
		        "{s:o, s:I, s:I, s:I, s:I, s:f, s:o}", "directory", sp_json_text(place),
		        "checkpoints", (json_int_t)result->checkpoints, "total_ns",
		        (json_int_t)result->total_ns, "image_bytes",
		        (json_int_t)result->image_bytes, "contents_bytes",
		        (json_int_t)result->pages.raw_bytes, "ratio", sp_ratio(&result->pages),
		        "pages", sp_page_counts_object(result->pages.pages)));
		return SP_EXIT_OK;
	}
	if (cli->log.quiet)
		return SP_EXIT_OK;
	printf("merged %u checkpoint%s into %s in %s\n", result->checkpoints,
	       result->checkpoints == 1 ? "" : "s", place, sp_show_duration(result->total_ns).text);
	sp_print_stored(&result->pages, result->image_bytes);
	return SP_EXIT_OK;
}

static int run(struct sp_cli *cli)
{
	struct sp_merge_options merge = {.compression = SP_COMPRESS_DEFAULT, .log = &cli->log};
	struct sp_merge_result result;
	struct sp_error err = {0};

	if (!parse(cli, &merge))
		return SP_EXIT_USAGE;
	sp_interrupt_watch();
	if (sp_merge(&merge, &result, &err) < 0)
		return sp_command_failed(cli, &err);
	return answer(cli, &merge, &result);
}

const struct sp_command sp_command_merge = {
        .name = "merge",
        .synopsis = "DIR (-o OUT | --in-place) [OPTION]...",
        .summary = "make one checkpoint of a chain of them",
        .description =
                "Writes the checkpoint in DIR, and all that it has from the checkpoints it stands\n"
                "on, as one checkpoint that needs no other. It says the same and has the same\n"
                "id: a checkpoint that stands on DIR can stand on OUT, if that is put in the\n"
                "place of DIR.\n\n"
                "With --in-place that is done at once, by one atomic step. What DIR stood on is\n"
                "not needed any more, unless something else stands on it; it is not removed.",
        .options = options,
        .examples = "  sealpoint merge /backup/redis.7 -o /backup/redis.whole\n"
                    "  sealpoint merge /backup/redis.7 --in-place && rm -r /backup/redis.[0-6]",
        .acts = true,
        .run = run,
};
