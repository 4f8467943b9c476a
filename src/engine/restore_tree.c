/*
 * The birth of a tree of processes: see restore_parts.h.
 *
 * Each process is cloned by its parent, as a stub with all that sealpoint has (stub.h), so that it
 * has its parent by itself. What it cannot choose is its session: it is born into that of the one
 * who clones it, and can only begin a new one. Three cases:
 *
 *   - its parent is in that session: it is born when its parent is;
 *   - its parent has begun a session of its own since: it is born before its parent does so;
 *   - neither, because it was orphaned and came to the parent that it has (a subreaper): somebody of
 *     its session clones it, and ends, so that it is orphaned again.
 *
 * Helpers stand in for those that are gone: the leader of a session or of a process group, or the
 * parent that an orphan had. They have their ids, and end when all are born.
 *
 * A process that has ended and whose parent does not know it yet is born like any other, ends in the
 * same way, and waits for its parent.
 */
#include "engine/restore_parts.h"

#include "base/cleanup.h"
#include "base/kernel_abi.h"
#include "engine/stub.h"
#include "proc/stat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct task *root_of(const struct restore *restore)
{
	return sp_restore_task(restore, 0);
}

static struct task *find_task(const struct restore *restore, pid_t pid)
{
	for (size_t i = 0; i < restore->tasks.count; i++)
		if (sp_restore_task(restore, i)->pid == pid)
			return sp_restore_task(restore, i);
	return NULL;
}

static struct task *parent_of(const struct restore *restore, const struct task *task)
{
	return find_task(restore, (pid_t)task->record->ppid);
}

static pid_t session_of(const struct task *task)
{
	return task->leads_session ? task->pid : (pid_t)task->record->sid;
}

/* --- the list --- */

static struct task *add_task(struct restore *restore, pid_t pid)
{
	struct task *task = sp_alloc(sizeof(*task));

	*task = (struct task){
	        .pid = pid,
	        .threads = SP_ARRAY_OF(const Sealpoint__Thread *),
	        .process = {.pid = pid, .pidfd = -1},
	};
	sp_array_append(&restore->tasks, &task);
	return task;
}

static void free_task(struct task *task)
{
	task->remote.engaged = false; /* there is nobody any more to be driven */
	sp_remote_close(&task->remote, NULL);
	sp_process_forget(&task->process);
	sp_array_release(&task->threads);
	free(task);
}

void sp_restore_list_tasks(struct restore *restore)
{
	const struct sp_checkpoint *checkpoint = restore->checkpoint;
	struct task *task = NULL;

	for (size_t i = 0; i < checkpoint->processes.count; i++) {
		const Sealpoint__Process *record = sp_array_pointer(&checkpoint->processes, i);

		task = add_task(restore, (pid_t)record->pid);

		task->record = record;
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

static struct task *add_helper(struct restore *restore, pid_t pid, struct task *mother)
{
	struct task *helper = add_task(restore, pid);

	helper->mother = mother;
	return helper;
}

/* Has an ancestor this session? Then the parent may have had it too, before it began its own. */
static bool is_older_session(const struct restore *restore, const struct task *parent,
                             pid_t session)
{
	while (parent != root_of(restore)) {
		parent = parent_of(restore, parent);
		if (session_of(parent) == session)
			return true;
	}
	return false;
}

/* Somebody of the orphan's session who is going to end. */
static struct task *find_lost_mother(struct restore *restore, const struct task *orphan,
                                     struct task *parent)
{
	struct task *leader = find_task(restore, orphan->birth_session);

	if (!leader) {
		leader = add_helper(restore, orphan->birth_session, parent);
		leader->leads_session = true;
	} else if (leader->record && !leader->record->ended) {
		leader = add_helper(restore, find_spare_id(restore), leader);
	}
	return leader;
}

/* All children of it have been planned: it knows which session they need it to be born into. */
static void plan_birth(struct restore *restore, struct task *task)
{
	struct task *parent = parent_of(restore, task);
	pid_t session = task->birth_session;

	task->mother = parent;
	if (!session || session == session_of(parent))
		return;
	if (parent->leads_session && (!parent->birth_session || parent->birth_session == session) &&
	    is_older_session(restore, parent, session)) {
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
static bool keeps_group(const struct restore *restore, const struct task *task)
{
	const Sealpoint__Process *root = root_of(restore)->record;

	return !root_of(restore)->leads_session && task->record->sid == root->sid &&
	       task->record->pgid == root->pgid;
}

static void plan_group(struct restore *restore, const struct task *task)
{
	pid_t group = (pid_t)task->record->pgid;
	struct task *member;

	if (task->leads_session || keeps_group(restore, task) || find_task(restore, group))
		return;
	member = find_task(restore, session_of(task));
	add_helper(restore, group, member ? member : root_of(restore))->leads_group = true;
}

static int plan(struct restore *restore, struct sp_error *err)
{
	size_t count = restore->tasks.count;
	const struct task *root = root_of(restore);

	if (!root->leads_session && !restore->options->kinds.shell_job)
		return sp_fail(err, ENOTSUP,
		               "process %d belongs to session %u, which another process leads; use "
		               "--shell-job, and it joins the session of sealpoint",
		               root->pid, root->record->sid);
	for (size_t i = count; i-- > 1;)
		plan_birth(restore, sp_restore_task(restore, i));
	for (size_t i = 0; i < count; i++)
		plan_group(restore, sp_restore_task(restore, i));
	return 0;
}

/* --- birth --- */

static int bear(struct restore *restore, struct task *task, struct sp_array *born,
                struct sp_error *err)
{
	int signal = task->record ? (int)task->record->exit_signal : 0;
	int rc;

	if (task->mother)
		rc = sp_stub_add_process(&task->mother->remote, &task->process, &task->remote,
		                         task->pid, signal, err);
	else
		rc = sp_stub_start_process(&task->process, &task->remote, task->pid, restore->code,
		                           err);
	if (!rc)
		sp_array_append(born, &task);
	return rc;
}

static int bear_children(struct restore *restore, const struct task *mother, bool born_before,
                         struct sp_array *born, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 1; i < restore->tasks.count && !rc; i++) {
		struct task *task = sp_restore_task(restore, i);

		if (task->mother == mother && task->born_before == born_before)
			rc = bear(restore, task, born, err);
	}
	return rc;
}

static int call(struct task *task, struct sp_error *err, const char *what, long number, uint64_t a0,
                uint64_t a1)
{
	sp_batch_begin(&task->remote);
	if (!sp_remote_call(&task->remote, NULL, err, what, number, a0, a1, 0, 0, 0, 0))
		return 0;
	return sp_error_context(err, "cannot restore process %d", task->pid);
}

/* One generation after the other. `born` has all in this order. */
static int bear_all(struct restore *restore, struct sp_array *born, struct sp_error *err)
{
	int rc = bear(restore, root_of(restore), born, err);

	for (size_t i = 0; i < born->count && !rc; i++) {
		struct task *mother = sp_array_pointer(born, i);

		rc = bear_children(restore, mother, true, born, err);
		if (!rc && mother->leads_session)
			rc = call(mother, err, "begin the session", SYS_setsid, 0, 0);
		if (!rc)
			rc = bear_children(restore, mother, false, born, err);
	}
	if (!rc && born->count != restore->tasks.count)
		return sp_fail(err, EBADMSG,
		               "the sessions of its processes do not fit their parents");
	return rc;
}

/* --- groups --- */

static bool begins_group(const struct restore *restore, const struct task *task)
{
	if (!task->record)
		return task->leads_group;
	return !task->leads_session && !keeps_group(restore, task) &&
	       (pid_t)task->record->pgid == task->pid;
}

static bool joins_group(const struct restore *restore, const struct task *task)
{
	return task->record && !keeps_group(restore, task) &&
	       (pid_t)task->record->pgid != task->pid;
}

static int make_groups(struct restore *restore, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < restore->tasks.count && !rc; i++)
		if (begins_group(restore, sp_restore_task(restore, i)))
			rc = call(sp_restore_task(restore, i), err, "begin the process group",
			          SYS_setpgid, 0, 0);
	for (size_t i = 0; i < restore->tasks.count && !rc; i++) {
		struct task *task = sp_restore_task(restore, i);

		if (joins_group(restore, task))
			rc = call(task, err, "join the process group", SYS_setpgid, 0,
			          task->record->pgid);
	}
	return rc;
}

/* --- those that end, and those that are stopped --- */

static int check_adopted(const struct task *child, struct sp_error *err)
{
	struct sp_stat stat;
	int rc = sp_stat_read(child->pid, child->pid, &stat, err);

	if (rc || stat.ppid == (pid_t)child->record->ppid)
		return rc;
	return sp_fail(err, ECHILD,
	               "process %d, an orphan, came to process %d and not to its parent %u",
	               child->pid, stat.ppid, child->record->ppid);
}

/* The one to whom the children of a process go that is going to end, or NULL. */
static struct task *find_adopter(const struct restore *restore, const struct task *mother)
{
	for (size_t i = 1; i < restore->tasks.count; i++) {
		const struct task *task = sp_restore_task(restore, i);

		if (task->mother == mother && task->record)
			return parent_of(restore, task);
	}
	return NULL;
}

/* The parent has had a signal of it already, which is not to come twice. */
static int forget_signal(struct task *parent, uint32_t signal, struct sp_error *err)
{
	struct sp_remote *remote = &parent->remote;
	uint64_t set = signal ? 1ULL << (signal - 1) : 0;
	struct timespec none = {0};
	remote_addr address;

	if (!set || (int)signal == remote->marker_signal)
		return 0;
	sp_batch_begin(remote);
	address = sp_batch_put(remote, &set, sizeof(set));
	return sp_remote_try(remote, NULL, err, "forget a signal", SYS_rt_sigtimedwait, address, 0,
	                     sp_batch_put(remote, &none, sizeof(none)), sizeof(set), 0, 0);
}

static int await(struct task *parent, pid_t pid, int options, struct sp_error *err)
{
	sp_batch_begin(&parent->remote);
	return sp_remote_call(&parent->remote, NULL, err, "wait for a child", SYS_waitid, P_PID,
	                      (uint64_t)pid, 0, (uint64_t)(unsigned)(options | __WALL), 0, 0);
}

/* A helper is collected by its mother, and one that has ended waits for its parent. */
static int await_end(struct restore *restore, struct task *task, struct sp_error *err)
{
	struct task *parent = task->record ? parent_of(restore, task) : task->mother;
	int rc = await(parent, task->pid, WEXITED | (task->record ? WNOWAIT : 0), err);

	if (rc || !task->record)
		return rc;
	return forget_signal(parent, task->record->exit_signal, err);
}

/* Its name is all that people see of one that has ended. */
static int name(struct task *task, struct sp_error *err)
{
	struct sp_remote *remote = &task->remote;

	if (!task->record)
		return 0;
	sp_batch_begin(remote);
	return sp_remote_call(remote, NULL, err, "set the name", SYS_prctl, PR_SET_NAME,
	                      sp_batch_string(remote, task->record->comm), 0, 0, 0, 0);
}

static int end(struct restore *restore, struct task *task, struct sp_error *err)
{
	struct task *adopter = find_adopter(restore, task);
	int rc = name(task, err);

	if (!rc && adopter)
		rc = call(adopter, err, "let orphans come to it", SYS_prctl, PR_SET_CHILD_SUBREAPER,
		          1);
	if (!rc)
		rc = sp_stub_end(&task->process, &task->remote,
		                 task->record ? task->record->wait_status : 0, err);
	if (!rc)
		rc = await_end(restore, task, err);
	if (!rc && adopter)
		rc = call(adopter, err, "let orphans go elsewhere", SYS_prctl,
		          PR_SET_CHILD_SUBREAPER, 0);
	for (size_t i = 1; i < restore->tasks.count && !rc; i++) {
		const struct task *child = sp_restore_task(restore, i);

		if (child->mother == task && child->record)
			rc = check_adopted(child, err);
	}
	return rc;
}

/* The last born first: nobody ends before those whom it has to collect. */
static int end_all(struct restore *restore, const struct sp_array *born, bool helpers,
                   struct sp_error *err)
{
	int rc = 0;

	for (size_t i = born->count; i-- > 0 && !rc;) {
		struct task *task = sp_array_pointer(born, i);

		if (helpers ? !task->record : task->record && task->record->ended)
			rc = end(restore, task, err);
	}
	return rc;
}

/*
 * The kernel stops it as soon as we let it go: a tracer can go on with a stopped process. The root is
 * stopped in the end, for sealpoint to hear of it.
 */
static int stop(struct restore *restore, struct task *task, struct sp_error *err)
{
	struct task *parent = parent_of(restore, task);
	int rc;

	if (kill(task->pid, SIGSTOP))
		return sp_fail_errno(err, errno, "cannot stop process %d", task->pid);
	rc = call(task, err, "stop", SYS_getpid, 0, 0);
	if (!rc)
		rc = await(parent, task->pid, WSTOPPED | (task->record->wait_status ? WNOWAIT : 0),
		           err);
	task->stopped = !rc;
	return rc ? rc : forget_signal(parent, SIGCHLD, err);
}

static int stop_all(struct restore *restore, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 1; i < restore->tasks.count && !rc; i++)
		if (sp_restore_task(restore, i)->record->stopped)
			rc = stop(restore, sp_restore_task(restore, i), err);
	return rc;
}

static void keep_living(struct restore *restore)
{
	struct task **tasks = restore->tasks.items;
	size_t kept = 0;

	for (size_t i = 0; i < restore->tasks.count; i++) {
		if (tasks[i]->record && !tasks[i]->record->ended)
			tasks[kept++] = tasks[i];
		else
			free_task(tasks[i]);
	}
	restore->tasks.count = kept;
}

/* --- the whole --- */

static int find_room(struct restore *restore, struct sp_error *err)
{
	uint64_t size = SP_REMOTE_SIZE + SP_PAGE_SIZE + sp_vdso_size();

	return sp_memory_find_free(restore->checkpoint, size, &restore->code, err);
}

int sp_restore_tree(struct restore *restore, struct sp_error *err)
{
	sp_cleanup_array struct sp_array born = SP_ARRAY_OF(struct task *);
	int rc = plan(restore, err);

	if (!rc)
		rc = find_room(restore, err);
	if (!rc)
		rc = bear_all(restore, &born, err);
	if (!rc)
		rc = make_groups(restore, err);
	if (!rc)
		rc = end_all(restore, &born, true, err);
	if (!rc)
		rc = end_all(restore, &born, false, err);
	if (!rc)
		keep_living(restore);
	return rc ? rc : stop_all(restore, err);
}

static enum sp_release fate(const struct restore *restore, const struct task *task, bool restored)
{
	if (!restored)
		return SP_RELEASE_KILL;
	if (task->stopped || !(restore->options->leave_stopped || task->record->stopped))
		return SP_RELEASE_RUN;
	return SP_RELEASE_STOP;
}

/*
 * All or none: the moment in which a killed sealpoint would leave a part of the tree is the one of the
 * first loop, which does nothing else. Then children first: nobody hears of a child, or misses one,
 * before that is what it was.
 */
void sp_restore_release_tasks(struct restore *restore, bool restored)
{
	for (size_t i = 0; i < restore->tasks.count && restored; i++)
		sp_stub_outlive(&sp_restore_task(restore, i)->process);
	for (size_t i = restore->tasks.count; i-- > 0;) {
		struct task *task = sp_restore_task(restore, i);

		if (task->process.threads.count)
			sp_process_release(&task->process, fate(restore, task, restored));
	}
	for (size_t i = 0; i < restore->tasks.count; i++)
		free_task(sp_restore_task(restore, i));
	sp_array_release(&restore->tasks);
	/* Orphans of stubs, which have come to us. */
	while (!restored && waitpid(-1, NULL, WNOHANG | __WALL) > 0)
		;
}
