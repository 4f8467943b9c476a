/*
 * The tree of a dump: see dump_parts.h.
 *
 * A process is stopped before its children are looked for, so that it makes no more of them, and
 * those that it has made are found in the lists of all its threads. One that ends meanwhile stays in
 * the list until its parent, which stands still, collects its status. So a pass over the lists of all
 * that are known which finds nobody new has seen the whole tree.
 */
#include "engine/dump_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "kinds/sharing.h"
#include "proc/children.h"
#include "proc/stat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

/* Between two looks at a process that is about to end. */
#define ENDING_PAUSE_NS 1000000

/* --- who there is --- */

static struct task *add_task(struct tree *tree, pid_t pid)
{
	struct task *task = sp_alloc(sizeof(*task));

	*task = (struct task){
	        .process = {.pid = pid, .pidfd = -1},
	        .vmas = SP_ARRAY_OF(struct sp_vma),
	        .last_words = SP_ARRAY_OF(remote_addr),
	};
	sp_array_append(&tree->tasks, &task);
	return task;
}

static void drop_last_task(struct tree *tree)
{
	struct task *task = sp_tree_task(tree, --tree->tasks.count);

	sp_remote_close(&task->remote, NULL);
	sp_process_forget(&task->process);
	sp_vma_list_release(&task->vmas);
	sp_array_release(&task->last_words);
	free(task->maps);
	free(task);
}

void sp_tree_init(struct tree *tree, pid_t root)
{
	*tree = (struct tree){SP_ARRAY_OF(struct task *), SP_ARRAY_OF(pid_t)};
	add_task(tree, root);
}

void sp_tree_release(struct tree *tree)
{
	while (tree->tasks.count)
		drop_last_task(tree);
	sp_array_release(&tree->tasks);
	sp_array_release(&tree->ended);
}

void sp_tree_forget(struct tree *tree)
{
	while (tree->tasks.count > 1)
		drop_last_task(tree);
	sp_array_clear(&tree->ended);
	sp_process_forget(&sp_tree_root(tree)->process);
}

static bool is_task(const struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->tasks.count; i++)
		if (sp_tree_task(tree, i)->process.pid == pid)
			return true;
	return false;
}

static bool is_known(const struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->ended.count; i++)
		if (sp_tree_ended(tree, i) == pid)
			return true;
	return is_task(tree, pid);
}

/* --- stopping all --- */

/*
 * A child that could not be stopped because it has ended: one whose parent has still to learn that is
 * a part of the tree, and one that its parent does not want to hear of is gone by the next pass.
 */
static void note_ended(struct tree *tree, pid_t pid)
{
	struct sp_stat stat;

	if (!sp_stat_read(pid, pid, &stat, NULL) && sp_stat_has_ended(&stat))
		sp_array_append(&tree->ended, &pid);
	else
		nanosleep(&(struct timespec){.tv_nsec = ENDING_PAUSE_NS}, NULL);
}

/* What serves the root serves its child, more often than not; if not, that is seen in time. */
static int stop_child(struct tree *tree, pid_t pid, uint64_t deadline_ns, struct sp_error *err)
{
	struct sp_process process;
	struct task *task;
	int rc = sp_process_seize(&process, pid, deadline_ns, err);

	if (rc == -ESRCH && sp_now_ns() < deadline_ns) {
		note_ended(tree, pid);
		*err = (struct sp_error){0};
		return 0;
	}
	if (rc)
		return rc;
	task = add_task(tree, pid);
	task->process = process;
	task->foothold = sp_tree_root(tree)->foothold;
	return 0;
}

/* The children of one process that are not known yet. Returns how many there were, or an error. */
static int stop_children_of(struct tree *tree, pid_t pid, uint64_t deadline_ns,
                            struct sp_error *err)
{
	sp_cleanup_array struct sp_array children = SP_ARRAY_OF(pid_t);
	int rc = sp_children_read(pid, &children, err), found = 0;

	for (size_t i = 0; i < children.count && !rc; i++) {
		pid_t child = *(pid_t *)sp_array_at(&children, i);

		if (is_known(tree, child))
			continue;
		if (child == getpid())
			return sp_fail(
			        err, EINVAL,
			        "%s has started sealpoint itself (process %d), which cannot be "
			        "saved; start it from elsewhere, such as another terminal",
			        sp_process_name(pid).text, child);
		found++;
		rc = stop_child(tree, child, deadline_ns, err);
		if (!rc)
			rc = sp_interrupt_check(err);
	}
	return rc ? rc : found;
}

/* One pass over all that are known, those too that it finds. */
static int stop_new(struct tree *tree, uint64_t deadline_ns, struct sp_error *err)
{
	int found = 0;

	for (size_t i = 0; i < tree->tasks.count; i++) {
		int rc = stop_children_of(tree, sp_tree_task(tree, i)->process.pid, deadline_ns,
		                          err);

		if (rc < 0)
			return rc;
		found += rc;
	}
	return found;
}

/*
 * One that was killed while the others were stopped: its children are those of somebody else now, and
 * what was read is no tree.
 */
static int check_parents(const struct tree *tree, struct sp_error *err)
{
	for (size_t i = 1; i < tree->tasks.count; i++) {
		pid_t pid = sp_tree_task(tree, i)->process.pid;
		struct sp_stat stat;
		int rc = sp_stat_read(pid, pid, &stat, err);

		if (rc)
			return rc;
		if (!is_task(tree, stat.ppid) || sp_stat_has_ended(&stat))
			return sp_fail(err, EAGAIN,
			               "%s or its parent was killed while it was being stopped; "
			               "try again",
			               sp_process_name(pid).text);
	}
	return 0;
}

int sp_tree_check_sharing(const struct tree *tree, struct sp_error *err)
{
	sp_cleanup_array struct sp_array pids = SP_ARRAY_OF(pid_t);
	int rc = 0;

	for (size_t i = 0; i < tree->tasks.count; i++)
		sp_array_append(&pids, &sp_tree_task(tree, i)->process.pid);
	rc = sp_sharing_check_parent(sp_tree_root(tree)->process.pid, err);
	return rc ? rc : sp_sharing_check_all(&pids, err);
}

int sp_tree_stop(struct tree *tree, uint64_t deadline_ns, struct sp_error *err)
{
	struct sp_process *root = &sp_tree_root(tree)->process;
	int rc = root->watched ? sp_process_stop(root, deadline_ns, err)
	                       : sp_process_seize(root, root->pid, deadline_ns, err);

	if (rc)
		return rc;
	while ((rc = stop_new(tree, deadline_ns, err)) > 0)
		;
	return rc ? rc : check_parents(tree, err);
}

bool sp_tree_is_ending(const struct tree *tree)
{
	for (size_t i = 0; i < tree->tasks.count; i++)
		if (sp_process_is_ending(&sp_tree_task(tree, i)->process))
			return true;
	return false;
}

/* --- tracked ones --- */

pid_t sp_tree_child(const struct tree *tree)
{
	if (tree->tasks.count > 1)
		return sp_tree_task(tree, 1)->process.pid;
	return tree->ended.count ? sp_tree_ended(tree, 0) : 0;
}

int sp_tree_refuse_tracked(pid_t root, pid_t child, struct sp_error *err)
{
	return sp_fail(
	        err, ENOTSUP,
	        "%s has children, %s among them, and the writes of single processes only "
	        "can be tracked so far; save it by a dump without --parent, --track and --live "
	        "(\"sealpoint track stop %d\" ends its session), or wait until its children "
	        "have ended, for longer with --timeout",
	        sp_process_name(root).text, sp_process_name(child).text, root);
}

/* --- beforehand --- */

/* A child that begins only now is like its parent, and one that has ended is not driven. */
bool sp_target_survives(pid_t pid)
{
	sp_cleanup_array struct sp_array children = SP_ARRAY_OF(pid_t);
	struct sp_stat stat;
	bool safe = (!sp_stat_read(pid, pid, &stat, NULL) && sp_stat_has_ended(&stat)) ||
	            sp_foothold_is_safe(pid);

	if (safe)
		sp_children_read(pid, &children, NULL);
	for (size_t i = 0; i < children.count && safe; i++)
		safe = sp_target_survives(*(pid_t *)sp_array_at(&children, i));
	return safe;
}

/* --- sessions --- */

static int refuse_session(pid_t pid, pid_t session, struct sp_error *err)
{
	return sp_fail(err, ENOTSUP,
	               "%s belongs to session %d, which another process leads; start it with "
	               "setsid(1), or use --shell-job, and it joins the session of the restore",
	               sp_process_name(pid).text, session);
}

/*
 * A session is led by a process of the tree, or by one that has ended and is replaced for a moment.
 * The root may belong to the session of a shell, and so may its descendants.
 */
static int check_session(const struct tree *tree, pid_t pid, pid_t foreign, bool shell_job,
                         struct sp_error *err)
{
	struct sp_stat stat;
	int rc = sp_stat_read(pid, pid, &stat, err);

	if (rc || is_known(tree, stat.session))
		return rc;
	if (stat.session == foreign && shell_job)
		return 0;
	if (stat.session != foreign && kill(stat.session, 0) && errno == ESRCH)
		return 0;
	return refuse_session(pid, stat.session, err);
}

int sp_tree_check_sessions(const struct tree *tree, bool shell_job, struct sp_error *err)
{
	pid_t root = sp_tree_root(tree)->process.pid;
	struct sp_stat stat;
	int rc = sp_stat_read(root, root, &stat, err);

	for (size_t i = 0; i < tree->tasks.count && !rc; i++)
		rc = check_session(tree, sp_tree_task(tree, i)->process.pid, stat.session,
		                   shell_job, err);
	for (size_t i = 0; i < tree->ended.count && !rc; i++)
		rc = check_session(tree, sp_tree_ended(tree, i), stat.session, shell_job, err);
	return rc;
}
