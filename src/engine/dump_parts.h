/*
 * A dump in the making, which these files work on: dump.c, the order of its steps; dump_tree.c, which
 * processes there are, and dump_task.c, what is recorded of each, both for a survey, too; for their
 * memory dump_cuts.c, what of it was written, dump_memory.c, what is copied ahead of the freeze or read
 * in it, and dump_hold.c, what is held and read behind it; dump_network.c, their connections. The architecture page tells the whole ("Trees", "Deltas, and what is
 * saved ahead of the freeze").
 */
#ifndef SEALPOINT_ENGINE_DUMP_PARTS_H
#define SEALPOINT_ENGINE_DUMP_PARTS_H

#include "engine/cut.h"
#include "engine/engine.h"
#include "engine/freezer.h"
#include "kinds/file_table.h"
#include "kinds/sharing.h"
#include "mem/memory.h"
#include "track/stash.h"

/* What is held of a process's memory, to be saved behind the freeze. */
struct holding {
	struct sp_array areas; /* struct sp_range: mappings to be protected in advance */
	bool armed;            /* they are, and the process is watched */
	int uffd;              /* made in the freeze instead; -1: none */
	struct sp_stash stash; /* SP_STASH_NONE: nothing of it will be held */
	struct sp_memory_list listed;
	struct sp_hold *hold; /* NULL: nothing is held */
};

/* A process that is saved. */
struct task {
	struct sp_process process;
	const struct task *parent; /* in the tree, once that was stopped; NULL: it is the root */
	struct task *
	        memory_of; /* whose memory it has: its own, or an earlier one's, with which it shares */
	bool shares_memory; /* somebody else has its memory, too */
	struct sp_foothold foothold;
	struct sp_remote remote;
	struct sp_array vmas; /* struct sp_vma */
	char *maps; /* /proc/PID/maps as it was when `vmas` was read while it ran, or NULL */
	uint32_t executable;
	uint32_t memory_object;
	uint32_t origin;    /* the object that has what is in common with the parent; 0: none */
	struct sp_cut *cut; /* of its memory; NULL: it was not seen before the freeze */
	uint64_t written;   /* what the last round has found; UINT64_MAX: there was none yet */
	struct sp_array last_words; /* remote_addr: see kinds/kind.h */
	struct sp_sharing sharing;
	/* What its parent has still to learn: by which signal it was stopped (0: nothing), or that it goes on. */
	uint32_t stop_status;
	bool continued;
	struct holding holding;
};

/* A process with all its descendants. */
struct tree {
	struct sp_array tasks;  /* struct task *: the root first, each after its parent */
	struct sp_array ended;  /* pid_t: those that have ended, whose parents do not know it yet */
	struct sp_array listed; /* struct task *: in a stop, those listed before and not met yet */
};

struct dump {
	const struct sp_dump_options *options;
	struct sp_dump_result *result;
	struct sp_checkpoint_writer writer;
	struct tree tree;
	struct sp_cuts *cuts; /* of all processes that were seen before the freeze */
	struct sp_file_table files;
	bool again;    /* it was tried before; nothing is held this time */
	bool may_hold; /* the program goes on before all of its memory was read */
	bool frozen, created;
	bool network_locked; /* the hook was asked to */
	struct sp_freezer freezer;
};

static inline struct task *sp_tree_task(const struct tree *tree, size_t index)
{
	return sp_array_pointer(&tree->tasks, index);
}
static inline struct task *sp_tree_root(const struct tree *tree)
{
	return sp_tree_task(tree, 0);
}
static inline pid_t sp_tree_ended(const struct tree *tree, size_t index)
{
	return *(pid_t *)sp_array_at(&tree->ended, index);
}
static inline struct task *sp_dump_root(const struct dump *dump)
{
	return sp_tree_root(&dump->tree);
}

static inline struct sp_cut *sp_dump_root_cut(const struct dump *dump)
{
	return sp_dump_root(dump)->cut;
}
/** True if its memory is saved with that of another one. */
static inline bool sp_task_has_no_memory(const struct task *task)
{
	return task->memory_of != task;
}
/** True if what it writes is known. */
static inline bool sp_task_is_tracked(const struct task *task)
{
	return task->cut && task->cut->active;
}

/* --- the tree (dump_tree.c) --- */

/** Nobody is known yet but the pid of the root. */
void sp_tree_init(struct tree *tree, pid_t root);
/** Lets all run that are stopped. */
void sp_tree_release(struct tree *tree);
/**
 * Lists the descendants of the root while they run. Some may be missing, and may be gone when they
 * are to be stopped; those that have the memory of another (vfork(2)) are left out.
 */
void sp_tree_list(struct tree *tree);
/** True if it is why something has failed that such a process has ended, or is about to. */
bool sp_tree_has_lost(pid_t pid, int code);
/** Takes one that was listed out again, by its index. */
void sp_tree_drop(struct tree *tree, size_t index);
/** Appends the pids of all that are known and have not ended. */
void sp_tree_pids(const struct tree *tree, struct sp_array *pids);
/** Stops the root and all its descendants, and finds out who they are. On failure some are stopped. */
int sp_tree_stop(struct tree *tree, uint64_t deadline_ns, struct sp_error *err);
/** True if one of them has ended, or is about to because somebody has killed it. */
bool sp_tree_is_ending(const struct tree *tree);
/** Finds out who shares what fork(2) would have copied; refuses what cannot be saved of that. */
int sp_tree_find_sharing(const struct tree *tree, struct sp_error *err);
/** Refuses a process whose session somebody else leads, but for one that comes from a shell. */
int sp_tree_check_sessions(const struct tree *tree, bool shell_job, struct sp_error *err);

/* --- one process (dump_task.c) --- */

/** Finds out what it has still to learn of children that live: the kernel tells their parent alone. */
int sp_tree_find_unheard(const struct tree *tree, struct task *parent, struct sp_error *err);
/** Takes control of it. */
int sp_task_engage(struct task *task, struct sp_error *err);
/**
 * Adds what it has open, the files behind its mappings, and its executable. With a list of refusals in
 * the table, what is refused goes there.
 */
int sp_task_add_files(struct sp_file_table *files, struct task *task, struct sp_error *err);
/** Writes a record for each mapping. */
int sp_task_write_vmas(const struct task *task, struct sp_record_writer *records,
                       struct sp_error *err);

/* --- their cuts (dump_cuts.c) --- */

/** Lists the processes, and begins a cut for each. Those that begin later are met in the freeze. */
int sp_dump_begin_cuts(struct dump *dump, uint64_t deadline_ns, struct sp_error *err);
/** Ends what is tracked of processes that are not there any more. */
void sp_dump_forget_gone(struct dump *dump);
/** In the freeze: begins the cut of a process that had none, or is not the one that had it. */
int sp_dump_meet(struct dump *dump, struct task *task, struct sp_error *err);
/** Gives the memory of each a number in the page store: where it stands on a parent, the one that it has there. */
void sp_dump_number_memory(struct dump *dump);
/** All that stand on a parent stand on the same: some cut that does, or NULL. */
struct sp_cut *sp_dump_standing_cut(const struct dump *dump);
/** There is a checkpoint of the generation: others may stand on it. */
void sp_dump_conclude_cuts(struct dump *dump);
bool sp_dump_is_tracked(const struct dump *dump);

/* --- their connections (dump_network.c) --- */

/** Lets the hook lock its network. The connections themselves are locked when the files are saved. */
int sp_dump_lock_network(struct dump *dump, struct sp_error *err);
/** Unlocks both. */
void sp_dump_unlock_network(struct dump *dump);
/** Behind the commit: the connections stay locked for the restore. If they cannot, there is no checkpoint. */
int sp_dump_hand_over_connections(struct dump *dump, struct sp_error *err);
/** The program is dead, or dying: no last packet of its connections tells anybody. */
void sp_dump_silence_connections(struct dump *dump);

/* --- while the program runs --- */

/**
 * Reads the list of mappings, takes what has changed in them, and refuses those that cannot be saved.
 * Once more in the freeze.
 */
int sp_dump_take(struct dump *dump, struct task *task, struct sp_error *err);
/** Saves in rounds, each as a layer, what was written during the one before. With a session only. */
int sp_dump_copy_ahead(struct dump *dump, struct sp_error *err);

/** Once it is known how much a process has written: gets ready to hold it, if that may become necessary. */
void sp_dump_expect_to_hold(struct dump *dump, struct task *task);
/** True if so much should rather be held than read in the freeze. */
bool sp_dump_is_worth_holding(const struct task *task, uint64_t size);
/**
 * Says that what the last take has found is to be protected in advance, of mappings of which much was written, or
 * more than `most` bytes. It is not saved then. False: there is no such mapping.
 */
bool sp_dump_will_arm(struct task *task, uint64_t most);
/** Protects it. Where that fails it is done in the freeze. These processes are watched afterwards. */
int sp_dump_arm_all(struct dump *dump, struct sp_error *err);
/** All that was protected in advance is not any more, and counts as written. */
void sp_dump_disarm(struct task *task);
/** Ends all holding, and frees what it takes. */
void sp_dump_end_hold(struct task *task);

/* --- in the freeze, in this order --- */

/** While the program can still be driven: gets ready to hold, if much is left to be read. */
void sp_dump_prepare_hold(struct dump *dump, struct task *task);
/** Notes which pages of a process are still its parent's, which is of the tree. */
int sp_dump_find_inherited(struct dump *dump, struct task *task, struct sp_error *err);
/** Saves what has changed since the last layer, or everything; lists what is to be held. */
int sp_dump_save_pages(struct dump *dump, struct task *task, bool running, struct sp_error *err);
/** Holds the pages that were listed if they are many, or else saves them now. */
int sp_dump_hold_pages(struct dump *dump, struct sp_error *err);

/* --- after it --- */

/** EAGAIN if what the list of mappings does not show was changed before the freeze. */
int sp_dump_check_mappings(const struct task *task, struct sp_error *err);
/** Saves what is held, while the program runs. */
int sp_dump_save_held(struct dump *dump, struct sp_error *err);
/** Writes a record for each mapping, and lets the cut know that all is saved. */
int sp_dump_save_vmas(struct dump *dump, struct task *task, struct sp_error *err);

#endif
