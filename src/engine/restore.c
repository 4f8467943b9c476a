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

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* --- facets --- */

static const Sealpoint__Thread *thread_record(const struct task *task, size_t index)
{
	return sp_array_pointer(&task->threads, index);
}

static int rebuild_facet(struct restore *restore, struct task *task, const struct sp_facet *facet,
                         const Sealpoint__Thread *thread, struct sp_error *err)
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
 * Rebuilds a thread's facets of one phase, and with the leader's the process's, in registry order.
 */
static int rebuild_thread(struct restore *restore, struct task *task, enum sp_facet_phase phase,
                          size_t index, struct sp_error *err)
{
	const Sealpoint__Thread *thread = thread_record(task, index);
	int rc = sp_remote_drive(&task->remote, sp_process_thread(&task->process, index), err);

	for (size_t i = 0; sp_facets[i] && !rc; i++) {
		const struct sp_facet *facet = sp_facets[i];

		if (facet->phase == phase && (facet->scope == SP_FACET_THREAD || index == 0))
			rc = rebuild_facet(restore, task, facet, thread, err);
	}
	return rc;
}

/*
 * One phase for all threads that exist so far; the leader, which has the process's own, comes last.
 */
static int rebuild_phase(struct restore *restore, struct task *task, enum sp_facet_phase phase,
                         struct sp_error *err)
{
	int rc = 0;

	for (size_t i = task->process.threads.count; i-- > 0 && !rc;)
		rc = rebuild_thread(restore, task, phase, i, err);
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

static int prepare_stub(struct restore *restore, struct task *task, struct sp_error *err)
{
	return rebuild_phase(restore, task, SP_PHASE_STUB, err);
}

static struct sp_range temporary_pages(const struct restore *restore)
{
	return (struct sp_range){restore->code, restore->code + SP_REMOTE_SIZE};
}

static int build_memory(struct restore *restore, struct task *task, struct sp_error *err)
{
	struct sp_memory_build *memory = &task->memory;
	uint64_t started = sp_now_ns();
	int rc = sp_vdso_park(memory, restore->code + SP_REMOTE_SIZE + SP_PAGE_SIZE, err);

	memory->fds = restore->files.fds;
	if (!rc)
		rc = sp_memory_empty(memory, temporary_pages(restore), err);
	if (!rc)
		rc = sp_memory_map(memory, err);
	if (!rc)
		rc = sp_memory_fill(memory, err);
	if (!rc)
		rc = sp_vdso_place(memory, err);
	restore->result->memory_ns += sp_now_ns() - started;
	return rc ? rc : rebuild_phase(restore, task, SP_PHASE_MEMORY, err);
}

static int place_files(struct restore *restore, struct task *task, struct sp_error *err)
{
	pid_t pid = task->process.pid;
	int rc = sp_files_place(&restore->files, &task->remote, pid, err);

	if (!rc)
		rc = rebuild_phase(restore, task, SP_PHASE_DESCRIPTORS, err);
	return rc ? rc : sp_files_settle(&restore->files, &task->remote, pid, err);
}

/* After this nothing about the mappings can be changed any more where they are sealed. */
static int finish_memory(struct restore *restore, struct task *task, struct sp_error *err)
{
	int rc = sp_memory_finish(&task->memory, err);

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
static int prepare_thread(struct restore *restore, struct task *task, size_t index,
                          struct sp_error *err)
{
	struct sp_thread *thread = sp_process_thread(&task->process, index);
	const Sealpoint__Thread *record = thread_record(task, index);

	memcpy(&thread->raw.general, record->general.data, sizeof(thread->raw.general));
	thread->signal_mask = record->signal_mask;
	return set_extended_state(restore->checkpoint->manifest, record, thread, err);
}

static int start_threads(struct restore *restore, struct task *task, struct sp_error *err)
{
	int rc = prepare_thread(restore, task, 0, err);

	for (size_t i = 1; i < task->threads.count && !rc; i++) {
		rc = sp_stub_add_thread(&task->remote, (pid_t)thread_record(task, i)->tid, err);
		if (!rc)
			rc = prepare_thread(restore, task, i, err);
	}
	return rc ? rc : rebuild_phase(restore, task, SP_PHASE_THREADS, err);
}

static int set_privileges(struct restore *restore, struct task *task, struct sp_error *err)
{
	return rebuild_phase(restore, task, SP_PHASE_PRIVILEGES, err);
}

/* The last chance to interrupt it: from here on there is a program. */
static int check_interrupt(struct restore *restore, struct sp_error *err)
{
	return sp_interrupt_check(err);
}

/*
 * Ends the control: the last remote call, made by an instruction of the program's own, takes the
 * temporary pages away, and every thread stands with the program's registers.
 */
static int let_go(struct restore *restore, struct task *task, struct sp_error *err)
{
	int rc = sp_foothold_find(task->process.pid, temporary_pages(restore),
	                          &task->remote.foothold, err);

	task->remote.foothold.complete = false;
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

static int call_hook(struct restore *restore, struct sp_error *err)
{
	const struct sp_hook *hook = &restore->options->before_release;

	return hook->call ? hook->call(hook->context, sp_restore_task(restore, 0)->process.pid, err)
	                  : 0;
}

/* Nothing comes after this but the program: what others notice of it begins here. */
static int resume_files(struct restore *restore, struct sp_error *err)
{
	return sp_files_resume(&restore->files, err);
}

/* A step is done for the restore as a whole, or for each process. */
static const struct {
	int (*run)(struct restore *restore, struct sp_error *err);
	int (*run_for_each)(struct restore *restore, struct task *task, struct sp_error *err);
	const char *what;
} steps[] = {
        {.run = open_checkpoint, .what = "checkpoint read and checked"},
        {.run = open_files, .what = "files opened"},
        {.run = sp_restore_tree, .what = "processes started"},
        {.run_for_each = prepare_stub, .what = "processes prepared"},
        {.run_for_each = build_memory, .what = "memory mapped and filled"},
        {.run_for_each = place_files, .what = "descriptors placed"},
        {.run_for_each = finish_memory, .what = "memory protected, locked and sealed"},
        {.run_for_each = start_threads, .what = "threads started"},
        {.run_for_each = set_privileges, .what = "privileges set"},
        {.run = check_interrupt, .what = "not interrupted"},
        {.run_for_each = let_go, .what = "registers set"},
        {.run = call_hook, .what = "all restored"},
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
	        .tasks = SP_ARRAY_OF(struct task *),
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
	}
	release(&restore, !rc);
	prctl(PR_SET_CHILD_SUBREAPER, subreaper);
	result->total_ns = sp_now_ns() - started;
	if (rc == -EINTR && sp_interrupt_check(err))
		return sp_error_context(err, "nothing was restored");
	return rc;
}
