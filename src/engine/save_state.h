/* The records of a process and its threads: see save_state.c. */
#ifndef SEALPOINT_ENGINE_SAVE_STATE_H
#define SEALPOINT_ENGINE_SAVE_STATE_H

#include "image/record.h"
#include "kinds/kind.h"
#include "kinds/sharing.h"
#include "remote/remote.h"
#include "track/session.h"

struct sp_state_saver {
	struct sp_process *process;
	struct sp_remote *remote; /* NULL: the process runs, and only its own record is written */
	const struct sp_kind_options *options;
	struct sp_record_writer *records;
	const struct sp_file_table *files;
	struct sp_log *log;
	uint32_t memory_object;           /* in the page store */
	uint32_t executable;              /* OpenFile.id; 0: not saved */
	const struct sp_session *session; /* that tracks its writes; NULL: none */
	struct sp_array *last_words;      /* as in struct sp_facet_saver; may be NULL */
	/* What its parent has still to learn: by which signal it was stopped, or that it goes on. */
	uint32_t stop_status;
	bool continued;
	struct sp_sharing sharing; /* what an earlier process has, too, is saved with that */
	struct sp_array *refusals; /* struct sp_error: what facets refuse; NULL: the first fails */
};

/** Writes the records of a stopped process and of its threads; each facet saves its part. */
int sp_state_save(const struct sp_state_saver *state, struct sp_error *err);
/** Writes the record of a process that has ended, and whose parent has still to learn that. */
int sp_state_save_ended(pid_t pid, struct sp_record_writer *records, struct sp_error *err);

#endif
