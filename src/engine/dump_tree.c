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
#include "proc/children.h"
#include "proc/stat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Between two looks at a process that is about to end. */
#define ENDING_PAUSE_NS 1000000

/* --- who there is --- */

static struct task *new_task(pid_t pid)
{
	struct task *task = sp_alloc(sizeof(*task));

	*task = (struct task){
	        .process = {.pid = pid, .living = sp_living_thread(pid), .pidfd = -1},
	        .vmas = SP_ARRAY_OF(struct sp_vma),
	        .written = UINT64_MAX,
	        .last_words = SP_ARRAY_OF(remote_addr),
	        .holding =
	                {
	                        .areas = SP_ARRAY_OF(struct sp_range),
	                        .uffd = -1,
	                        .stash = SP_STASH_NONE,
	                        .listed = {SP_ARRAY_OF(struct sp_range),
	                                   SP_ARRAY_OF(struct sp_range)},
	                },
	};
	task->memory_of = task;
	return task;
}

static void free_task(struct task *task)
{
	sp_dump_end_hold(task);
	sp_remote_close(&task->remote, NULL);
	sp_process_forget(&task->process);
	sp_vma_list_release(&task->vmas);
	sp_array_release(&task->last_words);
	free(task->maps);
	free(task);
}

static struct task *add_task(struct tree *tree, pid_t pid)
{
	struct task *task = new_task(pid);

	sp_array_append(&tree->tasks, &task);
	return task;
}

/* As it was listed, or new; not among the tasks. */
static struct task *find_or_make_task(struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->listed.count; i++) {
		struct task *task = sp_array_pointer(&tree->listed, i);

		if (task->process.pid != pid)
			continue;
		sp_array_remove(&tree->listed, i);
		return task;
	}
	return new_task(pid);
}

static void free_all(struct sp_array *tasks)
{
	for (size_t i = 0; i < tasks->count; i++)
		free_task(sp_array_pointer(tasks, i));
	sp_array_release(tasks);
}

void sp_tree_init(struct tree *tree, pid_t root)
{
	*tree = (struct tree){
	        .tasks = SP_ARRAY_OF(struct task *),
	        .ended = SP_ARRAY_OF(pid_t),
	        .listed = SP_ARRAY_OF(struct task *),
	};
	add_task(tree, root);
}

void sp_tree_release(struct tree *tree)
{
	free_all(&tree->tasks);
	free_all(&tree->listed);
	sp_array_release(&tree->ended);
}

void sp_tree_drop(struct tree *tree, size_t index)
{
	free_task(sp_tree_task(tree, index));
	sp_array_remove(&tree->tasks, index);
}

void sp_tree_pids(const struct tree *tree, struct sp_array *pids)
{
	for (size_t i = 0; i < tree->tasks.count; i++)
		sp_array_append(pids, &sp_tree_task(tree, i)->process.pid);
}

static struct task *find_task(const struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->tasks.count; i++)
		if (sp_tree_task(tree, i)->process.pid == pid)
			return sp_tree_task(tree, i);
	return NULL;
}

static bool is_known(const struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->ended.count; i++)
		if (sp_tree_ended(tree, i) == pid)
			return true;
	return find_task(tree, pid) != NULL;
}

/* --- while they run --- */

static bool can_be_listed(const struct tree *tree, pid_t pid)
{
	struct sp_stat stat;

	return pid != getpid() && !is_known(tree, pid) &&
	       !sp_stat_read(pid, sp_living_thread(pid), &stat, NULL) && !sp_stat_has_ended(&stat);
}

static void list_sharers(const struct tree *tree, struct sp_array *sharers)
{
	for (size_t i = 0; i < tree->tasks.count; i++) {
		const struct sp_process *process = &sp_tree_task(tree, i)->process;

		*(struct sp_sharer *)sp_array_push(sharers) =
		        (struct sp_sharer){process->pid, sp_process_living(process)};
	}
}

/* They are met in the freeze: their memory is copied, and tracked, with that of another. */
static void drop_sharers(struct tree *tree)
{
	sp_cleanup_array struct sp_array sharers = SP_ARRAY_OF(struct sp_sharer);
	sp_cleanup_array struct sp_array sharing = SP_ARRAY_OF(struct sp_sharing);

	list_sharers(tree, &sharers);
	sp_sharing_find_memory(&sharers, &sharing);
	for (size_t i = sharing.count; i-- > 0;)
		if (((struct sp_sharing *)sp_array_at(&sharing, i))->memory)
			sp_tree_drop(tree, i);
}

void sp_tree_list(struct tree *tree)
{
	for (size_t i = 0; i < tree->tasks.count; i++) {
		sp_cleanup_array struct sp_array children = SP_ARRAY_OF(pid_t);

		sp_children_read(sp_tree_task(tree, i)->process.pid, &children, NULL);
		for (size_t j = 0; j < children.count; j++) {
			pid_t pid = *(pid_t *)sp_array_at(&children, j);

			if (can_be_listed(tree, pid))
				add_task(tree, pid);
		}
	}
	drop_sharers(tree);
}

/* One that is about to has no memory any more, and ESRCH says so. */
bool sp_tree_has_lost(pid_t pid, int code)
{
	struct sp_stat stat;

	return code == -ESRCH || sp_stat_read(pid, sp_living_thread(pid), &stat, NULL) ||
	       sp_stat_has_ended(&stat);
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

static int stop_task(struct task *task, uint64_t deadline_ns, struct sp_error *err)
{
	struct sp_process *process = &task->process;

	return process->watched ? sp_process_stop(process, deadline_ns, err)
	                        : sp_process_seize(process, process->pid, deadline_ns, err);
}

/* What serves the root serves its child, more often than not; if not, that is seen in time. */
static int stop_child(struct tree *tree, pid_t pid, uint64_t deadline_ns, struct sp_error *err)
{
	struct task *task = find_or_make_task(tree, pid);
	int rc = stop_task(task, deadline_ns, err);

	if (!rc) {
		if (!task->foothold.instruction)
			task->foothold = sp_tree_root(tree)->foothold;
		sp_array_append(&tree->tasks, &task);
		return 0;
	}
	free_task(task);
	if (rc == -ESRCH && sp_now_ns() < deadline_ns) {
		note_ended(tree, pid);
		*err = (struct sp_error){0};
		rc = 0;
	}
	return rc;
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

/* One of the stopped was killed. Its parent, and nobody else, learns of that when we have. */
static void await_end(const struct sp_process *process)
{
	sp_process_collect_dead(process);
	if (!sp_process_is_gone(process->pidfd))
		nanosleep(&(struct timespec){.tv_nsec = ENDING_PAUSE_NS}, NULL);
}

/*
 * What became of those that were killed while others still ran: the dead wait for their parents, as
 * others that have ended, and their children are those of somebody else now. If that is nobody of the
 * tree, these go on, as orphans do. Returns how many there were; then there is another look to take.
 */
static int settle(struct tree *tree)
{
	int moved = 0;

	for (size_t i = 1; i < tree->tasks.count;) {
		struct task *task = sp_tree_task(tree, i);
		pid_t pid = task->process.pid;
		struct sp_stat stat;
		bool ending = sp_process_is_ending(&task->process);

		if (ending)
			await_end(&task->process);
		task->parent =
		        sp_stat_read(pid, pid, &stat, NULL) ? NULL : find_task(tree, stat.ppid);
		moved += ending || !task->parent;
		if (task->parent && (!ending || !sp_process_is_gone(task->process.pidfd))) {
			i++;
			continue;
		}
		if (task->parent)
			sp_array_append(&tree->ended, &pid);
		sp_tree_drop(tree, i);
	}
	return moved;
}

/* Those that have ended and wait for somebody out of the tree by now, or do not wait any more. */
static void forget_ended(struct tree *tree)
{
	pid_t *ended = tree->ended.items;
	size_t kept = 0;

	for (size_t i = 0; i < tree->ended.count; i++) {
		struct sp_stat stat;

		if (!sp_stat_read(ended[i], ended[i], &stat, NULL) && find_task(tree, stat.ppid))
			ended[kept++] = ended[i];
	}
	tree->ended.count = kept;
}

static int check_time(const struct tree *tree, uint64_t deadline_ns, struct sp_error *err)
{
	if (sp_now_ns() < deadline_ns)
		return sp_interrupt_check(err);
	return sp_fail(
	        err, ETIMEDOUT,
	        "%s: its processes were killed faster than they could be stopped; try again, "
	        "or with a longer --timeout",
	        sp_process_name(sp_tree_root(tree)->process.pid).text);
}

int sp_tree_find_sharing(const struct tree *tree, struct sp_error *err)
{
	sp_cleanup_array struct sp_array sharers = SP_ARRAY_OF(struct sp_sharer);
	sp_cleanup_array struct sp_array sharing = SP_ARRAY_OF(struct sp_sharing);
	int rc;

	list_sharers(tree, &sharers);
	rc = sp_sharing_check_parent(sp_tree_root(tree)->process.pid, err);
	if (!rc)
		rc = sp_sharing_find(&sharers, &sharing, err);
	for (size_t i = 0; i < sharing.count && !rc; i++) {
		struct task *task = sp_tree_task(tree, i);

		task->sharing = *(struct sp_sharing *)sp_array_at(&sharing, i);
		if (task->sharing.memory)
			task->memory_of = find_task(tree, task->sharing.memory);
		task->memory_of->shares_memory |= task->memory_of != task;
	}
	return rc;
}

int sp_tree_stop(struct tree *tree, uint64_t deadline_ns, struct sp_error *err)
{
	int rc;

	/* All but the root are met again as its descendants, in an order that is that of the tree. */
	for (size_t i = 1; i < tree->tasks.count; i++)
		sp_array_append(&tree->listed, sp_array_at(&tree->tasks, i));
	tree->tasks.count = 1;
	rc = stop_task(sp_tree_root(tree), deadline_ns, err);
	if (rc)
		return rc;
	do
		rc = stop_new(tree, deadline_ns, err);
	while (rc > 0 || (!rc && settle(tree) > 0 && !(rc = check_time(tree, deadline_ns, err))));
	forget_ended(tree);
	free_all(&tree->listed);
	return rc;
}

bool sp_tree_is_ending(const struct tree *tree)
{
	for (size_t i = 0; i < tree->tasks.count; i++)
		if (sp_process_is_ending(&sp_tree_task(tree, i)->process))
			return true;
	return false;
}

/* --- beforehand --- */

/* A child that begins only now is like its parent, and one that has ended is not driven. */
static bool survives(pid_t pid, struct sp_foothold *foothold)
{
	sp_cleanup_array struct sp_array children = SP_ARRAY_OF(pid_t);
	struct sp_stat stat;
	pid_t living = sp_living_thread(pid);
	bool safe = (!sp_stat_read(pid, living, &stat, NULL) && sp_stat_has_ended(&stat)) ||
	            sp_foothold_is_safe(living, foothold);

	if (safe)
		sp_children_read(pid, &children, NULL);
	for (size_t i = 0; i < children.count && safe; i++)
		safe = survives(*(pid_t *)sp_array_at(&children, i), foothold);
	return safe;
}

bool sp_target_survives(pid_t pid)
{
	struct sp_foothold foothold = {0};

	return survives(pid, &foothold);
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
