/*
 * The state of a process that is neither memory nor descriptors: its record and those of its
 * threads, each with what the facets have saved of it.
 */
#include "engine/save_state.h"

#include "base/cleanup.h"
#include "image/checkpoint.h"
#include "kinds/cgroups.h"
#include "kinds/file_table.h"
#include "kinds/pty.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"

/* What one facet has to say about the thread at hand, or its process. */
struct part {
	const struct sp_facet *facet; /* NULL: this one is not to be asked, or refuses */
	struct sp_asked asked;
	struct sp_blob blob;
};

/* What is known of a thread: an array of struct part, with a row for each of the registry. */
#define sp_cleanup_parts sp_cleanup(parts_release)

static void parts_release(struct sp_array *parts)
{
	for (size_t i = 0; i < parts->count; i++) {
		struct part *part = sp_array_at(parts, i);

		free(part->asked.notes);
		sp_blob_release(&part->blob);
	}
	sp_array_release(parts);
}

/* The facets of a record, which has them in the order of the registry. */
struct facet_list {
	struct sp_array facets;   /* Sealpoint__Facet */
	struct sp_array pointers; /* Sealpoint__Facet * */
};

#define FACET_LIST                                                             \
	{                                                                      \
		SP_ARRAY_OF(Sealpoint__Facet), SP_ARRAY_OF(Sealpoint__Facet *) \
	}
#define sp_cleanup_facets sp_cleanup(facet_list_release)

static void facet_list_release(struct facet_list *list)
{
	sp_array_release(&list->facets);
	sp_array_release(&list->pointers);
}

/* Those of one scope: what is known of the leader is in part its process's. */
static void list_facets(const struct sp_array *parts, enum sp_facet_scope scope,
                        struct facet_list *list)
{
	for (size_t i = 0; i < parts->count; i++) {
		const struct part *part = sp_array_at(parts, i);
		Sealpoint__Facet *record;

		if (sp_facets[i]->scope != scope || !part->blob.bytes)
			continue;
		record = sp_array_push(&list->facets);
		sealpoint__facet__init(record);
		record->name = (char *)sp_facets[i]->name;
		record->body = (ProtobufCBinaryData){part->blob.size, part->blob.bytes};
	}
	for (size_t i = 0; i < list->facets.count; i++)
		*(Sealpoint__Facet **)sp_array_push(&list->pointers) =
		        sp_array_at(&list->facets, i);
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

static int ask(struct part *part, struct sp_facet_saver *saver, struct sp_error *err)
{
	saver->asked = &part->asked;
	return part->facet->ask ? part->facet->ask(saver, err) : 0;
}

static int save_asked(struct part *part, struct sp_facet_saver *saver, struct sp_error *err)
{
	saver->asked = &part->asked;
	return part->facet->ask ? part->facet->save(saver, &part->blob, err) : 0;
}

static int save_others(struct part *part, struct sp_facet_saver *saver, struct sp_error *err)
{
	return part->facet->ask ? 0 : part->facet->save(saver, &part->blob, err);
}

/* Is it saved with another process, with which this one shares it? */
static bool is_elsewhere(const struct sp_facet *facet, struct sp_sharing sharing)
{
	switch (facet->shared) {
	case SP_SHARED_WITH_MEMORY:
		return sharing.memory;
	case SP_SHARED_WITH_DIRECTORIES:
		return sharing.directories;
	case SP_SHARED_WITH_ACTIONS:
		return sharing.actions;
	default:
		return false;
	}
}

/*
 * One step with all of them. What is rebuilt last comes first: timers before the signals that they may send
 * meanwhile. One that refuses is not asked any more.
 */
static int each(struct sp_array *parts, struct sp_facet_saver *saver, struct sp_array *refusals,
                int (*step)(struct part *part, struct sp_facet_saver *saver, struct sp_error *err),
                struct sp_error *err)
{
	int rc = 0;

	for (size_t i = parts->count; i-- > 0 && !rc;) {
		struct part *part = sp_array_at(parts, i);

		if (!part->facet || !step(part, saver, err))
			continue;
		rc = sp_error_collect(refusals, name_facet(part->facet, saver, err), err);
		part->facet = NULL;
	}
	return rc;
}

static bool is_to_be_saved(const struct sp_state_saver *state, const struct sp_thread *thread,
                           const struct sp_facet *facet)
{
	if (facet->scope == SP_FACET_THREAD)
		return true;
	return thread == sp_process_leader(state->process) && !is_elsewhere(facet, state->sharing);
}

/*
 * All that facets say about a thread, which drives from now on; those of the process speak of its leader.
 * The calls that they need are one batch.
 */
static int save_parts(const struct sp_state_saver *state, struct sp_thread *thread,
                      struct sp_array *parts, struct sp_error *err)
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
	int rc = sp_remote_drive(state->remote, thread, err);

	if (!rc)
		rc = sp_status_read(state->process->pid, thread->tid, &status, err);
	if (rc)
		return rc;
	saver.status = status;
	for (size_t i = 0; sp_facets[i]; i++) {
		struct part *part = sp_array_push(parts);

		*part = (struct part){0};
		if (is_to_be_saved(state, thread, sp_facets[i]))
			part->facet = sp_facets[i];
	}
	sp_batch_begin(state->remote);
	rc = each(parts, &saver, state->refusals, ask, err);
	if (!rc)
		rc = sp_batch_run(state->remote, err);
	if (!rc)
		rc = each(parts, &saver, state->refusals, save_asked, err);
	return rc ? rc : each(parts, &saver, state->refusals, save_others, err);
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

/* Where its master is not saved along, it is the terminal of somebody else, or given to the restore. */
static void save_terminal(const struct sp_state_saver *state, const struct sp_stat *stat,
                          Sealpoint__Process *record)
{
	const struct sp_open_file *terminal = sp_pty_find_master(state->files, (dev_t)stat->tty);

	if (!terminal && stat->tty)
		terminal = sp_file_table_find_external(state->files, (dev_t)stat->tty);
	if (!terminal)
		return;
	record->terminal = terminal->id;
	record->foreground = stat->foreground > 0 ? (uint32_t)stat->foreground : 0;
}

static int save_process(const struct sp_state_saver *state, const struct sp_array *parts,
                        struct sp_error *err)
{
	sp_cleanup_facets struct facet_list facets = FACET_LIST;
	sp_cleanup_free char *command_line = read_command_line(sp_process_living(state->process));
	sp_cleanup_free char *executable = NULL;
	sp_cleanup(sp_cgroups_free) struct sp_array cgroups = SP_ARRAY_OF(Sealpoint__Cgroup *);
	Sealpoint__Process record = SEALPOINT__PROCESS__INIT;
	pid_t pid = state->process->pid;
	struct sp_stat stat;
	int rc = sp_proc_read_link(sp_process_living(state->process), "exe", &executable, err);

	if (!rc)
		rc = sp_stat_read(pid, pid, &stat, err);
	if (rc)
		return rc;
	list_facets(parts, SP_FACET_PROCESS, &facets);
	identify(pid, &stat, &record);
	save_terminal(state, &stat, &record);
	if (state->options->cgroups != SP_CGROUPS_IGNORE && state->process->threads.count) {
		rc = sp_cgroups_save(state->process, &cgroups, err);
		if (rc)
			return rc;
		record.cgroups = cgroups.items;
		record.n_cgroups = cgroups.count;
	}
	record.stopped = state->process->group_stopped;
	record.wait_status = record.stopped ? state->stop_status : 0;
	record.continued = state->continued;
	record.leader_ended = state->remote && sp_process_leader_has_ended(state->process);
	if (record.leader_ended)
		record.leader_status = (uint32_t)stat.exit_code;
	record.memory_of = (uint32_t)state->sharing.memory;
	record.actions_of = (uint32_t)state->sharing.actions;
	record.descriptors_of = (uint32_t)state->sharing.descriptors;
	record.directories_of = (uint32_t)state->sharing.directories;
	record.executable = executable;
	record.command_line = command_line;
	record.memory_object = state->memory_object;
	record.executable_file = state->executable;
	if (state->session) {
		record.session_id = (ProtobufCBinaryData){
		        .data = (uint8_t *)state->session->id,
		        .len = sizeof(state->session->id),
		};
		record.generation = state->session->generation;
	}
	record.n_facets = facets.pointers.count;
	record.facets = facets.pointers.items;
	return sp_record_write(state->records, SP_RECORD_PROCESS, &record.base, err);
}

static int save_thread(const struct sp_state_saver *state, struct sp_thread *thread,
                       const struct sp_array *parts, struct sp_error *err)
{
	sp_cleanup_facets struct facet_list facets = FACET_LIST;
	Sealpoint__Thread record = SEALPOINT__THREAD__INIT;
	struct sp_stat stat;
	int rc = sp_stat_read(state->process->pid, thread->tid, &stat, err);

	if (rc)
		return rc;
	list_facets(parts, SP_FACET_THREAD, &facets);
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
	int rc = sp_stat_read_process(pid, &stat, err);

	if (rc)
		return rc;
	identify(pid, &stat, &record);
	record.ended = true;
	record.wait_status = (uint32_t)stat.exit_code;
	return sp_record_write(records, SP_RECORD_PROCESS, &record.base, err);
}

int sp_state_save(const struct sp_state_saver *state, struct sp_error *err)
{
	const struct sp_array none = {0};
	int rc = state->remote ? 0 : save_process(state, &none, err);

	for (size_t i = 0; state->remote && i < state->process->threads.count && !rc; i++) {
		sp_cleanup_parts struct sp_array parts = SP_ARRAY_OF(struct part);
		struct sp_thread *thread = sp_process_thread(state->process, i);

		rc = save_parts(state, thread, &parts, err);
		if (!rc && i == 0)
			rc = save_process(state, &parts, err);
		if (!rc)
			rc = save_thread(state, thread, &parts, err);
	}
	return rc;
}
