/*
 * A dump in the making, which five files work on: dump.c, the order of its steps; dump_tree.c, which
 * processes there are, and dump_task.c, what is recorded of each, both for a survey, too; and for
 * their memory dump_memory.c, what is copied ahead of the freeze or read in it, and dump_hold.c, what
 * is held and read behind it. The architecture page tells the whole ("Trees", "Deltas, and what is
 * saved ahead of the freeze").
 */
#ifndef SEALPOINT_ENGINE_DUMP_PARTS_H
#define SEALPOINT_ENGINE_DUMP_PARTS_H

#include "engine/cut.h"
#include "engine/engine.h"
#include "kinds/file_table.h"
#include "mem/memory.h"
#include "track/stash.h"

/* A process that is saved. */
struct task {
	struct sp_process process;
	struct sp_foothold foothold;
	struct sp_remote remote;
	struct sp_array vmas; /* struct sp_vma */
	char *maps; /* /proc/PID/maps as it was when `vmas` was read while it ran, or NULL */
	uint32_t executable;
	uint32_t memory_object;
	struct sp_array last_words; /* remote_addr: see kinds/kind.h */
};

/* A process with all its descendants. */
struct tree {
	struct sp_array tasks; /* struct task *: the root first, each after its parent */
	struct sp_array ended; /* pid_t: those that have ended, whose parents do not know it yet */
};

struct dump {
	const struct sp_dump_options *options;
	struct sp_dump_result *result;
	struct sp_checkpoint_writer writer;
	struct tree tree;
	struct sp_cut *cut; /* of the root's memory */
	struct sp_file_table files;
	bool again;    /* memory was lost that was held: nothing is held this time */
	bool may_hold; /* the program goes on before all of its memory was read */
	bool armed;    /* memory is protected in advance, and the root's process is watched */
	int hold_uffd;
	struct sp_stash stash;
	struct sp_memory_list held;
	struct sp_hold *hold;
	bool frozen, created;
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

/* --- the tree (dump_tree.c) --- */

/** Nobody is known yet but the pid of the root. */
void sp_tree_init(struct tree *tree, pid_t root);
/** Lets all run that are stopped. */
void sp_tree_release(struct tree *tree);
/** Stops the root and all its descendants, and finds out who they are. On failure some are stopped. */
int sp_tree_stop(struct tree *tree, uint64_t deadline_ns, struct sp_error *err);
/** Takes that back: all run on, and nobody is known but the pid of the root. */
void sp_tree_forget(struct tree *tree);
/** True if one of them has ended, or is about to because somebody has killed it. */
bool sp_tree_is_ending(const struct tree *tree);
/** Some child of the root, or 0. */
pid_t sp_tree_child(const struct tree *tree);
/** Says that a root with this child cannot be saved with a session. */
int sp_tree_refuse_tracked(pid_t root, pid_t child, struct sp_error *err);
/** Refuses processes that share what fork(2) would have copied. */
int sp_tree_check_sharing(const struct tree *tree, struct sp_error *err);
/** Refuses a process whose session somebody else leads, but for one that comes from a shell. */
int sp_tree_check_sessions(const struct tree *tree, bool shell_job, struct sp_error *err);

/* --- one process (dump_task.c) --- */

/**
 * Adds what it has open, the files behind its mappings, and its executable. With a list of refusals in
 * the table, what is refused goes there.
 */
int sp_task_add_files(struct sp_file_table *files, struct task *task, struct sp_error *err);
/** Writes a record for each mapping. */
int sp_task_write_vmas(const struct task *task, struct sp_record_writer *records,
                       struct sp_error *err);

/* --- while the program runs --- */

/**
 * Reads the list of mappings, takes what has changed in them, and refuses those that cannot be saved.
 * Once more in the freeze.
 */
int sp_dump_take(struct dump *dump, struct task *task, struct sp_error *err);
/** Saves in rounds, each as a layer, what was written during the one before. With a session only. */
int sp_dump_copy_ahead(struct dump *dump, struct sp_error *err);

/** True if it should rather be held than read in the freeze. */
bool sp_dump_is_worth_holding(const struct dump *dump, uint64_t size);
/**
 * Protects in advance what is to be held of that which the last take has found, and is not saved then;
 * false: there is no mapping of which so much was written. Where protecting fails it is done in the
 * freeze. The process is watched afterwards.
 */
bool sp_dump_arm(struct dump *dump);
/** All that was protected in advance is not any more, and counts as written. */
void sp_dump_disarm(struct dump *dump);

/* --- in the freeze, in this order --- */

/** While the program can still be driven: gets ready to hold, if much is left to be read. */
void sp_dump_prepare_hold(struct dump *dump);
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
