/*
 * The plan of a tree of processes: who they are, who bears whom, and when. It is carried
 * out by restore_tree.c.
 *
 * Each process is cloned by its parent, so that it has its parent by itself. What it cannot choose is
 * its session: it is born into that of the one who clones it, and can only begin a new one. Three
 * cases:
 *
 *   - its parent is in that session: it is born when its parent is;
 *   - its parent has begun a session of its own since: it is born before its parent does so;
 *   - neither, because it was orphaned and came to the parent that it has (a subreaper): somebody of
 *     its session clones it, and ends, so that it is orphaned again.
 *
 * Helpers stand in for those that are gone: the leader of a session or of a process group, or the
 * parent that an orphan had. They have their ids, and end when all are born.
 */
#include "engine/restore_parts.h"

#include "kinds/sharing.h"

#include <errno.h>
#include <signal.h>

static struct restore_task *root_of(const struct restore *restore)
{
	return sp_restore_task(restore, 0);
}

static struct restore_task *find_task(const struct restore *restore, pid_t pid)
{
	for (size_t i = 0; i < restore->tasks.count; i++)
		if (sp_restore_task(restore, i)->pid == pid)
			return sp_restore_task(restore, i);
	return NULL;
}

static pid_t session_of(const struct restore_task *task)
{
	return task->leads_session ? task->pid : (pid_t)task->record->sid;
}

struct restore_task *sp_restore_session_leader(const struct restore *restore,
                                               const struct restore_task *task)
{
	return find_task(restore, session_of(task));
}

/* --- the list --- */

static struct restore_task *add_task(struct restore *restore, pid_t pid)
{
	struct restore_task *task = sp_alloc(sizeof(*task));

	*task = (struct restore_task){
	        .pid = pid,
	        .threads = SP_ARRAY_OF(const Sealpoint__Thread *),
	        .process = {.pid = pid, .pidfd = -1},
	};
	task->memory_of = task;
	sp_array_append(&restore->tasks, &task);
	return task;
}

void sp_restore_list_tasks(struct restore *restore)
{
	const struct sp_checkpoint *checkpoint = restore->checkpoint;
	struct restore_task *task = NULL;

	for (size_t i = 0; i < checkpoint->processes.count; i++) {
		const Sealpoint__Process *record = sp_array_pointer(&checkpoint->processes, i);

		task = add_task(restore, (pid_t)record->pid);
		task->record = record;
		if (record->memory_of)
			task->memory_of = find_task(restore, (pid_t)record->memory_of);
		task->parent = i ? find_task(restore, (pid_t)record->ppid) : NULL;
		task->leads_session = record->sid == record->pid;
		task->birth_session = task->leads_session ? 0 : (pid_t)record->sid;
		task->memory = (struct sp_memory_build){
		        .checkpoint = checkpoint,
		        .process = record,
		        .remote = &task->remote,
		        .log = restore->options->log,
		};
	}
	for (size_t i = 0; i < checkpoint->threads.count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(&checkpoint->threads, i);

		sp_array_append(&find_task(restore, (pid_t)thread->pid)->threads, &thread);
	}
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);

		if (!task || task->pid != (pid_t)vma->pid)
			task = find_task(restore, (pid_t)vma->pid);
		if (!task->memory.end_vma)
			task->memory.first_vma = i;
		task->memory.end_vma = i + 1;
		task->inherits |= vma->n_inherited > 0;
	}
}

/* --- who bears whom, and when --- */

static bool is_in_image(const struct restore *restore, pid_t id)
{
	const struct sp_array *threads = &restore->checkpoint->threads;

	for (size_t i = 0; i < threads->count; i++)
		if (((const Sealpoint__Thread *)sp_array_pointer(threads, i))->tid == (uint32_t)id)
			return true;
	return find_task(restore, id) != NULL;
}

/* An id that nobody has now, and nobody needs. */
static pid_t find_spare_id(const struct restore *restore)
{
	pid_t id = root_of(restore)->pid - 1;

	while (id > 1 && (is_in_image(restore, id) || kill(id, 0) == 0 || errno != ESRCH))
		id--;
	return id;
}

static struct restore_task *add_helper(struct restore *restore, pid_t pid,
                                       struct restore_task *mother)
{
	struct restore_task *helper = add_task(restore, pid);

	helper->mother = mother;
	return helper;
}

/* Has an ancestor this session? Then the parent may have had it too, before it began its own. */
static bool is_older_session(const struct restore_task *parent, pid_t session)
{
	while ((parent = parent->parent))
		if (session_of(parent) == session)
			return true;
	return false;
}

/* Somebody of the orphan's session who is going to end. */
static struct restore_task *find_lost_mother(struct restore *restore,
                                             const struct restore_task *orphan,
                                             struct restore_task *parent)
{
	struct restore_task *leader = find_task(restore, orphan->birth_session);

	if (!leader) {
		leader = add_helper(restore, orphan->birth_session, parent);
		leader->leads_session = true;
	} else if (leader->record && !leader->record->ended) {
		leader = add_helper(restore, find_spare_id(restore), leader);
	}
	return leader;
}

/* All children of it have been planned: it knows which session they need it to be born into. */
static void plan_birth(struct restore *restore, struct restore_task *task)
{
	struct restore_task *parent = task->parent;
	pid_t session = task->birth_session;

	task->mother = parent;
	if (!session || session == session_of(parent))
		return;
	if (parent->leads_session && (!parent->birth_session || parent->birth_session == session) &&
	    is_older_session(parent, session)) {
		task->born_before = true;
		parent->birth_session = session;
	} else {
		task->mother = find_lost_mother(restore, task, parent);
	}
}

/*
 * The root and others of its group are in the session of somebody else: with --shell-job they are
 * born into sealpoint's session and group, and stay there.
 */
static bool keeps_group(const struct restore *restore, const struct restore_task *task)
{
	const Sealpoint__Process *root = root_of(restore)->record;

	return !root_of(restore)->leads_session && task->record->sid == root->sid &&
	       task->record->pgid == root->pgid;
}

static void plan_group(struct restore *restore, struct restore_task *task)
{
	pid_t group = (pid_t)task->record->pgid;
	struct restore_task *leader;

	if (keeps_group(restore, task))
		return;
	task->joins_group = group != task->pid;
	task->begins_group = !task->joins_group && !task->leads_session;
	if (task->leads_session || find_task(restore, group))
		return;
	leader = sp_restore_session_leader(restore, task);
	add_helper(restore, group, leader ? leader : root_of(restore))->begins_group = true;
}

/* The group in the foreground, of which nobody is left: the terminal still has its id. */
static void plan_foreground(struct restore *restore, struct restore_task *leader)
{
	pid_t group = (pid_t)leader->record->foreground;

	if (!leader->leads_session || !group || find_task(restore, group) || !kill(group, 0) ||
	    !kill(-group, 0))
		return;
	add_helper(restore, group, leader)->begins_group = true;
}

/* A helper shares nothing. */
static struct sp_sharing sharing_of(const struct restore_task *task)
{
	if (!task->record)
		return (struct sp_sharing){0};
	return (struct sp_sharing){
	        .memory = (pid_t)task->record->memory_of,
	        .actions = (pid_t)task->record->actions_of,
	        .descriptors = (pid_t)task->record->descriptors_of,
	        .directories = (pid_t)task->record->directories_of,
	};
}

static bool serves(const struct restore_task *bearer, const struct restore_task *task)
{
	return sp_sharing_serves(bearer->pid, sharing_of(bearer), task->pid, sharing_of(task));
}

/* Whoever shares what its mother does not have is cloned by a brother, and before anybody's memory is filled. */
static int plan_brother(struct restore *restore, size_t index, struct sp_error *err)
{
	struct restore_task *task = sp_restore_task(restore, index);

	if (serves(task->mother, task))
		return 0;
	for (size_t i = 1; i < index; i++) {
		struct restore_task *brother = sp_restore_task(restore, i);

		if (brother->mother != task->mother || brother->born_before != task->born_before ||
		    brother->birth_session != task->birth_session || brother->record->ended ||
		    !serves(brother, task))
			continue;
		task->brother = brother;
		task->inherits = brother->inherits = false;
		return 0;
	}
	return sp_fail(
	        err, ENOTSUP,
	        "process %d shared its memory, descriptors or directories with processes of which "
	        "none can clone it now",
	        task->pid);
}

int sp_restore_plan(struct restore *restore, struct sp_error *err)
{
	size_t count = restore->tasks.count;
	const struct restore_task *root = root_of(restore);
	int rc = 0;

	if (!root->leads_session && !restore->options->kinds.shell_job)
		return sp_fail(err, ENOTSUP,
		               "process %d belongs to session %u, which another process leads; use "
		               "--shell-job, and it joins the session of sealpoint",
		               root->pid, root->record->sid);
	for (size_t i = count; i-- > 1;)
		plan_birth(restore, sp_restore_task(restore, i));
	/* An orphan that somebody else bears than its parent inherits nothing of that. */
	for (size_t i = 1; i < count; i++) {
		struct restore_task *task = sp_restore_task(restore, i);

		task->inherits &= task->mother == task->parent;
	}
	for (size_t i = 1; i < count && !rc; i++)
		rc = plan_brother(restore, i, err);
	for (size_t i = 0; i < count; i++)
		plan_group(restore, sp_restore_task(restore, i));
	for (size_t i = 0; i < count; i++)
		plan_foreground(restore, sp_restore_task(restore, i));
	return rc;
}
