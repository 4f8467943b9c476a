/* `sealpoint inspect`: what a checkpoint holds, at a glance or as JSON. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "cli/inspect.h"

#include <stdio.h>

static const struct sp_option options[] = {
        {'a', "all", NULL, "a line for every mapping, not for every mapped file"},
        {0},
};

/* One line from a kind or a facet about its own message; empty if it has nothing to tell. */
struct sp_line sp_describe_file(const Sealpoint__OpenFile *file)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);
	struct sp_line line = {""};

	if (kind && kind->describe)
		kind->describe(file->body, line.text, sizeof(line.text));
	return line;
}

struct sp_line sp_describe_facet(const Sealpoint__Facet *record)
{
	const struct sp_facet *facet = sp_facet_by_name(record->name);
	struct sp_line line = {""};

	if (facet && facet->describe)
		facet->describe(record->body, line.text, sizeof(line.text));
	return line;
}

const char *sp_file_title(const Sealpoint__OpenFile *file)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);

	return kind ? kind->title : file->kind;
}

const char *sp_facet_title(const Sealpoint__Facet *record)
{
	const struct sp_facet *facet = sp_facet_by_name(record->name);

	return facet ? facet->title : record->name;
}

static const struct {
	uint32_t flag;
	const char *name;
} mapping_flags[] = {
        {SP_VMA_SEALED, "sealed"},
        {SP_VMA_LOCKED, "locked"},
        {SP_VMA_LOCK_ON_FAULT, "lock-on-fault"},
        {SP_VMA_GROWS_DOWN, "grows-down"},
        {SP_VMA_HUGE, "huge"},
        {SP_VMA_NO_HUGE, "no-huge"},
        {SP_VMA_MERGEABLE, "mergeable"},
        {SP_VMA_SEQUENTIAL, "sequential"},
        {SP_VMA_RANDOM, "random"},
        {SP_VMA_DONT_FORK, "dont-fork"},
        {SP_VMA_WIPE_ON_FORK, "wipe-on-fork"},
        {SP_VMA_DONT_DUMP, "dont-dump"},
        {SP_VMA_NO_RESERVE, "no-reserve"},
        {SP_VMA_DELETED, "deleted"},
};

const char *sp_mapping_flag(uint32_t flags, size_t *next)
{
	while (*next < SP_COUNT_OF(mapping_flags)) {
		size_t index = (*next)++;

		if (flags & mapping_flags[index].flag)
			return mapping_flags[index].name;
	}
	return NULL;
}

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
	for (size_t i = 0; i < checkpoint->manifest->n_files; i++)
		inspection.image_bytes += checkpoint->manifest->files[i]->size;
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
                "Shows the program that was saved in DIR: when and where, its threads, its "
                "mappings with\n"
                "how many pages of each are in which state, its descriptors, and the rest of its "
                "state.\n"
                "Neighbouring mappings of one file share a line, with their number in brackets.\n\n"
                "The states of a page: DATA has contents in the checkpoint, ZERO is populated with "
                "zeros,\n"
                "FILE is an unmodified page of a mapped file, HOLE was never populated, GUARD is a "
                "guard\n"
                "page (MADV_GUARD_INSTALL).",
        .options = options,
        .examples =
                "  sealpoint inspect /var/tmp/saved\n"
                "  sealpoint inspect /var/tmp/saved --json | jq '.mappings[] | select(.sealed)'",
        .run = run,
};
