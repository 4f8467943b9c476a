/*
 * The dump: a running process becomes a checkpoint directory (docs/architecture.md, "The way of a
 * dump").
 *
 * What can be done beforehand is done while the program runs. From freeze() to thaw() it stands
 * still. It is ended, or left stopped, only after the commit; with SP_RELEASE_RUN it goes on as
 * soon as everything has been read. Whatever fails, and wherever: the target runs on, and no
 * checkpoint exists. What is done for its memory is in dump_memory.c and dump_hold.c.
 */
#include "engine/dump_parts.h"
#include "engine/save_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/limit.h"
#include "kinds/namespaces.h"
#include "kinds/tcp_repair.h"
#include "proc/capability.h"
#include "proc/stat.h"
#include "track/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <time.h>

#define NOT_YET_PAUSE_NS 10000000 /* for the program to run, between two attempts */

/* --- descriptors and state --- */

/* All are known before the first is saved: what one process holds may be the other end of a pipe. */
static int save_files(struct dump *dump, struct sp_error *err)
{
	struct sp_file_saver saver = {
	        .pages = dump->writer.pages,
	        .options = &dump->options->kinds,
	        .log = dump->options->log,
	};
	int rc = 0;

	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++)
		rc = sp_task_add_files(&dump->files, sp_tree_task(&dump->tree, i), err);
	if (!rc)
		rc = sp_file_table_save(&dump->files, &saver, &dump->writer.records, err);
	/* A program that is to have its connections needs them no longer locked than to be read. */
	if (dump->options->after != SP_RELEASE_KILL)
		sp_connection_lock_lift(&dump->files.lock);
	return rc;
}

static int save_state(struct dump *dump, struct task *task, struct sp_remote *remote,
                      struct sp_error *err)
{
	const struct sp_state_saver state = {
	        .process = &task->process,
	        .remote = remote,
	        .options = &dump->options->kinds,
	        .records = &dump->writer.records,
	        .log = dump->options->log,
	        .memory_object = task->memory_object,
	        .executable = task->executable,
	        .last_words = &task->last_words,
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
		        sp_vma_find(&task->vmas, sp_instruction_pointer(&thread->saved));

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
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		sp_process_release(&sp_tree_task(&dump->tree, i)->process, how);
}

static uint64_t lap(uint64_t *since_ns)
{
	uint64_t now = sp_now_ns(), took = now - *since_ns;

	*since_ns = now;
	return took;
}

/* Until a child has ended and its parent knows it. */
static int wait_for_child(struct dump *dump, pid_t child, uint64_t deadline_ns,
                          struct sp_error *err)
{
	sp_cleanup_close int pidfd = pidfd_open(child, 0);
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	uint64_t now = sp_now_ns();
	unsigned round = 0;

	if (pidfd >= 0 && now < deadline_ns)
		poll(&end, 1, (int)((deadline_ns - now) / SP_NS_PER_MS) + 1);
	while ((kill(child, 0) == 0 || errno == EPERM) && sp_now_ns() < deadline_ns &&
	       !sp_interrupt_check(err))
		sp_process_wait_a_little(&sp_dump_root(dump)->process, &round);
	return sp_interrupt_check(err);
}

/*
 * A session tracks one process. So with a session the tree is stopped at a moment when that has no
 * children: a shell has one nearly always, but none for long.
 */
static int stop(struct dump *dump, struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + dump->options->timeout_ns;
	pid_t child;
	int rc;

	for (;;) {
		dump->frozen = true;
		rc = sp_tree_stop(&dump->tree, deadline, err);
		child = sp_tree_child(&dump->tree);
		if (rc || !dump->cut->active || !child)
			return rc;
		sp_dump_disarm(dump);
		dump->frozen = false;
		sp_tree_forget(&dump->tree);
		if (wait_for_child(dump, child, deadline, err))
			return -EINTR;
		if (sp_now_ns() >= deadline)
			return sp_tree_refuse_tracked(dump->options->pid, child, err);
	}
}

static int read_task(struct dump *dump, struct task *task, struct sp_error *err)
{
	int rc = sp_namespaces_check(&task->process, err);
	uint64_t started = sp_now_ns();

	if (!task->memory_object)
		task->memory_object = sp_page_writer_new_object(dump->writer.pages);
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
		rc = sp_tree_check_sharing(&dump->tree, err);
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
	int rc = sp_remote_open(&task->remote, &task->process, sp_process_leader(&task->process),
	                        &task->foothold, err);

	if (!rc)
		rc = save_state(dump, task, &task->remote, err);
	if (!rc)
		sp_dump_prepare_hold(dump);
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
	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++)
		rc = sp_dump_save_pages(dump, sp_tree_task(&dump->tree, i), false, err);
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
	sp_verbose(dump->options->log, "%u mappings and %zu open files in all",
	           dump->result->mappings, dump->files.files.count);
	tell_kinds(dump);
}

/* --- the whole --- */

static int create(struct dump *dump, struct sp_error *err)
{
	struct sp_page_writer_options pages = {
	        .level = dump->options->compression,
	        .log = dump->options->log,
	};
	const char *directory = dump->options->directory;
	int rc = dump->options->replace
	                 ? sp_checkpoint_create_over(&dump->writer, directory, &pages, err)
	                 : sp_checkpoint_create(&dump->writer, directory, &pages, err);

	if (rc)
		return rc;
	dump->created = true;
	sp_dump_root(dump)->memory_object = sp_page_writer_new_object(dump->writer.pages);
	return 0;
}

static int commit(struct dump *dump, struct sp_error *err)
{
	const struct sp_cut *cut = dump->cut;
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
	if (cut->parent)
		rc = sp_checkpoint_set_parent(&dump->writer, &manifest, cut->parent,
		                              dump->cut->parent_id, err);
	if (!rc)
		rc = sp_checkpoint_commit(&dump->writer, &manifest, &dump->result->pages, err);
	if (rc)
		return rc;
	dump->created = false;
	/* If its holder was killed meanwhile, the next dump finds that out, and says so. */
	if (dump->options->session == SP_CUT_TRACK)
		sp_cut_keep_session(dump->cut, NULL);
	return 0;
}

static int prepare(struct dump *dump, struct sp_error *err)
{
	const struct sp_dump_options *options = dump->options;
	uint64_t deadline = sp_now_ns() + options->timeout_ns;
	int rc = sp_raise_descriptor_limit(0, err);

	if (!rc)
		rc = sp_process_check(options->pid, err);
	if (!rc)
		rc = sp_process_check_tracees(options->pid, err);
	if (!rc)
		rc = sp_capability_need_checkpoint("read the files behind mappings", err);
	/* Looked for again in the freeze, if in vain: a program in execve(2) has no code yet. */
	if (!rc)
		sp_foothold_find(options->pid, (struct sp_range){0}, &sp_dump_root(dump)->foothold,
		                 NULL);
	if (!rc && dump->again)
		rc = sp_cut_again(dump->cut, options->log, err);
	else if (!rc)
		rc = sp_cut_begin(dump->cut, options->pid, options->session, options->parent,
		                  deadline, options->log, err);
	return rc ? rc : create(dump, err);
}

/* Memory alone, of a program that runs all the while: nothing is stopped. */
static int save_memory_only(struct dump *dump, struct sp_error *err)
{
	sp_cleanup_close int pidfd = pidfd_open(dump->options->pid, 0);
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	struct task *root = sp_dump_root(dump);
	int rc = sp_dump_take(dump, root, err);

	if (!rc)
		rc = sp_dump_save_pages(dump, root, true, err);
	if (!rc)
		rc = save_state(dump, root, NULL, err);
	if (!rc)
		rc = sp_dump_save_vmas(dump, root, err);
	count(dump);
	if (pidfd < 0 || poll(&end, 1, 0) != 0)
		return sp_fail(err, ESRCH, "process %d has ended before it was saved",
		               dump->options->pid);
	return rc ? rc : commit(dump, err);
}

/*
 * From now on the connections belong to the checkpoint. If they cannot be locked for it, there is none.
 */
static int hand_over_connections(struct dump *dump, struct sp_error *err)
{
	const struct sp_connection_lock *lock = &dump->files.lock;
	uint8_t id[SP_CHECKPOINT_ID_SIZE];
	int rc;

	if (!lock->connections.count || dump->options->after != SP_RELEASE_KILL)
		return 0;
	dump->result->connections = (unsigned)lock->connections.count;
	rc = sp_checkpoint_read_id(dump->writer.path, id, err);
	if (!rc)
		rc = sp_connection_lock_keep(lock, id, err);
	if (rc)
		sp_checkpoint_withdraw(&dump->writer);
	return rc;
}

/* The program is dead, or dying, and we have its sockets: no last packet of theirs tells anybody. */
static void silence_connections(struct dump *dump)
{
	const struct sp_array *connections = &dump->files.lock.connections;

	for (size_t i = 0; i < connections->count && dump->options->after == SP_RELEASE_KILL; i++)
		sp_tcp_connection_silence(
		        ((struct sp_connection *)sp_array_at(connections, i))->fd);
}

static int save_program(struct dump *dump, struct sp_error *err)
{
	const struct sp_hook *hook = &dump->options->before_release;
	enum sp_release after = dump->options->after;
	int rc = dump->cut->active ? sp_dump_copy_ahead(dump, err) : 0;

	if (!rc)
		rc = sp_interrupt_check(err);
	/* A thread that is to stop needs a processor for that, as do the steps of the freeze. */
	sp_page_writer_pause(dump->writer.pages);
	if (!rc)
		rc = freeze(dump, err);
	if (!rc)
		rc = collect(dump, err);
	if (rc && dump->frozen && sp_tree_is_ending(&dump->tree))
		return sp_fail(err, ESRCH, "%s, or a child of it, has ended before it was saved",
		               sp_process_name(dump->options->pid).text);
	if (!rc && after == SP_RELEASE_RUN && !hook->call)
		thaw(dump, after);
	sp_page_writer_resume(dump->writer.pages);
	if (!rc)
		rc = sp_dump_check_mappings(sp_dump_root(dump), err);
	if (!rc && dump->hold)
		rc = sp_dump_save_held(dump, err);
	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++)
		rc = sp_dump_save_vmas(dump, sp_tree_task(&dump->tree, i), err);
	if (!rc)
		rc = commit(dump, err);
	if (!rc)
		tell_steps(dump);
	if (!rc && hook->call)
		rc = hook->call(hook->context, dump->options->pid, err);
	if (!rc)
		rc = hand_over_connections(dump, err);
	if (!rc)
		thaw(dump, after);
	if (!rc)
		silence_connections(dump);
	return rc;
}

static void release(struct dump *dump)
{
	sp_dump_disarm(dump);
	sp_hold_end(dump->hold);
	sp_close_scope(&dump->hold_uffd);
	sp_stash_close(&dump->stash);
	sp_array_release(&dump->held.pages);
	sp_array_release(&dump->held.areas);
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		sp_remote_close(&sp_tree_task(&dump->tree, i)->remote, NULL);
	if (dump->frozen)
		sp_connection_lock_lift(&dump->files.lock);
	thaw(dump, SP_RELEASE_RUN);
	sp_tree_release(&dump->tree);
	sp_file_table_release(&dump->files);
	if (dump->created)
		sp_checkpoint_abandon(&dump->writer);
}

static int attempt(const struct sp_dump_options *options, struct sp_cut *cut, bool again,
                   struct sp_dump_result *result, struct sp_error *err)
{
	struct dump dump = {
	        .options = options,
	        .result = result,
	        .cut = cut,
	        .again = again,
	        .hold_uffd = -1,
	        .stash = SP_STASH_NONE,
	        .held = {SP_ARRAY_OF(struct sp_range), SP_ARRAY_OF(struct sp_range)},
	};
	int rc;

	*result = (struct sp_dump_result){0};
	sp_file_table_init(&dump.files);
	sp_tree_init(&dump.tree, options->pid);
	rc = prepare(&dump, err);
	dump.may_hold = cut->session.backend == SP_SESSION_SCAN && !again &&
	                options->after == SP_RELEASE_RUN && !options->before_release.call;
	if (!rc)
		rc = options->memory_only ? save_memory_only(&dump, err) : save_program(&dump, err);
	release(&dump);
	return rc;
}

int sp_dump(const struct sp_dump_options *options, struct sp_dump_result *result,
            struct sp_error *err)
{
	uint64_t started = sp_now_ns(), deadline = started + options->timeout_ns;
	sp_cleanup_cut struct sp_cut own;
	struct sp_cut *cut = options->chain ? options->chain : &own;
	int rc;

	sp_cut_init(&own);
	rc = attempt(options, cut, false, result, err);
	while (rc == -SP_NOT_YET && sp_now_ns() < deadline && !sp_interrupt_check(err)) {
		const struct timespec pause = {.tv_nsec = NOT_YET_PAUSE_NS};

		*err = (struct sp_error){0};
		nanosleep(&pause, NULL);
		rc = attempt(options, cut, cut->active, result, err);
	}
	if (rc == -ESTALE && cut->active) {
		sp_warn(options->log, "%s: saved once more, and stopped for longer", err->message);
		*err = (struct sp_error){0};
		rc = attempt(options, cut, true, result, err);
	}
	if (rc == -EINTR && sp_interrupt_check(err))
		return sp_error_context(err, "%s runs on, and nothing was saved",
		                        sp_process_name(options->pid).text);
	if (rc)
		return rc;
	result->total_ns = sp_now_ns() - started;
	result->image_bytes = sp_checkpoint_size(options->directory);
	return 0;
}
