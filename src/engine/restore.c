/*
 * The restore: a checkpoint becomes a running process (docs/architecture.md, "The way of a
 * restore").
 *
 * For each process a stub is driven by remote calls until it is the program; build() is the list of
 * steps. Until the last of them the stubs are traced with PTRACE_O_EXITKILL: whatever fails, no
 * process is left.
 */
#include "engine/restore_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/io.h"
#include "base/limit.h"
#include "engine/restore_check.h"
#include "engine/stub.h"
#include "kinds/connection_lock.h"
#include "proc/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* --- facets --- */

static const Sealpoint__Thread *thread_record(const struct restore_task *task, size_t index)
{
	return sp_array_pointer(&task->threads, index);
}

static int rebuild_facet(struct restore *restore, struct restore_task *task,
                         const struct sp_facet *facet, const Sealpoint__Thread *thread,
                         struct sp_error *err)
{
	bool of_process = facet->scope == SP_FACET_PROCESS;
	Sealpoint__Facet *const *records = of_process ? task->record->facets : thread->facets;
	size_t count = of_process ? task->record->n_facets : thread->n_facets;
	struct sp_facet_builder builder = {
	        .checkpoint = restore->checkpoint,
	        .process = task->record,
	        .thread = thread,
	        .remote = &task->remote,
	        .options = &restore->options->kinds,
	        .fds = restore->files.fds,
	        .log = restore->options->log,
	};

	for (size_t i = 0; i < count; i++) {
		if (strcmp(records[i]->name, facet->name))
			continue;
		if (facet->rebuild(&builder, records[i]->body, err))
			return sp_error_context(err, "cannot restore the %s of %s %u", facet->title,
			                        of_process ? "process" : "thread", thread->tid);
	}
	return 0;
}

/*
 * Rebuilds a thread's facets of one phase, or those of its process too, in registry order: each adds its
 * calls to one batch.
 */
static int rebuild_thread(struct restore *restore, struct restore_task *task,
                          enum sp_facet_phase phase, struct sp_thread *driver, bool of_process,
                          const Sealpoint__Thread *record, struct sp_error *err)
{
	int rc = sp_remote_drive(&task->remote, driver, err);

	sp_batch_begin(&task->remote);
	for (size_t i = 0; sp_facets[i] && !rc; i++) {
		const struct sp_facet *facet = sp_facets[i];

		if (facet->phase == phase && (facet->scope == SP_FACET_THREAD || of_process))
			rc = rebuild_facet(restore, task, facet, record, err);
	}
	if (!rc && sp_batch_run(&task->remote, err))
		rc = sp_error_context(err, "cannot restore thread %u", record->tid);
	return rc;
}

/* Is there anything in it that each thread has for itself? */
static bool concerns_threads(enum sp_facet_phase phase)
{
	for (size_t i = 0; sp_facets[i]; i++)
		if (sp_facets[i]->phase == phase && sp_facets[i]->scope == SP_FACET_THREAD)
			return true;
	return false;
}

/*
 * One phase for all threads that exist so far; the leader, which has the process's own, comes last.
 */
static int rebuild_phase(struct restore *restore, struct restore_task *task,
                         enum sp_facet_phase phase, struct sp_error *err)
{
	size_t count = concerns_threads(phase) ? task->process.threads.count : 1;
	int rc = 0;

	for (size_t i = count; i-- > 0 && !rc;)
		rc = rebuild_thread(restore, task, phase, sp_process_thread(&task->process, i),
		                    i == 0, thread_record(task, i), err);
	return rc;
}

/* --- steps --- */

static int open_checkpoint(struct restore *restore, struct sp_error *err)
{
	int rc = sp_checkpoint_open(&restore->checkpoint, restore->options->directory, err);

	if (rc)
		return rc;
	rc = sp_checkpoint_need_program(restore->checkpoint, err);
	if (rc)
		return rc;
	sp_restore_list_tasks(restore);
	return sp_restore_check(restore->checkpoint, restore->options->log, err);
}

static void undo_files(void *files)
{
	sp_file_builder_release(files);
}

static int open_files(struct restore *restore, struct sp_error *err)
{
	int rc;

	restore->files_begun = true;
	sp_when_out_of_memory(undo_files, &restore->files);
	rc = sp_file_builder_init(&restore->files, restore->checkpoint, &restore->options->kinds,
	                          restore->options->log, err);
	if (!rc)
		rc = sp_files_check(&restore->files, err);
	return rc ? rc : sp_files_open(&restore->files, err);
}

static int enter_cgroups(struct restore *restore, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < restore->tasks.count && !rc; i++)
		rc = sp_cgroups_enter(&restore->cgroups, sp_restore_task(restore, i)->record,
		                      restore->options->kinds.cgroups, err);
	return rc;
}

static int prepare_stub(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	return rebuild_phase(restore, task, SP_PHASE_STUB, err);
}

static struct sp_range temporary_pages(const struct restore *restore)
{
	return (struct sp_range){restore->code, restore->code + SP_REMOTE_SIZE};
}

/* One whose parent's memory was built has its vDSO parked as the parent had. */
static int park_vdso(struct restore *restore, struct sp_memory_build *memory, struct sp_error *err)
{
	if (memory->parked_vdso.end || memory->parked_vvar.end)
		return 0;
	return sp_vdso_park(memory, restore->code + SP_REMOTE_SIZE + SP_PAGE_SIZE, err);
}

int sp_restore_fill_memory(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	struct sp_memory_build *memory = &task->memory_of->memory;
	uint64_t started = sp_now_ns();
	int rc;

	if (task->memory_of->filled)
		return 0;
	task->memory_of->filled = true;
	memory->fds = restore->files.fds;
	rc = park_vdso(restore, memory, err);
	sp_memory_plan_inherited(memory);
	if (!rc)
		rc = sp_memory_empty(memory, temporary_pages(restore), err);
	if (!rc)
		rc = sp_memory_map(memory, err);
	if (!rc)
		rc = sp_memory_attach(memory, err);
	if (!rc)
		rc = sp_memory_drop_uninherited(memory, err);
	if (!rc)
		rc = sp_memory_fill(memory, err);
	if (!rc)
		rc = sp_memory_make_resident(memory, err);
	restore->result->memory_ns += sp_now_ns() - started;
	return rc;
}

static int build_memory(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	int rc = sp_restore_fill_memory(restore, task, err);

	if (!rc && task->memory_of == task)
		rc = sp_vdso_place(&task->memory, err);
	return rc ? rc : rebuild_phase(restore, task, SP_PHASE_MEMORY, err);
}

/*
 * A main thread that has ended has a name, and the user by whom is judged who may send a signal to the process: what a
 * thread of it has.
 */
static int dress_leader(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	struct sp_remote *remote = &task->remote;
	int rc;

	sp_batch_begin(remote);
	rc = sp_remote_call(remote, NULL, err, "set the name", SYS_prctl, PR_SET_NAME,
	                    sp_batch_string(remote, task->record->comm), 0, 0, 0, 0);
	if (rc)
		return rc;
	return rebuild_thread(restore, task, SP_PHASE_PRIVILEGES, remote->driver, false,
	                      thread_record(task, 0), err);
}

/*
 * It ends before the children have what their parents' threads can set off (PR_SET_PDEATHSIG). From now on the first
 * of the others does for the process what a main thread does.
 */
static int end_leader(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	struct sp_thread *leader = sp_process_leader(&task->process);
	int rc = dress_leader(restore, task, err);

	if (!rc)
		rc = sp_remote_drive(&task->remote, sp_process_thread(&task->process, 1), err);
	if (!rc)
		rc = sp_stub_end_thread(&task->remote, leader, task->record->leader_status, err);
	if (rc)
		return rc;
	sp_array_remove(&task->process.threads, 0);
	free(leader);
	task->process.living = sp_living_thread(task->pid);
	return 0;
}

static int start_threads(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	bool leader_ended = task->record->leader_ended;
	int rc = 0;

	for (size_t i = leader_ended ? 0 : 1; i < task->threads.count && !rc; i++)
		rc = sp_stub_add_thread(&task->remote, (pid_t)thread_record(task, i)->tid, err);
	return rc || !leader_ended ? rc : end_leader(restore, task, err);
}

static int open_late_files(struct restore *restore, struct sp_error *err)
{
	return sp_files_open_late(&restore->files, err);
}

static int place_files(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	pid_t pid = task->process.pid;
	bool has_own = !task->record->descriptors_of;
	int rc = 0;

	if (has_own)
		rc = sp_files_hand_over(&restore->files, &task->remote, pid, err);
	if (!rc && has_own)
		rc = sp_files_place(&restore->files, &task->remote, pid, err);
	if (!rc)
		rc = rebuild_phase(restore, task, SP_PHASE_DESCRIPTORS, err);
	return rc ? rc : sp_files_settle(&restore->files, &task->remote, pid, err);
}

/* After this nothing about the mappings can be changed any more where they are sealed. */
static int finish_memory(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	int rc = task->memory_of == task ? sp_memory_finish(&task->memory, err) : 0;

	if (task->memory_of != task)
		return rc;
	return rc ? rc : sp_memory_seal(&task->memory, err);
}

static int set_extended_state(const Sealpoint__Manifest *manifest, const Sealpoint__Thread *record,
                              struct sp_thread *thread, struct sp_error *err)
{
	struct sp_xstate_component layout[SP_XSTATE_COMPONENTS];
	size_t count = 0;

	for (size_t i = 0; i < manifest->n_xstate_layout && count < SP_XSTATE_COMPONENTS; i++)
		layout[count++] = (struct sp_xstate_component){
		        .bit = manifest->xstate_layout[i]->bit,
		        .offset = manifest->xstate_layout[i]->offset,
		        .size = manifest->xstate_layout[i]->size,
		};
	if (!sp_xstate_convert(&thread->raw, record->xstate.data, record->xstate.len, layout, count,
	                       err))
		return 0;
	return sp_error_context(err, "cannot restore the registers of thread %u", record->tid);
}

/* Registers and mask that a thread gets when it stops being driven; the extended state at once. */
static int prepare_thread(struct restore *restore, struct restore_task *task, size_t index,
                          struct sp_error *err)
{
	struct sp_thread *thread = sp_process_thread(&task->process, index);
	const Sealpoint__Thread *record = thread_record(task, index);

	memcpy(&thread->raw.general, record->general.data, sizeof(thread->raw.general));
	thread->signal_mask = record->signal_mask;
	return set_extended_state(restore->checkpoint->manifest, record, thread, err);
}

static int prepare_threads(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < task->threads.count && !rc; i++)
		rc = prepare_thread(restore, task, i, err);
	return rc ? rc : rebuild_phase(restore, task, SP_PHASE_THREADS, err);
}

static int set_privileges(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	return rebuild_phase(restore, task, SP_PHASE_PRIVILEGES, err);
}

/* The last chance to interrupt it: from here on there is a program. */
static int check_interrupt(struct restore *restore, struct sp_error *err)
{
	return sp_interrupt_check(err);
}

/* Is there another one with its memory, which is driven by the temporary pages still? */
static bool is_shared_still(const struct restore *restore, const struct restore_task *task)
{
	bool behind = false, found = false;

	for (size_t i = 0; i < restore->tasks.count && !found; i++) {
		const struct restore_task *other = sp_restore_task(restore, i);

		found = behind && other->memory_of == task->memory_of;
		behind |= other == task;
	}
	return found;
}

/*
 * Ends the control: the last remote call, made by an instruction of the program's own, takes the
 * temporary pages away, and every thread stands with the program's registers.
 */
static int let_go(struct restore *restore, struct restore_task *task, struct sp_error *err)
{
	int rc = sp_foothold_find(sp_process_living(&task->process), temporary_pages(restore),
	                          &restore->foothold, err);

	task->remote.foothold = restore->foothold;
	task->remote.foothold.complete = false;
	task->remote.leaves_pages = is_shared_still(restore, task);
	if (!rc)
		rc = sp_remote_close(&task->remote, err);
	for (size_t i = 0; i < task->process.threads.count && !rc; i++) {
		const struct sp_thread *thread = sp_process_thread(&task->process, i);

		rc = sp_registers_set(thread->tid, &thread->raw, err);
	}
	return rc;
}

/* One that cannot be written is not left behind. What is there and no file stays as it is. */
static int write_pidfile(struct restore *restore, struct sp_error *err)
{
	const char *path = restore->options->pidfile;
	sp_cleanup_free char *text = sp_format("%d\n", sp_restore_task(restore, 0)->process.pid);
	sp_cleanup_close int fd = -1;
	struct stat stat;
	int rc;

	if (!path)
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0644);
	if (fd >= 0 ? fstat(fd, &stat) == 0 && !S_ISREG(stat.st_mode) : errno == ENXIO)
		return sp_fail(err, EINVAL,
		               "cannot write the pid file %s: it is not a regular file; remove it, "
		               "or choose another name",
		               path);
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot create the pid file %s", path);
	rc = sp_write_full(fd, text, strlen(text));
	if (!rc)
		return 0;
	unlink(path);
	return sp_fail_errno(err, -rc, "cannot write the pid file %s", path);
}

/* The stub has sealpoint's limits until it gets the program's own, when everything is made. */
static int raise_limits(struct sp_error *err)
{
	sp_raise_soft_limit(RLIMIT_AS);
	sp_raise_soft_limit(RLIMIT_DATA);
	sp_raise_soft_limit(RLIMIT_MEMLOCK);
	return sp_raise_descriptor_limit(0, err);
}

static int call_hook(struct restore *restore, enum sp_moment moment, struct sp_error *err)
{
	return sp_hook_call(&restore->options->hook, moment,
	                    sp_restore_task(restore, 0)->process.pid, err);
}

static int tell_born(struct restore *restore, struct sp_error *err)
{
	return call_hook(restore, SP_MOMENT_BORN, err);
}

static int tell_restored(struct restore *restore, struct sp_error *err)
{
	return call_hook(restore, SP_MOMENT_RESTORED, err);
}

/* Nothing comes after this but the program: what others notice of it begins here. */
static int resume_files(struct restore *restore, struct sp_error *err)
{
	if (restore->files.lock->connections.count &&
	    call_hook(restore, SP_MOMENT_NETWORK_UNLOCK, err))
		return -err->code;
	return sp_files_resume(&restore->files, err);
}

/* A step is done for the restore as a whole, or for each process. */
static const struct {
	int (*run)(struct restore *restore, struct sp_error *err);
	int (*run_for_each)(struct restore *restore, struct restore_task *task,
	                    struct sp_error *err);
	const char *what;
} steps[] = {
        {.run = open_checkpoint, .what = "checkpoint read and checked"},
        {.run = open_files, .what = "files opened"},
        {.run = sp_restore_tree, .what = "processes started"},
        {.run = enter_cgroups, .what = "control groups entered"},
        {.run = tell_born, .what = "their birth told"},
        {.run_for_each = prepare_stub, .what = "processes prepared"},
        {.run_for_each = build_memory, .what = "memory mapped and filled"},
        {.run_for_each = start_threads, .what = "threads started"},
        {.run = open_late_files, .what = "files about processes opened"},
        {.run_for_each = place_files, .what = "descriptors placed"},
        {.run_for_each = finish_memory, .what = "memory protected, locked and sealed"},
        {.run_for_each = prepare_threads, .what = "threads prepared"},
        {.run_for_each = set_privileges, .what = "privileges set"},
        {.run = check_interrupt, .what = "not interrupted"},
        {.run_for_each = let_go, .what = "registers set"},
        {.run = tell_restored, .what = "all restored"},
        {.run = write_pidfile, .what = "process id written"},
        {.run = resume_files, .what = "done"},
};

static int run_step(struct restore *restore, size_t step, struct sp_error *err)
{
	int rc = 0;

	if (steps[step].run)
		return steps[step].run(restore, err);
	for (size_t i = 0; i < restore->tasks.count && !rc; i++)
		rc = steps[step].run_for_each(restore, sp_restore_task(restore, i), err);
	return rc;
}

static int build(struct restore *restore, struct sp_error *err)
{
	int rc = raise_limits(err);

	for (size_t i = 0; i < SP_COUNT_OF(steps) && !rc; i++) {
		uint64_t started = sp_now_ns();

		rc = run_step(restore, i, err);
		if (!rc)
			sp_verbose(restore->options->log, "%s, %.3f ms", steps[i].what,
			           (double)(sp_now_ns() - started) / 1e6);
	}
	return rc;
}

static void tell_kinds(const struct restore *restore)
{
	const struct sp_checkpoint *checkpoint = restore->checkpoint;
	sp_cleanup_array struct sp_array kinds = SP_ARRAY_OF(const struct sp_file_kind *);

	for (size_t i = 0; i < checkpoint->descriptors.count; i++) {
		const Sealpoint__Descriptor *descriptor =
		        sp_array_pointer(&checkpoint->descriptors, i);
		const Sealpoint__OpenFile *file =
		        sp_array_pointer(&checkpoint->files, descriptor->file - 1);
		const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);

		sp_array_append(&kinds, &kind);
	}
	sp_tell_kinds(restore->options->log, &kinds);
}

static void tell_batches(const struct restore *restore)
{
	unsigned batches = 0;

	for (size_t i = 0; i < restore->tasks.count; i++)
		batches += sp_restore_task(restore, i)->remote.batches;
	sp_verbose(restore->options->log, "%u batches of system calls made by the program",
	           batches);
}

static void fill_result(struct restore *restore)
{
	struct sp_restore_result *result = restore->result;

	result->pid = sp_restore_task(restore, 0)->process.pid;
	result->processes = (unsigned)restore->checkpoint->processes.count;
	result->threads = (unsigned)restore->checkpoint->threads.count;
	result->mappings = (unsigned)restore->checkpoint->vmas.count;
	result->descriptors = (unsigned)restore->checkpoint->descriptors.count;
	sp_page_store_chain_stats(restore->checkpoint->pages, &result->pages);
}

static void release(struct restore *restore, bool restored)
{
	sp_restore_release_tasks(restore, restored);
	sp_cgroups_release(&restore->cgroups, restored);
	sp_when_out_of_memory(NULL, NULL);
	if (restore->files_begun) {
		if (restored)
			sp_file_builder_complete(&restore->files);
		sp_file_builder_release(&restore->files);
	}
	if (restore->checkpoint)
		sp_checkpoint_close(restore->checkpoint);
}

int sp_restore(const struct sp_restore_options *options, struct sp_restore_result *result,
               struct sp_error *err)
{
	uint64_t started = sp_now_ns();
	struct restore restore = {
	        .options = options,
	        .result = result,
	        .tasks = SP_ARRAY_OF(struct restore_task *),
	        .cgroups = {.made = SP_ARRAY_OF(char *)},
	};
	int subreaper = 0, rc;

	*result = (struct sp_restore_result){0};
	/* Should it fail, stubs whose parents have ended come to us, and are collected. */
	prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	rc = build(&restore, err);
	if (!rc) {
		fill_result(&restore);
		tell_kinds(&restore);
		tell_batches(&restore);
	}
	release(&restore, !rc);
	prctl(PR_SET_CHILD_SUBREAPER, subreaper);
	result->total_ns = sp_now_ns() - started;
	if (rc == -EINTR && sp_interrupt_check(err))
		return sp_error_context(err, "nothing was restored");
	return rc;
}
