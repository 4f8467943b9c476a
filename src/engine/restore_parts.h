/*
 * A restore in the making, which two files work on: restore.c, the order of its steps, and
 * restore_tree.c, how the processes come into being.
 */
#ifndef SEALPOINT_ENGINE_RESTORE_PARTS_H
#define SEALPOINT_ENGINE_RESTORE_PARTS_H

#include "engine/engine.h"
#include "kinds/file_build.h"
#include "mem/memory.h"

/* A process that is made. */
struct task {
	pid_t pid;
	const Sealpoint__Process *record; /* NULL: a helper, which ends when all are born */
	struct sp_array threads;          /* const Sealpoint__Thread *: the leader's is the first */
	struct sp_memory_build memory;
	struct sp_process process;
	struct sp_remote remote;

	/* restore_tree.c's own */
	struct task *mother; /* whose process clones it; NULL: sealpoint */
	pid_t birth_session; /* that it has to be born into; 0: whichever its mother has */
	bool leads_session;  /* it begins a session of its own... */
	bool born_before;    /* ... and this child of it is born before that */
	bool leads_group;    /* of a helper: a group, for others to join */
	bool stopped;        /* as soon as it is let go; its parent knows what it has to know */
};

struct restore {
	const struct sp_restore_options *options;
	struct sp_restore_result *result;
	struct sp_checkpoint *checkpoint;
	struct sp_array tasks; /* struct task *: the root first, each after its parent */
	struct sp_file_builder files;
	remote_addr code; /* the temporary mapping; behind it the parked vDSO */
	bool files_begun;
};

static inline struct task *sp_restore_task(const struct restore *restore, size_t index)
{
	return sp_array_pointer(&restore->tasks, index);
}

/* --- the tree (restore_tree.c) --- */

/** Lists all processes of the checkpoint. */
void sp_restore_list_tasks(struct restore *restore);
/**
 * Makes all processes, as copies of sealpoint that stand still, with their parents, sessions and
 * groups. Those that have ended end again, and are not among the tasks any more.
 */
int sp_restore_tree(struct restore *restore, struct sp_error *err);
/** Lets the processes run, or ends all. */
void sp_restore_release_tasks(struct restore *restore, bool restored);

#endif
