/*
 * The birth of a tree of processes, as restore_plan.c has planned it: see restore_parts.h. Each is
 * cloned as a stub with all that sealpoint has (stub.h).
 *
 * The controlling terminal is that of a session: its leader takes it when the session begins, and
 * those that are born into the session have it by that.
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
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static void free_task(struct restore_task *task)
{
	task->remote.engaged = false; /* there is nobody any more to be driven */
	sp_remote_close(&task->remote, NULL);
	sp_process_forget(&task->process);
	sp_array_release(&task->threads);
	sp_memory_release(&task->memory);
	free(task);
}

/* --- birth --- */

/* What it shares, whoever clones it has. */
static uint64_t clone_flags(const struct restore_task *task)
{
	uint64_t flags = task->brother ? CLONE_PARENT : 0;

	if (task->record && task->record->memory_of)
		flags |= CLONE_VM;
	if (task->record && task->record->actions_of)
		flags |= CLONE_SIGHAND;
	if (task->record && task->record->descriptors_of)
		flags |= CLONE_FILES;
	if (task->record && task->record->directories_of)
		flags |= CLONE_FS;
	return flags;
}

/* Its parent's memory is filled first if there are pages to inherit. The vDSO is where its mother's is. */
static int bear_child(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	struct restore_task *mother = task->mother->memory_of;
	struct restore_task *bearer = task->brother ? task->brother : task->mother;
	int signal = task->record ? (int)task->record->exit_signal : 0;
	int rc = task->inherits ? sp_restore_fill_memory(restore, mother, err) : 0;

	if (rc)
		return rc;
	if (task->inherits)
		task->memory.parent = &mother->memory;
	task->memory.parked_vdso = mother->memory.parked_vdso;
	task->memory.parked_vvar = mother->memory.parked_vvar;
	return sp_stub_add_process(&bearer->remote, &task->process, &task->remote, task->pid,
	                           clone_flags(task), signal, err);
}

static int bear(struct restore *restore, struct restore_task *task, struct sp_array *born,
                struct sp_error *err)
{
	int rc;

	if (task->mother)
		rc = bear_child(restore, task, err);
	else
		rc = sp_stub_start_process(&task->process, &task->remote, task->pid, restore->code,
		                           restore->options->sibling, err);
	if (!rc)
		sp_array_append(born, &task);
	return rc;
}

static int bear_some(struct restore *restore, const struct restore_task *mother, bool born_before,
                     bool inherits, struct sp_array *born, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 1; i < restore->tasks.count && !rc; i++) {
		struct restore_task *task = sp_restore_task(restore, i);

		if (task->mother == mother && task->born_before == born_before &&
		    task->inherits == inherits)
			rc = bear(restore, task, born, err);
	}
	return rc;
}

/* Those first that inherit nothing: to clone them takes longer when the memory of their mother is filled. */
static int bear_children(struct restore *restore, const struct restore_task *mother,
                         bool born_before, struct sp_array *born, struct sp_error *err)
{
	int rc = bear_some(restore, mother, born_before, false, born, err);

	return rc ? rc : bear_some(restore, mother, born_before, true, born, err);
}

static int call(struct restore_task *task, struct sp_error *err, const char *what, long number,
                uint64_t a0, uint64_t a1)
{
	sp_batch_begin(&task->remote);
	if (!sp_remote_call(&task->remote, NULL, err, what, number, a0, a1, 0, 0, 0, 0))
		return 0;
	return sp_error_context(err, "cannot restore process %d", task->pid);
}

/* With its terminal, which its children have by being born. */
static int begin_session(struct restore *restore, struct restore_task *leader, struct sp_error *err)
{
	int rc = call(leader, err, "begin the session", SYS_setsid, 0, 0);

	if (rc || !leader->record || !leader->record->terminal)
		return rc;
	return call(leader, err, "take its controlling terminal", SYS_ioctl,
	            (uint64_t)restore->files.fds[leader->record->terminal], TIOCSCTTY);
}

/* One generation after the other. `born` has all in this order. */
static int bear_all(struct restore *restore, struct sp_array *born, struct sp_error *err)
{
	int rc = bear(restore, sp_restore_task(restore, 0), born, err);

	for (size_t i = 0; i < born->count && !rc; i++) {
		struct restore_task *mother = sp_array_pointer(born, i);

		rc = bear_children(restore, mother, true, born, err);
		if (!rc && mother->leads_session)
			rc = begin_session(restore, mother, err);
		if (!rc)
			rc = bear_children(restore, mother, false, born, err);
	}
	if (!rc && born->count != restore->tasks.count)
		return sp_fail(err, EBADMSG,
		               "the sessions of its processes do not fit their parents");
	return rc;
}

/* --- groups --- */

static int make_groups(struct restore *restore, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < restore->tasks.count && !rc; i++)
		if (sp_restore_task(restore, i)->begins_group)
			rc = call(sp_restore_task(restore, i), err, "begin the process group",
			          SYS_setpgid, 0, 0);
	for (size_t i = 0; i < restore->tasks.count && !rc; i++) {
		struct restore_task *task = sp_restore_task(restore, i);

		if (task->joins_group)
			rc = call(task, err, "join the process group", SYS_setpgid, 0,
			          task->record->pgid);
	}
	return rc;
}

/* --- terminals --- */

/* One of a session with a terminal that has none itself has given it up. */
static int leave_terminal(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	const struct restore_task *leader =
	        task->record ? sp_restore_session_leader(restore, task) : NULL;
	struct sp_remote *remote = &task->remote;
	int64_t slave;
	int rc;

	if (!leader || leader == task || !leader->record || !leader->record->terminal ||
	    task->record->terminal || task->record->ended)
		return 0;
	sp_batch_begin(remote);
	rc = sp_remote_call(remote, &slave, err, "open its terminal", SYS_ioctl,
	                    (uint64_t)restore->files.fds[leader->record->terminal], TIOCGPTPEER,
	                    O_RDWR | O_NOCTTY | O_NONBLOCK, 0, 0, 0);
	if (rc)
		return sp_error_context(err, "cannot restore process %d", task->pid);
	rc = call(task, err, "give up its controlling terminal", SYS_ioctl, (uint64_t)slave,
	          TIOCNOTTY);
	return rc ? rc : call(task, err, "close a descriptor", SYS_close, (uint64_t)slave, 0);
}

/* The group may have ended before anybody else was given the terminal. */
static int give_terminal(struct restore *restore, struct restore_task *leader, struct sp_error *err)
{
	struct sp_remote *remote = &leader->remote;
	uint32_t group = leader->record ? leader->record->foreground : 0;
	int64_t result;

	if (!leader->leads_session || !group)
		return 0;
	sp_batch_begin(remote);
	if (sp_remote_try(remote, &result, err, "give a group the terminal", SYS_ioctl,
	                  (uint64_t)restore->files.fds[leader->record->terminal], TIOCSPGRP,
	                  sp_batch_put(remote, &group, sizeof(group)), 0, 0, 0))
		return sp_error_context(err, "cannot restore process %d", leader->pid);
	if (!result || result == -ESRCH || result == -EPERM)
		return 0;
	return sp_fail_errno(err, (int)-result, "cannot give group %u the terminal of process %d",
	                     group, leader->pid);
}

static int set_terminals(struct restore *restore, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < restore->tasks.count && !rc; i++) {
		rc = leave_terminal(restore, sp_restore_task(restore, i), err);
		if (!rc)
			rc = give_terminal(restore, sp_restore_task(restore, i), err);
	}
	return rc;
}

/* --- those that end, and those that are stopped --- */

static int check_adopted(const struct restore_task *child, struct sp_error *err)
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
static struct restore_task *find_adopter(const struct restore *restore,
                                         const struct restore_task *mother)
{
	for (size_t i = 1; i < restore->tasks.count; i++) {
		const struct restore_task *task = sp_restore_task(restore, i);

		if (task->mother == mother && task->record)
			return task->parent;
	}
	return NULL;
}

/* One that ends the driver's batches has been put aside as somebody else's by the end of the next one. */
static int forget_marker(struct restore_task *parent, pid_t child, struct sp_error *err)
{
	int rc = call(parent, err, "take a signal", SYS_getpid, 0, 0);

	if (parent->remote.foreign.si_pid == child)
		parent->remote.foreign = (siginfo_t){0};
	return rc;
}

/* The parent has had a signal of the child already, which is not to come twice. */
static int forget_signal(struct restore_task *parent, pid_t child, uint32_t signal,
                         struct sp_error *err)
{
	struct sp_remote *remote = &parent->remote;
	uint64_t set = signal ? 1ULL << (signal - 1) : 0;
	struct timespec none = {0};
	remote_addr address;

	if (!set)
		return 0;
	if ((int)signal == remote->marker_signal)
		return forget_marker(parent, child, err);
	sp_batch_begin(remote);
	address = sp_batch_put(remote, &set, sizeof(set));
	return sp_remote_try(remote, NULL, err, "forget a signal", SYS_rt_sigtimedwait, address, 0,
	                     sp_batch_put(remote, &none, sizeof(none)), sizeof(set), 0, 0);
}

static int await(struct restore_task *parent, pid_t pid, int options, struct sp_error *err)
{
	sp_batch_begin(&parent->remote);
	return sp_remote_call(&parent->remote, NULL, err, "wait for a child", SYS_waitid, P_PID,
	                      (uint64_t)pid, 0, (uint64_t)(unsigned)(options | __WALL), 0, 0);
}

/* A helper is collected by its mother, and one that has ended waits for its parent. */
static int await_end(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	struct restore_task *parent = task->record ? task->parent : task->mother;
	int rc = await(parent, task->pid, WEXITED | (task->record ? WNOWAIT : 0), err);

	if (rc || !task->record)
		return rc;
	return forget_signal(parent, task->pid, task->record->exit_signal, err);
}

/* Its name is all that people see of one that has ended. */
static int name(struct restore_task *task, struct sp_error *err)
{
	struct sp_remote *remote = &task->remote;

	if (!task->record)
		return 0;
	sp_batch_begin(remote);
	return sp_remote_call(remote, NULL, err, "set the name", SYS_prctl, PR_SET_NAME,
	                      sp_batch_string(remote, task->record->comm), 0, 0, 0, 0);
}

static int end(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	struct restore_task *adopter = find_adopter(restore, task);
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
		const struct restore_task *child = sp_restore_task(restore, i);

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
		struct restore_task *task = sp_array_pointer(born, i);

		if (helpers ? !task->record : task->record && task->record->ended)
			rc = end(restore, task, err);
	}
	return rc;
}

/*
 * The kernel stops it as soon as we let it go: a tracer can go on with a stopped process. The root is
 * stopped in the end, for sealpoint to hear of it.
 */
static int stop(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	struct restore_task *parent = task->parent;
	int rc;

	if (kill(task->pid, SIGSTOP))
		return sp_fail_errno(err, errno, "cannot stop process %d", task->pid);
	rc = call(task, err, "stop", SYS_getpid, 0, 0);
	if (!rc)
		rc = await(parent, task->pid, WSTOPPED | (task->record->wait_status ? WNOWAIT : 0),
		           err);
	task->stopped = !rc;
	return rc ? rc : forget_signal(parent, task->pid, SIGCHLD, err);
}

/* As after a stop that its parent knows of, and which has ended without a word to that. */
static int go_on(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	int rc = stop(restore, task, err);

	task->stopped = false;
	if (!rc && kill(task->pid, SIGCONT))
		return sp_fail_errno(err, errno, "cannot continue process %d", task->pid);
	if (!rc)
		rc = call(task, err, "go on", SYS_getpid, 0, 0);
	if (!rc)
		rc = forget_signal(task, task->pid, SIGCONT, err);
	if (!rc)
		rc = await(task->parent, task->pid, WCONTINUED | WNOWAIT, err);
	return rc ? rc : forget_signal(task->parent, task->pid, SIGCHLD, err);
}

static int stop_all(struct restore *restore, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 1; i < restore->tasks.count && !rc; i++)
		if (sp_restore_task(restore, i)->record->stopped)
			rc = stop(restore, sp_restore_task(restore, i), err);
		else if (sp_restore_task(restore, i)->record->continued)
			rc = go_on(restore, sp_restore_task(restore, i), err);
	return rc;
}

static void keep_living(struct restore *restore)
{
	struct restore_task **tasks = restore->tasks.items;
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
	sp_cleanup_array struct sp_array born = SP_ARRAY_OF(struct restore_task *);
	int rc = sp_restore_plan(restore, err);

	if (!rc)
		rc = find_room(restore, err);
	if (!rc)
		rc = bear_all(restore, &born, err);
	if (!rc)
		rc = make_groups(restore, err);
	if (!rc)
		rc = set_terminals(restore, err);
	if (!rc)
		rc = end_all(restore, &born, true, err);
	if (!rc)
		rc = end_all(restore, &born, false, err);
	if (!rc)
		keep_living(restore);
	return rc ? rc : stop_all(restore, err);
}

static enum sp_release fate(const struct restore *restore, const struct restore_task *task,
                            bool restored)
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
		struct restore_task *task = sp_restore_task(restore, i);

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
