/*
 * The dump: a running process becomes a checkpoint directory (docs/architecture.md, "The way of a
 * dump").
 *
 * What can be done beforehand is done while the program runs. From freeze() to thaw() it stands
 * still. It is ended, or left stopped, only after the commit; with SP_RELEASE_RUN it goes on as
 * soon as everything has been read. Whatever fails, and wherever: the target runs on, and no
 * checkpoint exists. The steps themselves are in the other files of dump_parts.h.
 */
#include "engine/dump_parts.h"
#include "engine/save_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/limit.h"
#include "base/urgent.h"
#include "kinds/namespaces.h"
#include "proc/capability.h"
#include "proc/stat.h"
#include "track/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <time.h>

#define NOT_YET_PAUSE_NS 10000000 /* for the program to run, between two attempts */
/* Whom a program traces is asked of all processes that there are: not for each of many snapshots. */
#define TRACEES_EVERY_NS SP_NS_PER_S
#define ENDING_MS 1000 /* for the last steps of somebody who has no memory any more */

/* --- descriptors and state --- */

/* All are known before the first is saved: what one process holds may be the other end of a pipe. */
static int save_files(struct dump *dump, struct sp_error *err)
{
	struct sp_file_saver saver = {
	        .pages = dump->writer.pages,
	        .options = &dump->options->kinds,
	        .root = sp_dump_root(dump)->process.pid,
	        .log = dump->options->log,
	};
	int rc = 0;

	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++)
		rc = sp_task_add_files(&dump->files, sp_tree_task(&dump->tree, i), err);
	if (!rc && dump->options->kinds.tcp_established)
		rc = sp_dump_lock_network(dump, err);
	if (!rc)
		rc = sp_file_table_save(&dump->files, &saver, &dump->writer.records, err);
	/* A program that is to have its connections needs them no longer locked than to be read. */
	if (dump->options->after != SP_RELEASE_KILL)
		sp_connection_lock_begin_lift(&dump->files.lock);
	return rc;
}

static int save_state(struct dump *dump, struct task *task, struct sp_remote *remote,
                      struct sp_error *err)
{
	const struct sp_state_saver state = {
	        .process = &task->process,
	        .remote = remote,
	        .options = &dump->options->kinds,
	        .files = &dump->files,
	        .records = &dump->writer.records,
	        .log = dump->options->log,
	        .memory_object = task->memory_object,
	        .executable = task->executable,
	        .session = sp_task_is_tracked(task) ? &task->cut->session : NULL,
	        .last_words = &task->last_words,
	        .sharing = task->sharing,
	        .stop_status = task->stop_status,
	        .continued = task->continued,
	};

	return sp_state_save(&state, err);
}

/* --- the freeze --- */

/* The kernel's own code has no state that a record could hold; seizing has tried to avoid this. */
static void warn_of_vdso(const struct task *task, struct sp_log *log)
{
	for (size_t i = 0; i < task->process.threads.count; i++) {
		const struct sp_thread *thread = sp_process_thread(&task->process, i);
		const struct sp_vma *vma =
		        sp_vma_find(&task->memory_of->vmas, sp_instruction_pointer(&thread->saved));

		if (vma && vma->kind == SP_VMA_VDSO)
			sp_warn(log,
			        "thread %d stands in code of this kernel (the vDSO): the "
			        "checkpoint can be restored under this very kernel only",
			        thread->tid);
	}
}

static void thaw(struct dump *dump, enum sp_release how)
{
	if (!dump->frozen)
		return;
	dump->frozen = false;
	if (how != SP_RELEASE_KILL)
		sp_dump_unlock_network(dump);
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		sp_process_release(&sp_tree_task(&dump->tree, i)->process, how);
	sp_freezer_end(&dump->freezer);
}

static uint64_t lap(uint64_t *since_ns)
{
	uint64_t now = sp_now_ns(), took = now - *since_ns;

	*since_ns = now;
	return took;
}

/*
 * While its control group is frozen the tree does not change. All are seized in it, and stop as soon as it is thawed.
 * What cannot be seized is met again, and named, when it is to be stopped.
 */
static int seize_frozen(struct dump *dump, struct sp_error *err)
{
	sp_tree_list(&dump->tree);
	for (size_t i = 0; i < dump->tree.tasks.count; i++) {
		struct sp_process *process = &sp_tree_task(&dump->tree, i)->process;
		struct sp_error later = {0};

		if (!process->watched)
			sp_process_watch(process, process->pid, &later);
	}
	return sp_freezer_thaw(&dump->freezer, err);
}

static int stop(struct dump *dump, struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + dump->options->timeout_ns;
	const char *group = dump->options->freeze_cgroup;
	int rc;

	if (group && sp_freezer_freeze(&dump->freezer, group, deadline, err))
		return -err->code;
	dump->frozen = true;
	if (group && seize_frozen(dump, err))
		return -err->code;
	rc = sp_tree_stop(&dump->tree, deadline, err);
	if (!rc)
		sp_dump_forget_gone(dump);
	return rc;
}

/* What shares the memory of another has no session of its own, unless it was listed. */
static int read_sharer(struct dump *dump, struct task *task)
{
	task->cut = NULL;
	sp_dump_end_hold(task);
	sp_vma_list_release(&task->vmas);
	free(sp_steal_ptr(&task->maps));
	task->memory_object = task->memory_of->memory_object;
	warn_of_vdso(task, dump->options->log);
	return 0;
}

static int read_task(struct dump *dump, struct task *task, struct sp_error *err)
{
	int rc = sp_namespaces_check(&task->process, err);
	uint64_t started = sp_now_ns();

	if (sp_task_has_no_memory(task))
		return rc ? rc : read_sharer(dump, task);
	if (!task->memory_object)
		task->memory_object = sp_page_writer_new_object(dump->writer.pages);
	if (!rc)
		rc = sp_dump_meet(dump, task, err);
	if (!rc)
		rc = sp_dump_take(dump, task, err);
	dump->result->freeze.mappings_ns += sp_now_ns() - started;
	if (!rc)
		warn_of_vdso(task, dump->options->log);
	return rc;
}

static int freeze(struct dump *dump, struct sp_error *err)
{
	int rc = stop(dump, err);

	if (!rc)
		rc = sp_tree_find_sharing(&dump->tree, err);
	if (!rc)
		rc = sp_tree_check_sessions(&dump->tree, dump->options->kinds.shell_job, err);
	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++)
		rc = read_task(dump, sp_tree_task(&dump->tree, i), err);
	return rc;
}

/* Before the program is let go, and its threads with it. */
static void count(struct dump *dump)
{
	struct sp_dump_result *result = dump->result;

	result->descriptors = (unsigned)dump->files.descriptors.count;
	result->processes = (unsigned)(dump->tree.tasks.count + dump->tree.ended.count);
	result->threads = result->mappings = 0;
	for (size_t i = 0; i < dump->tree.tasks.count; i++) {
		result->threads += (unsigned)sp_tree_task(&dump->tree, i)->process.threads.count;
		result->mappings += (unsigned)sp_tree_task(&dump->tree, i)->vmas.count;
	}
}

/* All that takes remote calls. */
static int drive(struct dump *dump, struct task *task, struct sp_error *err)
{
	int rc = sp_task_engage(task, err);

	if (!rc)
		rc = sp_tree_find_unheard(&dump->tree, task, err);

	if (!rc)
		rc = save_state(dump, task, &task->remote, err);
	if (!rc)
		sp_dump_prepare_hold(dump, task);
	return rc ? rc : sp_remote_close(&task->remote, err);
}

/*
 * All that must happen while the program stands still, in the order in which later steps need it.
 */
static int collect(struct dump *dump, struct sp_error *err)
{
	struct sp_freeze *split = &dump->result->freeze;
	uint64_t stopped_ns = sp_dump_root(dump)->process.stopped_ns, clock = stopped_ns;
	int rc;

	split->stop_ns = lap(&clock) - split->mappings_ns;
	rc = save_files(dump, err);
	split->descriptors_ns = lap(&clock);
	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++)
		rc = drive(dump, sp_tree_task(&dump->tree, i), err);
	for (size_t i = 0; i < dump->tree.ended.count && !rc; i++)
		rc = sp_state_save_ended(sp_tree_ended(&dump->tree, i), &dump->writer.records, err);
	split->state_ns = lap(&clock);
	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++) {
		struct task *task = sp_tree_task(&dump->tree, i);

		if (sp_task_has_no_memory(task))
			continue;
		rc = i ? sp_dump_find_inherited(dump, task, err) : 0;
		if (!rc)
			rc = sp_dump_save_pages(dump, task, false, err);
	}
	if (!rc)
		rc = sp_dump_hold_pages(dump, err);
	split->memory_ns = lap(&clock);
	split->total_ns = clock - stopped_ns;
	count(dump);
	return rc;
}

static void tell_kinds(const struct dump *dump)
{
	sp_cleanup_array struct sp_array kinds = SP_ARRAY_OF(const struct sp_file_kind *);

	for (size_t i = 0; i < dump->files.descriptors.count; i++) {
		const struct sp_descriptor *descriptor = sp_array_at(&dump->files.descriptors, i);

		sp_array_append(&kinds, &sp_file_table_at(&dump->files, descriptor->file)->kind);
	}
	sp_tell_kinds(dump->options->log, &kinds);
}

static unsigned count_batches(const struct dump *dump)
{
	unsigned batches = 0;

	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		batches += sp_tree_task(&dump->tree, i)->remote.batches;
	return batches;
}

/* When all is done, so that telling does not make the freeze longer. */
static void tell_steps(const struct dump *dump)
{
	const struct sp_freeze *split = &dump->result->freeze;
	const struct {
		uint64_t ns;
		const char *what;
	} steps[] = {
	        {split->stop_ns, "threads stopped"},
	        {split->mappings_ns, "mappings read"},
	        {split->descriptors_ns, "descriptors and mapped files saved"},
	        {split->state_ns, "state saved"},
	        {split->memory_ns, "pages of memory read"},
	};

	for (size_t i = 0; i < SP_COUNT_OF(steps); i++)
		sp_verbose(dump->options->log, "%s, %.3f ms", steps[i].what,
		           (double)steps[i].ns / 1e6);
	sp_verbose(dump->options->log, "%u batches of system calls made by the program",
	           count_batches(dump));
	sp_verbose(dump->options->log, "%u mappings and %zu open files in all",
	           dump->result->mappings, dump->files.files.count);
	tell_kinds(dump);
}

/* --- the whole --- */

static int create(struct dump *dump, struct sp_error *err)
{
	struct sp_page_writer_options pages = {
	        .level = dump->options->compression,
	        .read_ahead = dump->options->after == SP_RELEASE_RUN,
	        .room = dump->options->room,
	        .log = dump->options->log,
	};
	const char *directory = dump->options->directory;
	int rc = dump->options->replace
	                 ? sp_checkpoint_create_over(&dump->writer, directory, &pages, err)
	                 : sp_checkpoint_create(&dump->writer, directory, &pages, err);

	if (rc)
		return rc;
	dump->created = true;
	sp_dump_number_memory(dump);
	return 0;
}

static int commit(struct dump *dump, struct sp_error *err)
{
	const struct sp_cut *cut = sp_dump_root_cut(dump);
	struct sp_cut *below = sp_dump_standing_cut(dump);
	Sealpoint__Manifest manifest = SEALPOINT__MANIFEST__INIT;
	int rc = 0;

	manifest.root_pid = (uint32_t)dump->options->pid;
	manifest.freeze_ns = dump->result->freeze.total_ns;
	manifest.memory_only = dump->options->memory_only;
	if (cut->active) {
		manifest.session_id = (ProtobufCBinaryData){
		        .data = (uint8_t *)cut->session.id,
		        .len = sizeof(cut->session.id),
		};
		manifest.generation = cut->session.generation;
	}
	if (below)
		rc = sp_checkpoint_set_parent(&dump->writer, &manifest, below->parent,
		                              below->parent_id, err);
	if (!rc)
		rc = sp_checkpoint_commit(&dump->writer, &manifest, &dump->result->pages, err);
	if (rc)
		return rc;
	dump->created = false;
	sp_dump_conclude_cuts(dump);
	return 0;
}

/*
 * Code has to be searched for it, unless it is known from the dump before. Looked for again in the freeze, if in vain: a
 * program in execve(2) has no code yet.
 */
static void find_foothold(struct dump *dump)
{
	struct task *root = sp_dump_root(dump);

	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		sp_tree_task(&dump->tree, i)->foothold =
		        sp_tree_task(&dump->tree, i)->cut->foothold;
	if (!root->foothold.complete)
		sp_foothold_find(sp_living_thread(root->process.pid), (struct sp_range){0},
		                 &root->foothold, NULL);
}

static int check_tracees(struct dump *dump, struct sp_error *err)
{
	uint64_t now = sp_now_ns(), *last = &dump->cuts->tracees_ns;
	int rc;

	if (*last && now - *last < TRACEES_EVERY_NS)
		return 0;
	rc = sp_process_check_tracees(dump->options->pid, err);
	*last = rc ? 0 : now;
	return rc;
}

static int prepare(struct dump *dump, struct sp_error *err)
{
	const struct sp_dump_options *options = dump->options;
	uint64_t deadline = sp_now_ns() + options->timeout_ns;
	int rc = sp_raise_descriptor_limit(0, err);

	if (!rc)
		rc = sp_process_check(options->pid, err);
	if (!rc)
		rc = check_tracees(dump, err);
	if (!rc)
		rc = sp_capability_need_checkpoint("read the files behind mappings", err);
	if (!rc)
		rc = sp_dump_begin_cuts(dump, deadline, err);
	if (!rc)
		find_foothold(dump);
	if (!rc && options->kinds.tcp_established && !options->memory_only)
		rc = sp_connection_lock_prepare(&dump->files.lock, err);
	return rc ? rc : create(dump, err);
}

static int save_running(struct dump *dump, struct task *task, struct sp_error *err)
{
	int rc = sp_dump_take(dump, task, err);

	if (!rc)
		rc = sp_dump_save_pages(dump, task, true, err);
	if (!rc)
		rc = save_state(dump, task, NULL, err);
	return rc ? rc : sp_dump_save_vmas(dump, task, err);
}

/* Memory alone, of a program that runs all the while: nothing is stopped. */
static int save_memory_only(struct dump *dump, struct sp_error *err)
{
	sp_cleanup_close int pidfd = pidfd_open(dump->options->pid, 0);
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	size_t i = 0;
	int rc = 0;

	while (i < dump->tree.tasks.count && !rc) {
		struct task *task = sp_tree_task(&dump->tree, i);

		rc = save_running(dump, task, err);
		if (!rc) {
			i++;
		} else if (i > 0 && sp_tree_has_lost(task->process.pid, rc)) {
			*err = (struct sp_error){0};
			rc = 0;
			sp_tree_drop(&dump->tree, i);
		}
	}
	count(dump);
	if (pidfd < 0 || poll(&end, 1, 0) != 0)
		return sp_fail(err, ESRCH, "process %d has ended before it was saved",
		               dump->options->pid);
	return rc ? rc : commit(dump, err);
}

/* Of a descendant that is gone already nobody can tell. */
static int check_mappings(struct dump *dump, struct sp_error *err)
{
	int rc = sp_dump_check_mappings(sp_dump_root(dump), err);

	for (size_t i = 1; i < dump->tree.tasks.count && !rc; i++) {
		const struct task *task = sp_tree_task(&dump->tree, i);

		rc = sp_dump_check_mappings(task, err);
		if (!rc || rc == -EAGAIN || !sp_tree_has_lost(task->process.pid, rc))
			continue;
		*err = (struct sp_error){0};
		rc = 0;
	}
	return rc;
}

/* What failed has failed because somebody was killed. Without a child of its the tree can be saved. */
static int tell_of_end(const struct dump *dump, struct sp_error *err)
{
	const struct sp_process *root = &sp_dump_root(dump)->process;
	struct sp_process_name name = sp_process_name(root->pid);

	if (sp_process_is_ending(root))
		return sp_fail(err, ESRCH, "%s has ended before it was saved", name.text);
	return sp_fail(err, SP_NOT_YET,
	               "a child of %s was killed while it was being saved; try again, or with a "
	               "longer --timeout",
	               name.text);
}

static int save_program(struct dump *dump, struct sp_error *err)
{
	const struct sp_hook *hook = &dump->options->hook;
	enum sp_release after = dump->options->after;
	struct sp_usual_turn usual;
	int rc = sp_dump_is_tracked(dump) ? sp_dump_copy_ahead(dump, err) : 0;

	if (!rc)
		rc = sp_interrupt_check(err);
	/* A thread that is to stop needs a processor for that, as do the steps of the freeze. */
	sp_page_writer_pause(dump->writer.pages);
	usual = sp_urgent_begin();
	if (!rc)
		rc = freeze(dump, err);
	if (!rc)
		rc = collect(dump, err);
	if (!rc && after == SP_RELEASE_RUN && !hook->call)
		thaw(dump, after);
	sp_urgent_end(&usual);
	if (rc && rc != -ENOTSUP && dump->frozen && sp_tree_is_ending(&dump->tree))
		return tell_of_end(dump, err);
	sp_page_writer_resume(dump->writer.pages);
	if (!rc)
		rc = check_mappings(dump, err);
	if (!rc)
		rc = sp_dump_save_held(dump, err);
	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++)
		rc = sp_dump_save_vmas(dump, sp_tree_task(&dump->tree, i), err);
	if (!rc)
		rc = commit(dump, err);
	if (!rc)
		tell_steps(dump);
	if (!rc)
		rc = sp_hook_call(hook, SP_MOMENT_SAVED, dump->options->pid, err);
	if (!rc)
		rc = sp_dump_hand_over_connections(dump, err);
	if (!rc)
		thaw(dump, after);
	if (!rc)
		sp_dump_silence_connections(dump);
	return rc;
}

static void release(struct dump *dump)
{
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		sp_dump_end_hold(sp_tree_task(&dump->tree, i));
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		sp_remote_close(&sp_tree_task(&dump->tree, i)->remote, NULL);
	sp_freezer_end(&dump->freezer);
	thaw(dump, SP_RELEASE_RUN);
	sp_tree_release(&dump->tree);
	sp_file_table_release(&dump->files);
	if (dump->created)
		sp_checkpoint_abandon(&dump->writer);
}

static int attempt(const struct sp_dump_options *options, struct sp_cuts *cuts, bool again,
                   struct sp_dump_result *result, struct sp_error *err)
{
	struct dump dump = {
	        .options = options,
	        .result = result,
	        .cuts = cuts,
	        .again = again,
	};
	int rc;

	*result = (struct sp_dump_result){0};
	sp_file_table_init(&dump.files);
	sp_tree_init(&dump.tree, options->pid);
	rc = prepare(&dump, err);
	dump.may_hold = !again && options->after == SP_RELEASE_RUN && !options->hook.call;
	if (!rc)
		rc = options->memory_only ? save_memory_only(&dump, err) : save_program(&dump, err);
	release(&dump);
	return rc;
}

static int attempts(const struct sp_dump_options *options, struct sp_dump_result *result,
                    struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + options->timeout_ns;
	sp_cleanup_cuts struct sp_cuts own = SP_CUTS_NONE;
	struct sp_cuts *cuts = options->chain ? options->chain : &own;
	int rc;

	rc = attempt(options, cuts, false, result, err);
	while (rc == -SP_NOT_YET && sp_now_ns() < deadline && !sp_interrupt_check(err)) {
		const struct timespec pause = {.tv_nsec = NOT_YET_PAUSE_NS};

		*err = (struct sp_error){0};
		nanosleep(&pause, NULL);
		rc = attempt(options, cuts, true, result, err);
	}
	if (rc == -ESTALE) {
		sp_warn(options->log, "%s: saved once more, and stopped for longer", err->message);
		*err = (struct sp_error){0};
		rc = attempt(options, cuts, true, result, err);
	}
	return rc;
}

static bool has_ended(pid_t pid)
{
	struct sp_stat stat;

	return sp_stat_read(pid, sp_living_thread(pid), &stat, NULL) || sp_stat_has_ended(&stat);
}

/* Who has ended is missed in one way or another, maybe before its last step. */
static bool is_end_of(pid_t pid, int rc)
{
	if (rc != -ESRCH && rc != -ENOENT && rc != -EIO && rc != -EFAULT)
		return false;
	for (unsigned ms = 0; ms < ENDING_MS; ms++) {
		if (has_ended(pid))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

int sp_dump(const struct sp_dump_options *options, struct sp_dump_result *result,
            struct sp_error *err)
{
	struct sp_process_name name = sp_process_name(options->pid);
	bool lived = !has_ended(options->pid);
	uint64_t started = sp_now_ns();
	int rc = attempts(options, result, err);

	if (rc == -EINTR && sp_interrupt_check(err))
		return sp_error_context(err, "%s runs on, and nothing was saved", name.text);
	if (lived && is_end_of(options->pid, rc))
		return sp_fail(err, ESRCH, "%s has ended before it was saved", name.text);
	if (rc)
		return rc;
	result->total_ns = sp_now_ns() - started;
	result->image_bytes = sp_checkpoint_size(options->directory);
	return 0;
}
