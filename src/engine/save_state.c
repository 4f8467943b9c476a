/*
 * The state of a process that is neither memory nor descriptors: its record and those of its
 * threads, each with what the facets have saved of it.
 */
#include "engine/save_state.h"

#include "base/cleanup.h"
#include "image/checkpoint.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"

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

static int name_facet(const struct sp_facet *facet, const struct sp_facet_saver *saver,
                      struct sp_error *err)
{
	if (facet->scope == SP_FACET_PROCESS)
		return sp_error_context(err, "cannot save the %s of %s", facet->title,
		                        sp_process_name(saver->process->pid).text);
	return sp_error_context(err, "cannot save the %s of thread %d of %s", facet->title,
	                        saver->thread->tid, sp_process_name(saver->process->pid).text);
}

static int save_facet(const struct sp_facet *facet, struct sp_facet_saver *saver,
                      struct facet_list *list, struct sp_array *refusals, struct sp_error *err)
{
	struct sp_blob blob = {0};
	Sealpoint__Facet *record;

	if (facet->save(saver, &blob, err))
		return sp_error_collect(refusals, name_facet(facet, saver, err), err);
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
static int save_facets(const struct sp_state_saver *state, struct sp_thread *thread,
                       enum sp_facet_scope scope, struct facet_list *list, struct sp_error *err)
{
	sp_cleanup_free char *status = NULL;
	struct sp_facet_saver saver = {
	        .process = state->process,
	        .thread = thread,
	        .remote = state->remote,
	        .options = state->options,
	        .log = state->log,
	        .last_words = state->last_words,
	};
	size_t count = 0;
	int rc = sp_remote_drive(state->remote, thread, err);

	if (!rc)
		rc = sp_status_read(state->process->pid, thread->tid, &status, err);
	saver.status = status;
	while (sp_facets[count])
		count++;
	for (size_t i = count; i-- > 0 && !rc;)
		if (sp_facets[i]->scope == scope)
			rc = save_facet(sp_facets[i], &saver, list, state->refusals, err);
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

/* Who it is. The name points into `stat`. */
static void identify(pid_t pid, struct sp_stat *stat, Sealpoint__Process *record)
{
	record->pid = (uint32_t)pid;
	record->ppid = (uint32_t)stat->ppid;
	record->pgid = (uint32_t)stat->pgrp;
	record->sid = (uint32_t)stat->session;
	record->exit_signal = (uint32_t)stat->exit_signal;
	record->comm = stat->comm;
}

static int save_process(const struct sp_state_saver *state, struct sp_error *err)
{
	sp_cleanup_facets struct facet_list facets = FACET_LIST;
	sp_cleanup_free char *command_line = read_command_line(state->process->pid);
	sp_cleanup_free char *executable = NULL;
	Sealpoint__Process record = SEALPOINT__PROCESS__INIT;
	pid_t pid = state->process->pid;
	struct sp_stat stat;
	int rc = sp_proc_read_link(pid, "exe", &executable, err);

	if (!rc)
		rc = sp_stat_read(pid, pid, &stat, err);
	if (!rc && state->remote)
		rc = save_facets(state, sp_process_leader(state->process), SP_FACET_PROCESS,
		                 &facets, err);
	if (rc)
		return rc;
	identify(pid, &stat, &record);
	record.stopped = state->process->group_stopped;
	if (record.stopped)
		record.wait_status = (uint32_t)stat.exit_code;
	record.executable = executable;
	record.command_line = command_line;
	record.memory_object = state->memory_object;
	record.executable_file = state->executable;
	record.n_facets = facets.pointers.count;
	record.facets = facets.pointers.items;
	return sp_record_write(state->records, SP_RECORD_PROCESS, &record.base, err);
}

static int save_thread(const struct sp_state_saver *state, struct sp_thread *thread,
                       struct sp_error *err)
{
	sp_cleanup_facets struct facet_list facets = FACET_LIST;
	Sealpoint__Thread record = SEALPOINT__THREAD__INIT;
	struct sp_stat stat;
	int rc = sp_stat_read(state->process->pid, thread->tid, &stat, err);

	if (!rc)
		rc = save_facets(state, thread, SP_FACET_THREAD, &facets, err);
	if (rc)
		return rc;
	record.pid = (uint32_t)state->process->pid;
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
	return sp_record_write(state->records, SP_RECORD_THREAD, &record.base, err);
}

int sp_state_save_ended(pid_t pid, struct sp_record_writer *records, struct sp_error *err)
{
	Sealpoint__Process record = SEALPOINT__PROCESS__INIT;
	struct sp_stat stat;
	int rc = sp_stat_read(pid, pid, &stat, err);

	if (rc)
		return rc;
	identify(pid, &stat, &record);
	record.ended = true;
	record.wait_status = (uint32_t)stat.exit_code;
	return sp_record_write(records, SP_RECORD_PROCESS, &record.base, err);
}

int sp_state_save(const struct sp_state_saver *state, struct sp_error *err)
{
	int rc = save_process(state, err);

	for (size_t i = 0; state->remote && i < state->process->threads.count && !rc; i++)
		rc = save_thread(state, sp_process_thread(state->process, i), err);
	return rc;
}
