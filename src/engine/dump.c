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

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/limit.h"
#include "kinds/file_table.h"
#include "kinds/namespaces.h"
#include "mem/memory.h"
#include "proc/capability.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct dump {
	const struct sp_dump_options *options;
	struct sp_dump_result *result;
	struct sp_foothold foothold;
	struct sp_checkpoint_writer writer;
	struct sp_process process;
	struct sp_remote remote;
	struct sp_array vmas; /* struct sp_vma */
	struct sp_file_table files;
	uint32_t executable;
	uint32_t memory_object;
	bool frozen, created;
};

/* --- records --- */

/* The facets of one process or thread, as a record holds them. */
struct facet_list {
	struct sp_array blobs;    /* struct sp_blob */
	struct sp_array facets;   /* Sealpoint__Facet */
	struct sp_array pointers; /* Sealpoint__Facet * */
};

#define FACET_LIST                                                          \
	{                                                                   \
		SP_ARRAY_OF(struct sp_blob), SP_ARRAY_OF(Sealpoint__Facet), \
		        SP_ARRAY_OF(Sealpoint__Facet *)                     \
	}
#define sp_cleanup_facets sp_cleanup(facet_list_release)

static void facet_list_release(struct facet_list *list)
{
	for (size_t i = 0; i < list->blobs.count; i++)
		sp_blob_release(sp_array_at(&list->blobs, i));
	sp_array_release(&list->blobs);
	sp_array_release(&list->facets);
	sp_array_release(&list->pointers);
}

static int save_facet(const struct sp_facet *facet, struct sp_facet_saver *saver,
                      struct facet_list *list, struct sp_error *err)
{
	struct sp_blob blob = {0};
	Sealpoint__Facet *record;
	int rc = facet->save(saver, &blob, err);

	if (rc && facet->scope == SP_FACET_PROCESS)
		return sp_error_context(err, "cannot save the %s of %s", facet->title,
		                        sp_process_name(saver->process->pid).text);
	if (rc)
		return sp_error_context(err, "cannot save the %s of thread %d of %s", facet->title,
		                        saver->thread->tid,
		                        sp_process_name(saver->process->pid).text);
	if (!blob.bytes)
		return 0;
	sp_array_append(&list->blobs, &blob);
	record = sp_array_push(&list->facets);
	sealpoint__facet__init(record);
	record->name = (char *)facet->name;
	record->body = (ProtobufCBinaryData){.data = blob.bytes, .len = blob.size};
	return 0;
}

/*
 * Asks every facet of this scope about a thread, which drives from now on. What is rebuilt last is
 * read first: timers before the signals that they may send meanwhile. The record has them in the
 * order of the registry.
 */
static int save_facets(struct dump *dump, struct sp_thread *thread, enum sp_facet_scope scope,
                       struct facet_list *list, struct sp_error *err)
{
	sp_cleanup_free char *status = NULL;
	struct sp_facet_saver saver = {
	        .process = &dump->process,
	        .thread = thread,
	        .remote = &dump->remote,
	        .options = &dump->options->kinds,
	        .log = dump->options->log,
	};
	size_t count = 0;
	int rc = sp_remote_drive(&dump->remote, thread, err);

	if (!rc)
		rc = sp_status_read(dump->process.pid, thread->tid, &status, err);
	saver.status = status;
	while (sp_facets[count])
		count++;
	for (size_t i = count; i-- > 0 && !rc;)
		if (sp_facets[i]->scope == scope)
			rc = save_facet(sp_facets[i], &saver, list, err);
	for (size_t i = list->facets.count; i-- > 0 && !rc;) {
		Sealpoint__Facet *record = sp_array_at(&list->facets, i);

		sp_array_append(&list->pointers, &record);
	}
	return rc;
}

/* Arguments joined by blanks, for people. */
static char *read_command_line(pid_t pid)
{
	char *text = NULL;
	size_t size = 0;

	if (sp_proc_read(pid, "cmdline", &text, &size, NULL))
		return sp_strdup("");
	for (size_t i = 0; i + 1 < size; i++)
		if (!text[i])
			text[i] = ' ';
	return text;
}

static int save_process(struct dump *dump, struct sp_error *err)
{
	sp_cleanup_facets struct facet_list facets = FACET_LIST;
	sp_cleanup_free char *command_line = read_command_line(dump->process.pid);
	sp_cleanup_free char *executable = NULL;
	Sealpoint__Process record = SEALPOINT__PROCESS__INIT;
	pid_t pid = dump->process.pid;
	struct sp_stat stat;
	int rc = sp_proc_read_link(pid, "exe", &executable, err);

	if (!rc)
		rc = sp_stat_read(pid, pid, &stat, err);
	if (!rc)
		rc = save_facets(dump, sp_process_leader(&dump->process), SP_FACET_PROCESS, &facets,
		                 err);
	if (rc)
		return rc;
	record.pid = (uint32_t)pid;
	record.ppid = (uint32_t)stat.ppid;
	record.pgid = (uint32_t)stat.pgrp;
	record.sid = (uint32_t)stat.session;
	record.stopped = dump->process.group_stopped;
	record.comm = stat.comm;
	record.executable = executable;
	record.command_line = command_line;
	record.memory_object = dump->memory_object;
	record.executable_file = dump->executable;
	record.n_facets = facets.pointers.count;
	record.facets = facets.pointers.items;
	return sp_record_write(&dump->writer.records, SP_RECORD_PROCESS, &record.base, err);
}

static int save_thread(struct dump *dump, struct sp_thread *thread, struct sp_error *err)
{
	sp_cleanup_facets struct facet_list facets = FACET_LIST;
	Sealpoint__Thread record = SEALPOINT__THREAD__INIT;
	struct sp_stat stat;
	int rc = sp_stat_read(dump->process.pid, thread->tid, &stat, err);

	if (!rc)
		rc = save_facets(dump, thread, SP_FACET_THREAD, &facets, err);
	if (rc)
		return rc;
	record.pid = (uint32_t)dump->process.pid;
	record.tid = (uint32_t)thread->tid;
	record.comm = stat.comm;
	record.general = (ProtobufCBinaryData){
	        .data = (uint8_t *)&thread->saved,
	        .len = sizeof(thread->saved),
	};
	record.xstate = (ProtobufCBinaryData){
	        .data = thread->raw.xstate,
	        .len = thread->raw.xstate_size,
	};
	record.signal_mask = thread->signal_mask;
	record.n_facets = facets.pointers.count;
	record.facets = facets.pointers.items;
	return sp_record_write(&dump->writer.records, SP_RECORD_THREAD, &record.base, err);
}

static int save_state(struct dump *dump, struct sp_error *err)
{
	int rc = save_process(dump, err);

	for (size_t i = 0; i < dump->process.threads.count && !rc; i++)
		rc = save_thread(dump, sp_process_thread(&dump->process, i), err);
	return rc;
}

/* --- mappings, descriptors, memory --- */

/* The mappings, and whether they can be saved at all. The first of them that cannot is named. */
static int read_mappings(struct dump *dump, struct sp_error *err)
{
	uint64_t started = sp_now_ns();
	int rc = sp_vma_list_read(dump->process.pid, &dump->vmas, err);

	dump->result->freeze.mappings_ns = sp_now_ns() - started;
	return rc ? rc : sp_memory_check(dump->process.pid, &dump->vmas, err);
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

static int save_memory(struct dump *dump, struct sp_error *err)
{
	int rc = sp_memory_save(dump->process.pid, &dump->vmas, dump->writer.pages,
	                        dump->memory_object, err);

	for (size_t i = 0; i < dump->vmas.count && !rc; i++) {
		Sealpoint__Vma record = SEALPOINT__VMA__INIT;

		sp_vma_to_record(sp_array_at(&dump->vmas, i), dump->process.pid, &record);
		rc = sp_record_write(&dump->writer.records, SP_RECORD_VMA, &record.base, err);
	}
	return rc ? rc : sp_page_writer_drain(dump->writer.pages, err);
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
	int rc = sp_process_seize(&dump->process, dump->options->pid, deadline, err);

	if (rc)
		return rc;
	dump->frozen = true;
	rc = refuse_children(dump, err);
	if (!rc)
		rc = sp_namespaces_check(&dump->process, err);
	if (!rc)
		rc = read_mappings(dump, err);
	if (rc)
		return rc;
	warn_of_vdso(dump);
	return sp_remote_open(&dump->remote, &dump->process, sp_process_leader(&dump->process),
	                      &dump->foothold, err);
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
		rc = save_state(dump, err);
	if (!rc)
		rc = sp_remote_close(&dump->remote, err);
	split->state_ns = lap(&clock);
	if (!rc)
		rc = save_memory(dump, err);
	split->memory_ns = lap(&clock);
	split->total_ns = clock - dump->process.stopped_ns;
	return rc;
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
	Sealpoint__Manifest manifest = SEALPOINT__MANIFEST__INIT;
	int rc;

	manifest.root_pid = (uint32_t)dump->options->pid;
	manifest.freeze_ns = dump->result->freeze.total_ns;
	rc = sp_checkpoint_commit(&dump->writer, &manifest, &dump->result->pages, err);
	dump->created = false;
	return rc;
}

static void count(struct dump *dump)
{
	dump->result->threads = (unsigned)dump->process.threads.count;
	dump->result->mappings = (unsigned)dump->vmas.count;
	dump->result->descriptors = (unsigned)dump->files.descriptors.count;
}

static int run(struct dump *dump, struct sp_error *err)
{
	enum sp_release after = dump->options->after;
	int rc = sp_raise_descriptor_limit(0, err);

	if (!rc)
		rc = sp_process_check(dump->options->pid, err);
	if (!rc)
		rc = sp_capability_need_checkpoint("read the files behind mappings", err);
	/* Looked for again in the freeze, if in vain: a program in execve(2) has no code yet. */
	if (!rc)
		sp_foothold_find(dump->options->pid, (struct sp_range){0}, &dump->foothold, NULL);
	if (!rc)
		rc = create(dump, err);
	if (!rc)
		rc = freeze(dump, err);
	if (!rc)
		rc = collect(dump, err);
	if (rc && dump->frozen && sp_process_is_ending(&dump->process))
		return sp_fail(err, ESRCH, "process %d has ended before it was saved",
		               dump->options->pid);
	count(dump);
	if (!rc && after == SP_RELEASE_RUN)
		thaw(dump, after);
	if (!rc)
		rc = commit(dump, err);
	if (!rc)
		thaw(dump, after);
	return rc;
}

/* All files of the checkpoint together. */
static uint64_t directory_size(const char *path)
{
	sp_cleanup_dir DIR *dir = opendir(path);
	struct dirent *entry;
	uint64_t size = 0;
	struct stat stat;

	while (dir && (entry = readdir(dir)))
		if (!fstatat(dirfd(dir), entry->d_name, &stat, 0) && S_ISREG(stat.st_mode))
			size += (uint64_t)stat.st_size;
	return size;
}

static void release(struct dump *dump)
{
	sp_remote_close(&dump->remote, NULL);
	thaw(dump, SP_RELEASE_RUN);
	sp_process_forget(&dump->process);
	sp_file_table_release(&dump->files);
	sp_vma_list_release(&dump->vmas);
	if (dump->created)
		sp_checkpoint_abandon(&dump->writer);
}

int sp_dump(const struct sp_dump_options *options, struct sp_dump_result *result,
            struct sp_error *err)
{
	uint64_t started = sp_now_ns();
	struct dump dump = {
	        .options = options,
	        .result = result,
	        .process = {.pid = options->pid, .pidfd = -1},
	        .vmas = SP_ARRAY_OF(struct sp_vma),
	};
	int rc;

	*result = (struct sp_dump_result){0};
	sp_file_table_init(&dump.files);
	rc = run(&dump, err);
	release(&dump);
	if (rc == -EINTR && sp_interrupt_check(err))
		return sp_error_context(err, "%s runs on, and nothing was saved",
		                        sp_process_name(options->pid).text);
	if (rc)
		return rc;
	result->total_ns = sp_now_ns() - started;
	result->image_bytes = directory_size(options->directory);
	return 0;
}
