/* `sealpoint pre-dump`: saves the memory of a program that runs all the while. */
#include "cli/saving.h"

#include <stdio.h>

enum { OPTION_PARENT = SP_OPTION_LONG };

static const struct sp_option options[] = {
        {'o', "output", "DIR",
         "where to save it: a directory that does not exist yet,\nor is empty"},
        {OPTION_PARENT, "parent", "PREV",
         "store only what was written since the checkpoint PREV was\nmade"},
        SP_OPTION_ROW_COMPRESS,
        {SP_OPTION_VERBOSE, "verbose", NULL, "tell what is done"},
        {SP_OPTION_QUIET, "quiet", NULL, "no progress, no warnings, no summary"},
        {0},
};

static bool apply_option(struct sp_cli *cli, struct sp_dump_options *dump, int option)
{
	switch (option) {
	case 'o':
		dump->directory = cli->argument;
		return true;
	case OPTION_PARENT:
		dump->parent = cli->argument;
		return true;
	default:
		return sp_apply_saving_option(cli, dump, option);
	}
}

static bool parse(struct sp_cli *cli, struct sp_dump_options *dump)
{
	char **operands;
	int option;

	while ((option = sp_next_option(cli)) != SP_OPTION_END)
		if (!apply_option(cli, dump, option))
			return false;
	operands = sp_operands(cli, (const char *const[]){"PID", NULL});
	if (!operands || !sp_parse_pid(cli, operands[0], &dump->pid))
		return false;
	if (dump->directory && *dump->directory)
		return true;
	sp_usage_error(cli, "say with -o DIR where to save the memory of process %d", dump->pid);
	return false;
}

static void print_json(const struct sp_dump_options *dump, const struct sp_dump_result *result)
{
	sp_print_json(json_pack(
	        "{s:i, s:o, s:I, s:I, s:I, s:f, s:o, s:I}", "pid", (int)dump->pid, "directory",
	        sp_json_text(dump->directory), "total_ns", (json_int_t)result->total_ns,
	        "image_bytes", (json_int_t)result->image_bytes, "contents_bytes",
	        (json_int_t)result->pages.raw_bytes, "ratio", sp_ratio(&result->pages), "pages",
	        sp_page_counts_object(result->pages.pages), "mappings",
	        (json_int_t)result->mappings));
}

static void print_people(const struct sp_dump_options *dump, const struct sp_dump_result *result)
{
	printf("saved the memory of process %d to %s in %s; the program was not stopped\n",
	       dump->pid, dump->directory, sp_show_duration(result->total_ns).text);
	printf("%s pages, ", sp_show_count(sp_own_pages(&result->pages)).text);
	sp_print_stored(&result->pages, result->image_bytes);
}

static int run(struct sp_cli *cli)
{
	struct sp_dump_options dump = sp_saving_defaults(cli);

	dump.session = SP_CUT_TRACK;
	dump.memory_only = true;
	return parse(cli, &dump) ? sp_save(cli, &dump, print_json, print_people) : SP_EXIT_USAGE;
}

const struct sp_command sp_command_pre_dump = {
        .name = "pre-dump",
        .synopsis = "PID -o DIR [--parent PREV] [OPTION]...",
        .summary = "save the memory of a program ahead, while it runs",
        .description =
                "Saves the memory of process PID to the new directory DIR without stopping the\n"
                "program, and tracks its writes from then on. What it writes meanwhile counts as\n"
                "written: the dump that comes after, with DIR as its --parent, has only that to\n"
                "save. A pre-dump cannot be restored itself.\n\n"
                "To begin to track writes stops the program once, for about a millisecond.",
        .options = options,
        .examples = "  sealpoint pre-dump 4242 -o chain/1\n"
                    "  sealpoint pre-dump 4242 -o chain/2 --parent chain/1\n"
                    "  sealpoint dump 4242 -o chain/3 --parent chain/2",
        .acts = true,
        .run = run,
};
