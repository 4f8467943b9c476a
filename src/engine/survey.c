/*
 * A survey: what a running process consists of, and all that stands in the way of a dump of it. Nothing is
 * written anywhere.
 *
 * It asks in the order of a dump, and asks the same functions, so that the two cannot disagree; but it goes
 * on behind a refusal, and neither memory nor the contents of files are read. The program stands still
 * meanwhile, for as long as a dump takes for descriptors and state. Its pages are counted when it runs again.
 */
#include "engine/dump_parts.h"
#include "engine/save_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limit.h"
#include "kinds/namespaces.h"
#include "proc/capability.h"
#include "proc/stat.h"

#include <errno.h>
#include <stdlib.h>

struct survey {
	const struct sp_survey_options *options;
	struct sp_survey *result;
	struct tree tree;
	struct sp_file_table files;
	struct sp_record_writer records;
	uint8_t *bytes; /* of the records */
	size_t size;
	bool stopped;
};

static int collect(struct survey *survey, int rc, struct sp_error *err)
{
	return sp_error_collect(&survey->result->refusals, rc, err);
}

/* --- while it stands still --- */

static int check_mappings(struct survey *survey, struct task *task, struct sp_error *err)
{
	struct sp_array *vmas = &task->vmas;
	bool tracked = sp_tracking_is_on(task->process.pid);
	int rc = sp_vma_list_read(sp_process_living(&task->process), vmas, err);

	for (size_t i = 0; i < vmas->count && !rc; i++) {
		struct sp_vma *vma = sp_array_at(vmas, i);

		if (tracked) /* then it is sealpoint that has registered it */
			vma->flags &= ~(uint32_t)SP_VMA_UFFD;
		rc = collect(survey, sp_memory_check_vma(task->process.pid, vma, err), err);
	}
	return rc;
}

static int save_files(struct survey *survey, struct sp_error *err)
{
	struct sp_file_saver saver = {
	        .options = &survey->options->kinds,
	        .root = sp_tree_root(&survey->tree)->process.pid,
	        .log = survey->options->log,
	};

	return sp_file_table_save(&survey->files, &saver, &survey->records, err);
}

/* Without a foothold its state cannot be asked for; what is left is its name. */
static int save_state(struct survey *survey, struct task *task, struct sp_error *err)
{
	struct sp_state_saver state = {
	        .process = &task->process,
	        .options = &survey->options->kinds,
	        .files = &survey->files,
	        .records = &survey->records,
	        .log = survey->options->log,
	        .executable = task->executable,
	        .last_words = &task->last_words,
	        .sharing = task->sharing,
	        .refusals = &survey->result->refusals,
	};
	size_t refusals = survey->result->refusals.count;
	int rc = sp_task_engage(task, err);

	rc = collect(survey, rc, err);
	if (rc)
		return rc;
	if (survey->result->refusals.count == refusals)
		state.remote = &task->remote;
	rc = sp_state_save(&state, err);
	return rc ? rc : sp_remote_close(&task->remote, err);
}

static int look_at(struct survey *survey, struct task *task, struct sp_error *err)
{
	int rc = collect(survey, sp_namespaces_check(&task->process, err), err);

	if (!rc && !sp_task_has_no_memory(task))
		rc = check_mappings(survey, task, err);
	return rc ? rc : sp_task_add_files(&survey->files, task, err);
}

static int look(struct survey *survey, struct sp_error *err)
{
	const struct tree *tree = &survey->tree;
	bool shell_job = survey->options->kinds.shell_job;
	int rc = collect(survey, sp_tree_find_sharing(tree, err), err);

	if (!rc)
		rc = collect(survey, sp_tree_check_sessions(tree, shell_job, err), err);
	for (size_t i = 0; i < tree->tasks.count && !rc; i++)
		rc = look_at(survey, sp_tree_task(tree, i), err);
	if (!rc)
		rc = save_files(survey, err);
	for (size_t i = 0; i < tree->tasks.count && !rc; i++)
		rc = save_state(survey, sp_tree_task(tree, i), err);
	for (size_t i = 0; i < tree->ended.count && !rc; i++)
		rc = sp_state_save_ended(sp_tree_ended(tree, i), &survey->records, err);
	return rc;
}

/* Fails to stop it: that is in the way as well, and nothing else can be told. */
static int stop(struct survey *survey, struct sp_error *err)
{
	const struct sp_survey_options *options = survey->options;
	uint64_t deadline = sp_now_ns() + SP_DUMP_TIMEOUT_NS;
	int rc = sp_process_check(options->pid, err);

	if (!rc)
		rc = collect(survey, sp_process_check_tracees(options->pid, err), err);
	if (!rc)
		rc = sp_capability_need_checkpoint("read the files behind mappings", err);
	if (!rc)
		sp_foothold_find(sp_living_thread(options->pid), (struct sp_range){0},
		                 &sp_tree_root(&survey->tree)->foothold, NULL);
	if (!rc)
		rc = sp_tree_stop(&survey->tree, deadline, err);
	survey->stopped = !rc;
	return collect(survey, rc, err);
}

static void let_go(struct survey *survey)
{
	uint64_t stopped = sp_tree_root(&survey->tree)->process.stopped_ns;

	for (size_t i = 0; i < survey->tree.tasks.count; i++) {
		struct task *task = sp_tree_task(&survey->tree, i);

		sp_remote_close(&task->remote, NULL);
		sp_process_release(&task->process, SP_RELEASE_RUN);
	}
	if (survey->stopped)
		survey->result->stopped_ns = sp_now_ns() - stopped;
}

/* --- what was found --- */

/* Of the root, whose mappings come first. */
static int count_pages(struct survey *survey, struct sp_error *err)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	const struct sp_array *vmas = &sp_tree_root(&survey->tree)->vmas;
	const struct sp_array *records = &survey->result->checkpoint->vmas;
	int rc = sp_page_scan_open(&scan, sp_living_thread(survey->options->pid), err);

	for (size_t i = 0; i < vmas->count && !rc; i++) {
		struct sp_mapping_summary *summary = sp_array_push(&survey->result->mappings);

		summary->vma = sp_array_pointer(records, i);
		rc = sp_memory_survey_pages(&scan, sp_array_at(vmas, i), summary->pages, err);
	}
	return rc;
}

static int tell(struct survey *survey, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < survey->tree.tasks.count && !rc; i++)
		rc = sp_task_write_vmas(sp_tree_task(&survey->tree, i), &survey->records, err);
	if (!rc)
		rc = sp_record_writer_finish(&survey->records, err);
	if (!rc)
		rc = sp_checkpoint_of_records(&survey->result->checkpoint, survey->bytes,
		                              survey->size, err);
	return rc ? rc : count_pages(survey, err);
}

/* --- the whole --- */

static int run(struct survey *survey, struct sp_error *err)
{
	int rc = sp_record_writer_memory(&survey->records, &survey->bytes, &survey->size, err);

	if (!rc)
		rc = sp_raise_descriptor_limit(0, err);
	if (!rc)
		rc = stop(survey, err);
	if (!rc && survey->stopped)
		rc = look(survey, err);
	if (rc && survey->stopped && sp_tree_is_ending(&survey->tree))
		rc = sp_fail(err, ESRCH, "process %d has ended meanwhile", survey->options->pid);
	let_go(survey);
	return rc || !survey->stopped ? rc : tell(survey, err);
}

static void release(struct survey *survey)
{
	sp_tree_release(&survey->tree);
	sp_file_table_release(&survey->files);
	sp_record_writer_abandon(&survey->records);
	free(survey->bytes);
}

int sp_survey(const struct sp_survey_options *options, struct sp_survey *result,
              struct sp_error *err)
{
	struct survey survey = {
	        .options = options,
	        .result = result,
	};
	int rc;

	*result = (struct sp_survey){
	        .refusals = SP_ARRAY_OF(struct sp_error),
	        .mappings = SP_ARRAY_OF(struct sp_mapping_summary),
	};
	sp_tree_init(&survey.tree, options->pid);
	sp_file_table_init(&survey.files);
	survey.files.refusals = &result->refusals;
	rc = run(&survey, err);
	release(&survey);
	if (rc)
		sp_survey_release(result);
	return rc;
}

void sp_survey_release(struct sp_survey *survey)
{
	sp_checkpoint_close(survey->checkpoint);
	survey->checkpoint = NULL;
	sp_array_release(&survey->mappings);
	sp_array_release(&survey->refusals);
}
