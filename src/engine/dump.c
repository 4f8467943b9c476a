/*
 * The dump: a running process becomes a checkpoint directory (docs/architecture.md, "The way of a
 * dump").
 *
 * What can be done beforehand is done while the program runs. From freeze() to thaw() it stands
 * still. It is ended, or left stopped, only after the commit; with SP_RELEASE_RUN it goes on as
 * soon as everything has been read. Whatever fails, and wherever: the target runs on, and no
 * checkpoint exists.
 */
#include "engine/engine.h"

#include "engine/cut.h"
#include "engine/save_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/limit.h"
#include "kinds/file_table.h"
#include "kinds/namespaces.h"
#include "kinds/sharing.h"
#include "mem/memory.h"
#include "proc/capability.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "remote/userfaultfd.h"
#include "track/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>

/* When rounds of copying end: what is left is copied in about a millisecond. */
#define ROUND_ENOUGH (4ULL << 20)
#define ROUNDS_MAX 8
/* Copying more than this takes longer than to make the program wait for its first writes. */
#define HOLD_MIN (8ULL << 20)

struct dump {
	const struct sp_dump_options *options;
	struct sp_dump_result *result;
	struct sp_foothold foothold;
	struct sp_checkpoint_writer writer;
	struct sp_process process;
	struct sp_remote remote;
	struct sp_cut *cut;
	struct sp_array vmas; /* struct sp_vma */
	char *maps; /* /proc/PID/maps as it was when `vmas` was read while it ran, or NULL */
	struct sp_file_table files;
	uint32_t executable;
	uint32_t memory_object;
	bool again;    /* memory was lost that was held: nothing is held this time */
	bool may_hold; /* the program goes on before all of its memory was read */
	int hold_uffd;
	struct sp_memory_list held;
	struct sp_array last_words; /* remote_addr: see kinds/kind.h */
	struct sp_hold *hold;
	bool frozen, created;
};

/* --- mappings, descriptors, memory --- */

/*
 * The mappings, with what is only in smaps, which takes long: the kernel walks the page tables for
 * it. A list that was read while the program ran serves if it says what maps says, as long as that
 * has not changed.
 */
static int read_mappings(struct dump *dump, struct sp_error *err)
{
	sp_cleanup_free char *maps = NULL;
	pid_t pid = dump->options->pid;
	int rc = sp_proc_read(pid, "maps", &maps, NULL, err);

	if (rc || (dump->maps && !strcmp(maps, dump->maps)))
		return rc;
	free(sp_steal_ptr(&dump->maps));
	sp_vma_list_release(&dump->vmas);
	rc = sp_vma_list_read(pid, &dump->vmas, err);
	if (!rc && !dump->frozen && sp_vma_list_agrees(&dump->vmas, maps))
		dump->maps = sp_steal_ptr(&maps);
	return rc;
}

/*
 * Advice, locks, seals and the protection key of a whole mapping are not in maps. Had they changed
 * between that list and the freeze, they would be saved as they were before. A mapping that was
 * replaced when the program ran on tells nothing.
 */
static int check_mappings(struct dump *dump, struct sp_error *err)
{
	struct sp_array now = SP_ARRAY_OF(struct sp_vma);
	int rc = dump->maps ? sp_vma_list_read(dump->options->pid, &now, err) : 0;

	for (size_t i = 0; i < now.count && !rc; i++) {
		const struct sp_vma *vma = sp_array_at(&now, i);
		const struct sp_vma *saved = sp_vma_find(&dump->vmas, vma->range.start);

		if (!saved || !sp_vma_is_same(saved, vma) || saved->kind != vma->kind ||
		    (saved->protection_key == vma->protection_key &&
		     !((saved->flags ^ vma->flags) & ~(uint32_t)SP_VMA_UFFD)))
			continue;
		rc = sp_fail(err, EAGAIN,
		             "%s has changed the advice, the lock, the seal or the protection key "
		             "of its memory at 0x%" PRIx64 "-0x%" PRIx64
		             " while it was being saved: try again",
		             sp_process_name(dump->options->pid).text, vma->range.start,
		             vma->range.end);
	}
	sp_vma_list_release(&now);
	return rc;
}

static int add_mapped_files(struct dump *dump, struct sp_error *err)
{
	for (size_t i = 0; i < dump->vmas.count; i++) {
		struct sp_vma *vma = sp_array_at(&dump->vmas, i);
		int rc;

		if (!sp_vma_kind_maps_file(vma->kind))
			continue;
		rc = sp_file_table_add_mapping(
		        &dump->files, dump->process.pid, vma->range, vma->flags & SP_VMA_SHARED,
		        vma->flags & SP_VMA_MAY_WRITE, vma->path, &vma->file, err);
		if (rc)
			return rc;
	}
	return 0;
}

static int save_files(struct dump *dump, struct sp_error *err)
{
	struct sp_file_saver saver = {
	        .process = &dump->process,
	        .remote = &dump->remote,
	        .pages = dump->writer.pages,
	        .options = &dump->options->kinds,
	        .table = &dump->files,
	        .log = dump->options->log,
	};
	int rc = sp_file_table_add_process(&dump->files, &dump->process, err);

	if (!rc)
		rc = add_mapped_files(dump, err);
	if (!rc)
		rc = sp_file_table_add_executable(&dump->files, dump->process.pid,
		                                  &dump->executable, err);
	return rc ? rc : sp_file_table_save(&dump->files, &saver, &dump->writer.records, err);
}

/* What has changed since the last layer, or everything. */
static int save_pages(struct dump *dump, bool running, struct sp_error *err)
{
	struct sp_memory_selection selection = {
	        .changed = dump->cut->active ? &dump->cut->changed : NULL,
	        .changed_only = running && !dump->options->memory_only,
	        .running = running,
	        .list = !running && dump->hold_uffd >= 0 ? &dump->held : NULL,
	};
	int rc = sp_memory_save(dump->options->pid, &dump->vmas, &selection, dump->writer.pages,
	                        dump->memory_object, err);

	if (!rc && dump->cut->active)
		sp_cut_saved(dump->cut, &dump->vmas);
	return rc ? rc : sp_page_writer_drain(dump->writer.pages, err);
}

static int save_vmas(struct dump *dump, struct sp_error *err)
{
	int rc = 0;

	if (dump->cut->active)
		sp_cut_list_huge(dump->cut, &dump->vmas);
	for (size_t i = 0; i < dump->vmas.count && !rc; i++) {
		Sealpoint__Vma record = SEALPOINT__VMA__INIT;

		sp_vma_to_record(sp_array_at(&dump->vmas, i), dump->process.pid, &record);
		rc = sp_record_write(&dump->writer.records, SP_RECORD_VMA, &record.base, err);
	}
	return rc;
}

static int save_state(struct dump *dump, struct sp_remote *remote, struct sp_error *err)
{
	const struct sp_state_saver state = {
	        .process = &dump->process,
	        .remote = remote,
	        .options = &dump->options->kinds,
	        .records = &dump->writer.records,
	        .log = dump->options->log,
	        .memory_object = dump->memory_object,
	        .executable = dump->executable,
	        .last_words = &dump->last_words,
	};

	return sp_state_save(&state, err);
}

/* --- while the program runs --- */

/*
 * Takes what has changed in the mappings, and says whether they can be saved at all: only then are
 * those known that a userfaultfd which is not ours keeps from being tracked.
 */
static int take(struct dump *dump, struct sp_error *err)
{
	int rc = read_mappings(dump, err);

	if (!rc && dump->cut->active)
		rc = sp_cut_take(dump->cut, &dump->vmas, err);
	return rc ? rc : sp_memory_check(dump->process.pid, &dump->vmas, err);
}

/*
 * One round: what has changed is saved as a layer of the page store, unless it is so much that the
 * next round would find as much again. `*size` becomes its bytes.
 */
static int copy_round(struct dump *dump, uint64_t *size, struct sp_error *err)
{
	uint64_t before = *size;
	int rc = take(dump, err);

	*size = dump->cut->written;
	if (!rc && dump->may_hold && *size > HOLD_MIN && *size >= before / 2) {
		sp_cut_not_saved(dump->cut);
		return 0;
	}
	if (!rc)
		rc = save_pages(dump, true, err);
	return rc ? rc : sp_page_writer_next_layer(dump->writer.pages, err);
}

/*
 * With a session, all is saved before the freeze that can be: in rounds, of which each only has to
 * copy what was written during the one before. They end when little is left, or when the program
 * writes as fast as it is copied.
 */
static int copy_ahead(struct dump *dump, struct sp_error *err)
{
	uint64_t size = UINT64_MAX, before;
	int rc = 0, rounds = 0;

	do {
		before = size;
		rc = copy_round(dump, &size, err);
		sp_verbose(dump->options->log,
		           "round %d: %" PRIu64 " KiB were written, and are saved while it runs",
		           ++rounds, size >> 10);
	} while (!rc && size > ROUND_ENOUGH && size < before / 2 && rounds < ROUNDS_MAX);
	return rc;
}

/* --- the freeze --- */

/* The children of a thread: "process 4243 (sh), process 4244 (sleep)", cut short if need be. */
static int list_children(pid_t pid, pid_t tid, char *text, size_t size, struct sp_error *err)
{
	sp_cleanup_free char *children = NULL;
	size_t used = 0;
	char *rest;
	int rc = sp_proc_read_thread(pid, tid, "children", &children, NULL, err);

	*text = '\0';
	if (rc)
		return rc;
	for (char *child = strtok_r(children, " \n", &rest); child && used < size;
	     child = strtok_r(NULL, " \n", &rest))
		used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
		                         sp_process_name(atoi(child)).text);
	if (used >= size)
		snprintf(text + size - sizeof(" ..."), sizeof(" ..."), " ...");
	return 0;
}

/* A process with children is a tree, and this version saves single processes. */
static int refuse_children(const struct dump *dump, struct sp_error *err)
{
	pid_t pid = dump->process.pid;

	for (size_t i = 0; i < dump->process.threads.count; i++) {
		char children[256];
		int rc = list_children(pid, sp_process_thread(&dump->process, i)->tid, children,
		                       sizeof(children), err);

		if (rc)
			return rc;
		if (*children)
			return sp_fail(err, ENOTSUP,
			               "%s has children, %s: only single processes can be "
			               "saved so far; wait until they have ended",
			               sp_process_name(pid).text, children);
	}
	return 0;
}

/* The kernel's own code has no state that a record could hold; seizing has tried to avoid this. */
static void warn_of_vdso(const struct dump *dump)
{
	for (size_t i = 0; i < dump->process.threads.count; i++) {
		const struct sp_thread *thread = sp_process_thread(&dump->process, i);
		const struct sp_vma *vma =
		        sp_vma_find(&dump->vmas, sp_instruction_pointer(&thread->saved));

		if (vma && vma->kind == SP_VMA_VDSO)
			sp_warn(dump->options->log,
			        "thread %d stands in code of this kernel (the vDSO): the "
			        "checkpoint can be restored under this very kernel only",
			        thread->tid);
	}
}

static uint64_t lap(uint64_t *since_ns)
{
	uint64_t now = sp_now_ns(), took = now - *since_ns;

	*since_ns = now;
	return took;
}

static int freeze(struct dump *dump, struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + dump->options->timeout_s * SP_NS_PER_S;
	uint64_t started;
	int rc = sp_process_seize(&dump->process, dump->options->pid, deadline, err);

	if (rc)
		return rc;
	dump->frozen = true;
	rc = sp_sharing_check(&dump->process, err);
	if (!rc)
		rc = refuse_children(dump, err);
	if (!rc)
		rc = sp_namespaces_check(&dump->process, err);
	started = sp_now_ns();
	if (!rc)
		rc = take(dump, err);
	dump->result->freeze.mappings_ns = sp_now_ns() - started;
	if (rc)
		return rc;
	warn_of_vdso(dump);
	return sp_remote_open(&dump->remote, &dump->process, sp_process_leader(&dump->process),
	                      &dump->foothold, err);
}

/* --- memory that is read after the freeze --- */

/*
 * Before the pages are looked at: whether much has to be read. What cannot be held is read in the
 * freeze.
 */
static void prepare_hold(struct dump *dump)
{
	struct sp_error failure = {0};

	if (!dump->may_hold || sp_ranges_total(&dump->cut->changed) <= HOLD_MIN)
		return;
	dump->hold_uffd = sp_remote_userfaultfd_for_kernel(&dump->remote, &failure);
	if (dump->hold_uffd < 0)
		sp_verbose(dump->options->log, "all memory is saved in the freeze: %s",
		           failure.message);
}

static bool begin_hold(struct dump *dump)
{
	const struct sp_hold_request request = {
	        .pid = dump->process.pid,
	        .uffd = sp_steal_fd(&dump->hold_uffd),
	        .asynchronous = dump->cut->session.uffd,
	        .dirfd = dump->writer.dirfd,
	        .pages = &dump->held.pages,
	        .areas = &dump->held.areas,
	        .spared = &dump->last_words,
	};
	struct sp_error failure = {0};

	if (sp_hold_begin(&dump->hold, &request, &failure) == 0)
		return true;
	sp_verbose(dump->options->log, "all memory is saved in the freeze: %s", failure.message);
	return false;
}

/* Holds the pages that were listed if they are many, or else saves them now. */
static int hold_pages(struct dump *dump, struct sp_error *err)
{
	uint64_t size = sp_ranges_total(&dump->held.pages);
	int rc = size ? sp_page_writer_next_layer(dump->writer.pages, err) : 0;

	if (rc || (size > HOLD_MIN && begin_hold(dump)))
		return rc;
	return sp_memory_save_listed(dump->process.pid, &dump->held.pages, NULL, dump->writer.pages,
	                             dump->memory_object, err);
}

/* While the program runs. */
static int save_held(struct dump *dump, struct sp_error *err)
{
	const struct sp_page_source source = {.read = sp_hold_read, .context = dump->hold};
	int rc = sp_memory_save_listed(dump->process.pid, &dump->held.pages, &source,
	                               dump->writer.pages, dump->memory_object, err);

	dump->result->held_bytes = sp_ranges_total(&dump->held.pages);
	dump->result->held_writes = sp_hold_faults(dump->hold);
	sp_hold_end(sp_steal_ptr(&dump->hold));
	return rc;
}

/* Before the program is let go, and its threads with it. */
static void count(struct dump *dump)
{
	dump->result->threads = (unsigned)dump->process.threads.count;
	dump->result->mappings = (unsigned)dump->vmas.count;
	dump->result->descriptors = (unsigned)dump->files.descriptors.count;
}

/*
 * All that must happen while the program stands still, in the order in which later steps need it.
 */
static int collect(struct dump *dump, struct sp_error *err)
{
	struct sp_freeze *split = &dump->result->freeze;
	uint64_t clock = dump->process.stopped_ns;
	int rc;

	split->stop_ns = lap(&clock) - split->mappings_ns;
	rc = save_files(dump, err);
	split->descriptors_ns = lap(&clock);
	if (!rc)
		rc = save_state(dump, &dump->remote, err);
	if (!rc)
		prepare_hold(dump);
	if (!rc)
		rc = sp_remote_close(&dump->remote, err);
	split->state_ns = lap(&clock);
	if (!rc)
		rc = save_pages(dump, false, err);
	if (!rc)
		rc = hold_pages(dump, err);
	split->memory_ns = lap(&clock);
	split->total_ns = clock - dump->process.stopped_ns;
	count(dump);
	return rc;
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
	sp_verbose(dump->options->log, "%zu mappings and %zu open files in all", dump->vmas.count,
	           dump->files.files.count);
}

static void thaw(struct dump *dump, enum sp_release how)
{
	if (!dump->frozen)
		return;
	dump->frozen = false;
	sp_process_release(&dump->process, how);
}

/* --- the whole --- */

static int create(struct dump *dump, struct sp_error *err)
{
	struct sp_page_writer_options pages = {
	        .level = dump->options->compression,
	        .log = dump->options->log,
	};
	int rc = sp_checkpoint_create(&dump->writer, dump->options->directory, &pages, err);

	if (rc)
		return rc;
	dump->created = true;
	dump->memory_object = sp_page_writer_new_object(dump->writer.pages);
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
	if (!rc)
		dump->created = false;
	return rc;
}

static int prepare(struct dump *dump, struct sp_error *err)
{
	const struct sp_dump_options *options = dump->options;
	uint64_t deadline = sp_now_ns() + options->timeout_s * SP_NS_PER_S;
	int rc = sp_raise_descriptor_limit(0, err);

	if (!rc)
		rc = sp_process_check(options->pid, err);
	if (!rc)
		rc = sp_capability_need_checkpoint("read the files behind mappings", err);
	/* Looked for again in the freeze, if in vain: a program in execve(2) has no code yet. */
	if (!rc)
		sp_foothold_find(options->pid, (struct sp_range){0}, &dump->foothold, NULL);
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
	int rc = take(dump, err);

	if (!rc)
		rc = save_pages(dump, true, err);
	if (!rc)
		rc = save_state(dump, NULL, err);
	if (!rc)
		rc = save_vmas(dump, err);
	count(dump);
	if (pidfd < 0 || poll(&end, 1, 0) != 0)
		return sp_fail(err, ESRCH, "process %d has ended before it was saved",
		               dump->options->pid);
	return rc ? rc : commit(dump, err);
}

static int save_program(struct dump *dump, struct sp_error *err)
{
	enum sp_release after = dump->options->after;
	int rc = dump->cut->active ? copy_ahead(dump, err) : 0;

	if (!rc)
		rc = sp_interrupt_check(err);
	if (!rc)
		rc = freeze(dump, err);
	if (!rc)
		rc = collect(dump, err);
	if (rc && dump->frozen && sp_process_is_ending(&dump->process))
		return sp_fail(err, ESRCH, "process %d has ended before it was saved",
		               dump->options->pid);
	if (!rc && after == SP_RELEASE_RUN)
		thaw(dump, after);
	if (!rc)
		rc = check_mappings(dump, err);
	if (!rc && dump->hold)
		rc = save_held(dump, err);
	if (!rc)
		rc = save_vmas(dump, err);
	if (!rc)
		rc = commit(dump, err);
	if (!rc)
		tell_steps(dump);
	if (!rc)
		thaw(dump, after);
	return rc;
}

static void release(struct dump *dump)
{
	sp_hold_end(dump->hold);
	sp_close_scope(&dump->hold_uffd);
	sp_array_release(&dump->held.pages);
	sp_array_release(&dump->held.areas);
	sp_array_release(&dump->last_words);
	sp_remote_close(&dump->remote, NULL);
	thaw(dump, SP_RELEASE_RUN);
	sp_process_forget(&dump->process);
	sp_file_table_release(&dump->files);
	sp_vma_list_release(&dump->vmas);
	free(dump->maps);
	if (dump->created)
		sp_checkpoint_abandon(&dump->writer);
}

bool sp_target_survives(pid_t pid)
{
	return sp_foothold_is_safe(pid);
}

static int attempt(const struct sp_dump_options *options, struct sp_cut *cut, bool again,
                   struct sp_dump_result *result, struct sp_error *err)
{
	struct dump dump = {
	        .options = options,
	        .result = result,
	        .process = {.pid = options->pid, .pidfd = -1},
	        .cut = cut,
	        .vmas = SP_ARRAY_OF(struct sp_vma),
	        .again = again,
	        .hold_uffd = -1,
	        .held = {SP_ARRAY_OF(struct sp_range), SP_ARRAY_OF(struct sp_range)},
	        .last_words = SP_ARRAY_OF(remote_addr),
	};
	int rc;

	*result = (struct sp_dump_result){0};
	sp_file_table_init(&dump.files);
	rc = prepare(&dump, err);
	dump.may_hold = cut->active && !again && options->after == SP_RELEASE_RUN;
	if (!rc)
		rc = options->memory_only ? save_memory_only(&dump, err) : save_program(&dump, err);
	release(&dump);
	return rc;
}

int sp_dump(const struct sp_dump_options *options, struct sp_dump_result *result,
            struct sp_error *err)
{
	uint64_t started = sp_now_ns();
	sp_cleanup_cut struct sp_cut own;
	struct sp_cut *cut = options->chain ? options->chain : &own;
	int rc;

	sp_cut_init(&own);
	rc = attempt(options, cut, false, result, err);
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
