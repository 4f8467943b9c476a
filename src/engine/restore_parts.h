/*
 * A restore in the making, which three files work on: restore.c, the order of its steps;
 * restore_plan.c, who the processes are and who bears whom; and restore_tree.c, how they come into
 * being.
 */
#ifndef SEALPOINT_ENGINE_RESTORE_PARTS_H
#define SEALPOINT_ENGINE_RESTORE_PARTS_H

#include "engine/engine.h"
#include "kinds/cgroups.h"
#include "kinds/file_build.h"
#include "mem/memory.h"

/* A process that is made. */
struct restore_task {
	pid_t pid;
	const Sealpoint__Process *record; /* NULL: a helper, which ends when all are born */
	struct sp_array
	        threads; /* const Sealpoint__Thread *: the leader's is the first, unless it has ended */
	struct sp_memory_build memory;
	struct restore_task *memory_of; /* whose memory it has: its own, or an earlier one's */
	struct sp_process process;
	struct sp_remote remote;

	/* the plan; `parent` and `mother` differ for an orphan, and a helper has no parent */
	struct restore_task *parent; /* NULL: not of the tree */
	struct restore_task *mother; /* whose process clones it; NULL: sealpoint */
	struct restore_task
	        *brother;    /* who does that instead, because they share something; or NULL */
	pid_t birth_session; /* that it has to be born into; 0: whichever its mother has */
	bool leads_session;  /* it begins a session of its own... */
	bool born_before;    /* ... and this child of it is born before that */
	bool begins_group;   /* other than as the leader of a session */
	bool joins_group;    /* that of its record */
	bool inherits;       /* pages of its parent, which is filled before it is born */

	/* what has been done */
	bool filled;  /* its memory has its contents */
	bool stopped; /* as soon as it is let go; its parent knows what it has to know */
};

struct restore {
	const struct sp_restore_options *options;
	struct sp_restore_result *result;
	struct sp_checkpoint *checkpoint;
	struct sp_array tasks; /* struct restore_task *: the root first, each after its parent */
	struct sp_file_builder files;
	remote_addr code;            /* the temporary mapping; behind it the parked vDSO */
	struct sp_foothold foothold; /* of the process that was let go last */
	struct sp_cgroups cgroups;
	bool files_begun;
};

static inline struct restore_task *sp_restore_task(const struct restore *restore, size_t index)
{
	return sp_array_pointer(&restore->tasks, index);
}

/* --- memory (restore.c) --- */

/** Makes the mappings of a process, with contents, unless that was done. */
int sp_restore_fill_memory(struct restore *restore, struct restore_task *task,
                           struct sp_error *err);

/* --- the plan (restore_plan.c) --- */

/** Lists all processes of the checkpoint. */
void sp_restore_list_tasks(struct restore *restore);
/**
 * Finds out who bears whom, and adds the helpers that this takes. Nothing has been done yet. ENOTSUP:
 * the session of the root is somebody else's.
 */
int sp_restore_plan(struct restore *restore, struct sp_error *err);
/** NULL: not of the tree, and nobody stands in for it. */
struct restore_task *sp_restore_session_leader(const struct restore *restore,
                                               const struct restore_task *task);

/* --- the tree (restore_tree.c) --- */

/**
 * Makes all processes, as copies of sealpoint that stand still, with their parents, sessions and
 * groups. Those that have ended end again, and are not among the tasks any more.
 */
int sp_restore_tree(struct restore *restore, struct sp_error *err);
/** Lets the processes run, or ends all. */
void sp_restore_release_tasks(struct restore *restore, bool restored);

#endif
