/*
 * The cuts of a dump, one for the memory of each process: see dump_parts.h. Processes are listed while they
 * run, and met again in the freeze; whoever is met only there is saved in full, and who is not met has gone.
 */
#include "engine/dump_parts.h"

#include "base/error.h"
#include "kinds/namespaces.h"

#include <stdlib.h>

/* What is tracked of processes that are not there any more is of no use. */
void sp_dump_forget_gone(struct dump *dump)
{
	sp_cleanup_array struct sp_array pids = SP_ARRAY_OF(pid_t);

	sp_tree_pids(&dump->tree, &pids);
	sp_cuts_keep(dump->cuts, &pids);
}

static int begin_cut(struct dump *dump, struct task *task, uint64_t deadline_ns,
                     struct sp_error *err)
{
	const struct sp_dump_options *options = dump->options;
	pid_t pid = task->process.pid;

	if (sp_namespaces_look(pid, err))
		return -err->code;
	task->cut = sp_cuts_of(dump->cuts, pid, pid == options->pid);
	if (dump->again && task->cut->active)
		return sp_cut_again(task->cut, options->log, err);
	return sp_cut_begin(task->cut, pid, options->session, options->parent, deadline_ns,
	                    options->log, err);
}

/* Those that begin from now on are met in the freeze, and saved in full there. */
int sp_dump_begin_cuts(struct dump *dump, uint64_t deadline_ns, struct sp_error *err)
{
	size_t i = 0;

	sp_tree_list(&dump->tree);
	sp_dump_forget_gone(dump);
	while (i < dump->tree.tasks.count) {
		struct task *task = sp_tree_task(&dump->tree, i);
		int rc = begin_cut(dump, task, deadline_ns, err);

		if (!rc) {
			i++;
			continue;
		}
		if (i == 0 || !sp_tree_has_lost(task->process.pid, rc))
			return rc;
		*err = (struct sp_error){0};
		sp_tree_drop(&dump->tree, i);
	}
	sp_dump_forget_gone(dump);
	return 0;
}

/* --- in the freeze --- */

/*
 * One that was not listed before may have a session all the same: a list may miss some. One that was may
 * be gone, and this is another with its pid; or it has executed another program.
 */
static int begin_late(struct dump *dump, struct task *task, struct sp_error *err)
{
	free(sp_steal_ptr(&task->maps));
	task->cut = sp_cuts_of(dump->cuts, task->process.pid, task == sp_dump_root(dump));
	return sp_cut_begin(task->cut, task->process.pid, SP_CUT_IF_TRACKED, NULL, 0, NULL, err);
}

static bool is_met_first(const struct task *task)
{
	return !task->cut || (task->cut->active && sp_session_is_dead(&task->cut->session));
}

int sp_dump_meet(struct dump *dump, struct task *task, struct sp_error *err)
{
	return is_met_first(task) ? begin_late(dump, task, err) : 0;
}

/* --- the checkpoint --- */

/* Memory that stands on a parent has the number that it has there. */
void sp_dump_number_memory(struct dump *dump)
{
	struct sp_page_writer *pages = dump->writer.pages;

	for (size_t i = 0; i < dump->tree.tasks.count; i++) {
		struct task *task = sp_tree_task(&dump->tree, i);

		task->memory_object = task->cut->object;
		sp_page_writer_use_object(pages, task->memory_object);
	}
	for (size_t i = 0; i < dump->tree.tasks.count; i++) {
		struct task *task = sp_tree_task(&dump->tree, i);

		if (!task->memory_object)
			task->memory_object = sp_page_writer_new_object(pages);
	}
}

/* All that stand on a parent stand on the same: some cut that does, or NULL. */
struct sp_cut *sp_dump_standing_cut(const struct dump *dump)
{
	for (size_t i = 0; i < dump->tree.tasks.count; i++) {
		const struct task *task = sp_tree_task(&dump->tree, i);

		if (task->cut && task->cut->parent)
			return task->cut;
	}
	return NULL;
}

/* If its holder was killed meanwhile, the next dump finds that out, and says so. */
static void conclude(const struct dump *dump, struct task *task)
{
	if (!sp_task_is_tracked(task))
		return;
	task->cut->foothold = task->foothold;
	task->cut->object = task->memory_object;
	if (dump->options->session == SP_CUT_TRACK)
		sp_cut_keep_session(task->cut, NULL);
}

void sp_dump_conclude_cuts(struct dump *dump)
{
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		conclude(dump, sp_tree_task(&dump->tree, i));
}

bool sp_dump_is_tracked(const struct dump *dump)
{
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		if (sp_task_is_tracked(sp_tree_task(&dump->tree, i)))
			return true;
	return false;
}
