/*
 * A dump in the making, which two files work on: dump.c, the order of its steps, and dump_memory.c,
 * what is done for its memory: copied ahead of the freeze, read in it, or held and read behind it.
 * The architecture page tells the whole ("Deltas, and what is saved ahead of the freeze").
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

struct dump {
	const struct sp_dump_options *options;
	struct sp_dump_result *result;
	struct sp_checkpoint_writer writer;
	struct sp_array tasks; /* struct task *: the root, whose pid the user gave, is the first */
	struct sp_cut *cut;    /* of the root's memory */
	struct sp_file_table files;
	bool again;    /* memory was lost that was held: nothing is held this time */
	bool may_hold; /* the program goes on before all of its memory was read */
	int hold_uffd;
	struct sp_stash stash;
	struct sp_memory_list held;
	struct sp_hold *hold;
	bool frozen, created;
};

static inline struct task *sp_dump_task(const struct dump *dump, size_t index)
{
	return sp_array_pointer(&dump->tasks, index);
}
static inline struct task *sp_dump_root(const struct dump *dump)
{
	return sp_dump_task(dump, 0);
}

/* --- while the program runs --- */

/**
 * Reads the list of mappings, takes what has changed in them, and refuses those that cannot be saved.
 * Once more in the freeze.
 */
int sp_dump_take(struct dump *dump, struct task *task, struct sp_error *err);
/** Saves in rounds, each as a layer, what was written during the one before. With a session only. */
int sp_dump_copy_ahead(struct dump *dump, struct sp_error *err);

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
