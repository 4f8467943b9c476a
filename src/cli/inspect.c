/*
 * `sealpoint inspect`: what a checkpoint holds, at a glance or as JSON; or what a running process would
 * make of one, and what stands in the way.
 */
#include "cli/inspect.h"

#include "base/array.h"
#include "cli/saving.h"
#include "cli/worker.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { OPTION_TCP_ESTABLISHED = SP_OPTION_LONG };

static const struct sp_option options[] = {
        {'a', "all", NULL, "a line for every mapping, not for every mapped file"},
        {'p', "pid", "PID", "which process of a tree; without this, the first"},
        {OPTION_TCP_ESTABLISHED, "tcp-established", NULL, "as for a dump of this process"},
        SP_OPTION_ROW_UNLINKED_LIMIT,
        SP_OPTION_ROW_EXTERNAL,
        SP_OPTION_ROW_TCP_CLOSE,
        SP_OPTION_ROW_EXT_UNIX_SK,
        SP_OPTION_ROW_SHELL_JOB,
        {0},
};

static void list_threads(const struct sp_checkpoint *checkpoint, uint32_t pid,
                         struct sp_array *threads)
{
	for (size_t i = 0; i < checkpoint->threads.count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(&checkpoint->threads, i);

		if (thread->pid == pid)
			sp_array_append(threads, &thread);
	}
}

static void list_descriptors(const struct sp_checkpoint *checkpoint, uint32_t pid,
                             struct sp_array *descriptors)
{
	for (size_t i = 0; i < checkpoint->descriptors.count; i++) {
		const Sealpoint__Descriptor *descriptor =
		        sp_array_pointer(&checkpoint->descriptors, i);

		if (descriptor->pid == pid)
			sp_array_append(descriptors, &descriptor);
	}
}

static int show(struct sp_cli *cli, struct sp_checkpoint *checkpoint, pid_t pid, bool all)
{
	sp_cleanup_array struct sp_array threads = SP_ARRAY_OF(const Sealpoint__Thread *);
	sp_cleanup_array struct sp_array descriptors = SP_ARRAY_OF(const Sealpoint__Descriptor *);
	sp_cleanup_array struct sp_array mappings = SP_ARRAY_OF(struct sp_mapping_summary);
	struct sp_inspection inspection = {
	        .checkpoint = checkpoint,
	        .threads = &threads,
	        .descriptors = &descriptors,
	        .mappings = &mappings,
	        .all = all,
	};
	struct sp_error err = {0};

	if (sp_checkpoint_find_process(checkpoint, pid, &inspection.process, &err) < 0)
		return sp_command_failed(cli, &err);
	list_threads(checkpoint, inspection.process->pid, &threads);
	list_descriptors(checkpoint, inspection.process->pid, &descriptors);
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

static int inspect_checkpoint(struct sp_cli *cli, const char *path, pid_t pid, bool all)
{
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};
	int result;

	if (sp_checkpoint_open(&checkpoint, path, &err) < 0)
		return sp_command_failed(cli, &err);
	result = show(cli, checkpoint, pid, all);
	sp_checkpoint_close(checkpoint);
	return result;
}

/* The exit status is the answer: 0 if a dump would succeed. */
static int show_survey(struct sp_cli *cli, const struct sp_survey *survey, pid_t pid, bool all)
{
	sp_cleanup_array struct sp_array threads = SP_ARRAY_OF(const Sealpoint__Thread *);
	sp_cleanup_array struct sp_array descriptors = SP_ARRAY_OF(const Sealpoint__Descriptor *);
	struct sp_inspection inspection = {
	        .checkpoint = survey->checkpoint,
	        .process = survey->checkpoint ? sp_checkpoint_root(survey->checkpoint) : NULL,
	        .threads = &threads,
	        .descriptors = &descriptors,
	        .mappings = &survey->mappings,
	        .survey = survey,
	        .all = all,
	};

	if (survey->checkpoint) {
		list_threads(survey->checkpoint, (uint32_t)pid, &threads);
		list_descriptors(survey->checkpoint, (uint32_t)pid, &descriptors);
	}
	for (size_t i = 0; i < survey->mappings.count; i++) {
		const struct sp_mapping_summary *summary = sp_array_at(&survey->mappings, i);

		for (int state = 0; state < SP_PAGE_STATES; state++)
			inspection.pages.pages[state] += summary->pages[state];
	}
	if (!cli->json)
		sp_print_survey(&inspection, pid);
	else if (sp_print_json(sp_survey_object(&inspection, pid)) != SP_EXIT_OK)
		return SP_EXIT_FAILED;
	return survey->refusals.count ? SP_EXIT_FAILED : SP_EXIT_OK;
}

static int inspect_process(struct sp_cli *cli, const struct sp_dump_options *dump, bool all)
{
	struct sp_survey_options survey_options = {dump->pid, dump->kinds, &cli->log};
	struct sp_survey survey;
	struct sp_error err = {0};
	int status;

	if (!sp_worker_begin(dump->pid, false, &status))
		return status;
	if (sp_survey(&survey_options, &survey, &err) < 0)
		return sp_command_failed(cli, &err);
	sp_log_succeeded(&cli->log);
	status = show_survey(cli, &survey, dump->pid, all);
	sp_survey_release(&survey);
	return status;
}

/* A number is a process, unless there is a checkpoint of that name; "./123" is never one. */
static bool is_process(const char *operand)
{
	struct stat stat_buffer;

	return *operand && strspn(operand, "0123456789") == strlen(operand) &&
	       stat(operand, &stat_buffer) < 0;
}

static int run(struct sp_cli *cli)
{
	sp_cleanup_array struct sp_array external = SP_ARRAY_OF(char *);
	struct sp_dump_options dump = sp_saving_defaults(cli);
	bool all = false;
	pid_t pid = 0;
	char **operands;
	int option;

	dump.kinds.external = &external;
	while ((option = sp_next_option(cli)) != SP_OPTION_END) {
		if (option == 'a')
			all = true;
		else if (option == OPTION_TCP_ESTABLISHED)
			dump.kinds.tcp_established = true;
		else if (option == 'p' && !sp_parse_pid(cli, cli->argument, &pid))
			return SP_EXIT_USAGE;
		else if (option != 'p' && !sp_apply_saving_option(cli, &dump, option))
			return SP_EXIT_USAGE;
	}
	operands = sp_operands(cli, (const char *const[]){"DIR or PID", NULL});
	if (!operands)
		return SP_EXIT_USAGE;
	if (!is_process(operands[0]))
		return inspect_checkpoint(cli, operands[0], pid, all);
	if (!sp_parse_pid(cli, operands[0], &dump.pid))
		return SP_EXIT_USAGE;
	return inspect_process(cli, &dump, all);
}

const struct sp_command sp_command_inspect = {
        .name = "inspect",
        .synopsis = "DIR|PID [OPTION]...",
        .summary = "look at what a checkpoint holds, or a dump of a process would",
        .description =
                "Shows the program that was saved in DIR: when and where, its threads, its\n"
                "mappings with how many pages of each are in which state, its descriptors, and\n"
                "the rest of its state. Neighbouring mappings of one file share a line, with\n"
                "their number in brackets. Of a tree of processes all are listed, and one is\n"
                "shown: the first, or the one that --pid names.\n\n"
                "The states of a page: DATA has contents in the checkpoint, ZERO is populated\n"
                "with zeros, FILE is an unmodified page of a mapped file, HOLE was never\n"
                "populated, GUARD is a guard page (MADV_GUARD_INSTALL).\n\n"
                "With a process id it shows the same of that process, and first of all what\n"
                "stands in the way of a dump: everything, with a way out. The process stands\n"
                "still for some milliseconds, and nothing is saved. The exit status is 0 if it\n"
                "can be saved, with the options that are given here as for a dump. (If there is\n"
                "a directory of that name, it is meant.)",
        .options = options,
        .examples =
                "  sealpoint inspect /var/tmp/saved\n"
                "  sealpoint inspect 4242                     # can it be saved?\n"
                "  sealpoint inspect /var/tmp/saved --json | jq '.mappings[] | select(.sealed)'",
        .run = run,
};
