/*
 * The notes of a core file: who the process was, its threads with their registers, and which files
 * were mapped where. The layouts are those of the kernel's own core files (core(5), elf(5),
 * sys/procfs.h), with the leading thread first, because that is the one a debugger shows.
 */
#include "engine/core.h"

#include "mem/vma.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/procfs.h>

#define FXSAVE_SIZE 512 /* NT_FPREGSET: the part of the extended state that every processor has */

static void pad(struct sp_array *notes)
{
	while (notes->count % 4)
		sp_array_push(notes);
}

static void add_note(struct sp_array *notes, const char *owner, uint32_t type, const void *content,
                     size_t size)
{
	Elf64_Nhdr header = {
	        .n_namesz = (uint32_t)strlen(owner) + 1,
	        .n_descsz = (uint32_t)size,
	        .n_type = type,
	};

	sp_array_append_all(notes, &header, sizeof(header));
	sp_array_append_all(notes, owner, header.n_namesz);
	pad(notes);
	sp_array_append_all(notes, content, size);
	pad(notes);
}

static int add_status(struct sp_array *notes, const Sealpoint__Process *process,
                      const Sealpoint__Thread *thread, struct sp_error *err)
{
	struct elf_prstatus status = {
	        .pr_pid = (pid_t)thread->tid,
	        .pr_ppid = (pid_t)process->ppid,
	        .pr_pgrp = (pid_t)process->pgid,
	        .pr_sid = (pid_t)process->sid,
	        .pr_sighold = thread->signal_mask,
	        .pr_fpvalid = 1,
	};

	if (thread->general.len != sizeof(status.pr_reg) || thread->xstate.len < FXSAVE_SIZE)
		return sp_fail_damaged(err, "registers of thread %u of another size", thread->tid);
	memcpy(&status.pr_reg, thread->general.data, sizeof(status.pr_reg));
	add_note(notes, "CORE", NT_PRSTATUS, &status, sizeof(status));
	return 0;
}

static void add_process_info(struct sp_array *notes, const Sealpoint__Process *process)
{
	struct elf_prpsinfo info = {
	        .pr_sname = process->stopped ? 'T' : 'R',
	        .pr_pid = (pid_t)process->pid,
	        .pr_ppid = (pid_t)process->ppid,
	        .pr_pgrp = (pid_t)process->pgid,
	        .pr_sid = (pid_t)process->sid,
	};

	snprintf(info.pr_fname, sizeof(info.pr_fname), "%s", process->comm);
	snprintf(info.pr_psargs, sizeof(info.pr_psargs), "%s", process->command_line);
	add_note(notes, "CORE", NT_PRPSINFO, &info, sizeof(info));
}

static int add_facet_notes(struct sp_array *notes, Sealpoint__Facet *const *facets, size_t count,
                           struct sp_error *err)
{
	for (size_t i = 0; i < count; i++) {
		const struct sp_facet *facet = sp_facet_by_name(facets[i]->name);
		struct sp_blob note = {0};
		uint32_t type;
		int rc;

		if (!facet || !facet->core_note)
			continue;
		rc = facet->core_note(facets[i]->body, &type, &note, err);
		if (rc == 0)
			add_note(notes, "CORE", type, note.bytes, note.size);
		sp_blob_release(&note);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* A debugger looks for these files, so those without a name are left out. */
static bool maps_named_file(const Sealpoint__Vma *vma, const Sealpoint__Process *process)
{
	return vma->pid == sp_memory_owner(process) && vma->file && vma->path[0] == '/' &&
	       !(vma->flags & SP_VMA_DELETED);
}

/*
 * NT_FILE: count and page size, a triple of start, end and file page for each, then all the names.
 */
static void add_mapped_files(struct sp_array *notes, const struct sp_checkpoint *checkpoint,
                             const Sealpoint__Process *process)
{
	sp_cleanup_array struct sp_array numbers = SP_ARRAY_OF(uint64_t);
	sp_cleanup_array struct sp_array content = SP_ARRAY_OF(char);
	uint64_t count = 0;

	sp_array_append(&numbers, &count);
	sp_array_append(&numbers, &(uint64_t){SP_PAGE_SIZE});
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);

		if (!maps_named_file(vma, process))
			continue;
		sp_array_append(&numbers, &vma->start);
		sp_array_append(&numbers, &vma->end);
		sp_array_append(&numbers, &(uint64_t){vma->offset / SP_PAGE_SIZE});
		count++;
	}
	memcpy(numbers.items, &count, sizeof(count));
	sp_array_append_all(&content, numbers.items, numbers.count * sizeof(uint64_t));
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);

		if (maps_named_file(vma, process))
			sp_array_append_all(&content, vma->path, strlen(vma->path) + 1);
	}
	add_note(notes, "CORE", NT_FILE, content.items, content.count);
}

static void add_register_sets(struct sp_array *notes, const Sealpoint__Thread *thread)
{
	add_note(notes, "CORE", NT_FPREGSET, thread->xstate.data, FXSAVE_SIZE);
	if (thread->xstate.len > FXSAVE_SIZE)
		add_note(notes, "LINUX", NT_X86_XSTATE, thread->xstate.data, thread->xstate.len);
}

/* A debugger takes each note for the thread whose status came last. */
static int add_thread(struct sp_array *notes, const struct sp_checkpoint *checkpoint,
                      const Sealpoint__Process *process, const Sealpoint__Thread *thread,
                      bool leader, struct sp_error *err)
{
	int rc = add_status(notes, process, thread, err);

	if (rc == 0 && leader) {
		add_process_info(notes, process);
		add_mapped_files(notes, checkpoint, process);
		rc = add_facet_notes(notes, process->facets, process->n_facets, err);
	}
	if (rc == 0)
		rc = add_facet_notes(notes, thread->facets, thread->n_facets, err);
	if (rc == 0)
		add_register_sets(notes, thread);
	return rc;
}

int sp_core_notes(const struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                  struct sp_array *notes, struct sp_error *err)
{
	bool leader = true;

	for (size_t i = 0; i < checkpoint->threads.count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(&checkpoint->threads, i);
		int rc;

		if (thread->pid != process->pid)
			continue;
		rc = add_thread(notes, checkpoint, process, thread, leader, err);
		if (rc < 0)
			return rc;
		leader = false;
	}
	return 0;
}
