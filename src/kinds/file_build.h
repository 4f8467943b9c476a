/*
 * Open files at restore time. All are opened by sealpoint itself, before the stub is cloned: the
 * clone inherits the one table, so what was one open file stays one, whoever holds it. Those that
 * are about processes, which must exist first, are handed over. Then each process puts its
 * descriptors at their numbers and closes the rest.
 */
#ifndef SEALPOINT_KINDS_FILE_BUILD_H
#define SEALPOINT_KINDS_FILE_BUILD_H

#include "kinds/kind.h"

int sp_file_builder_init(struct sp_file_builder *builder, const struct sp_checkpoint *checkpoint,
                         const struct sp_kind_options *options, struct sp_log *log,
                         struct sp_error *err);
/**
 * Closes sealpoint's own descriptors. What kinds have registered for it is undone, last things
 * first, unless the restore was completed.
 */
void sp_file_builder_release(struct sp_file_builder *builder);
/** The restore has succeeded: what was done for it stays. */
void sp_file_builder_complete(struct sp_file_builder *builder);
/** Lets every kind check its records; nothing is changed yet. */
int sp_files_check(struct sp_file_builder *builder, struct sp_error *err);
/**
 * Opens every file of the checkpoint but the late ones; builder->fds is filled in. Connections are locked until this
 * restore ends. They are refused if they were not locked, unless the options know better.
 */
int sp_files_open(struct sp_file_builder *builder, struct sp_error *err);
/** Opens the late ones: all processes and threads exist. */
int sp_files_open_late(struct sp_file_builder *builder, struct sp_error *err);
/** Hands those that process `pid` holds over to it, at the numbers that they have here. */
int sp_files_hand_over(struct sp_file_builder *builder, struct sp_remote *remote, pid_t pid,
                       struct sp_error *err);
/**
 * Puts the descriptors of process `pid` at their numbers (the remote drives it), with close-on-exec
 * flags, and closes all others. Mappings must have been made: their files are closed too.
 */
int sp_files_place(struct sp_file_builder *builder, struct sp_remote *remote, pid_t pid,
                   struct sp_error *err);
/** Owners (F_SETOWN_EX, F_SETSIG), file locks, and what the kinds have left to do. */
int sp_files_settle(struct sp_file_builder *builder, struct sp_remote *remote, pid_t pid,
                    struct sp_error *err);

/** The last step: lets the connections go that were locked, and the kinds resume. */
int sp_files_resume(struct sp_file_builder *builder, struct sp_error *err);

/* --- for kinds --- */

struct sp_file_undo {
	void (*undo)(void *context);
	void *context; /* malloc'd */
};

/** The descriptor of that number that process `pid` gets, or NULL. */
const Sealpoint__Descriptor *sp_file_builder_lookup(const struct sp_file_builder *builder,
                                                    pid_t pid, uint32_t number);
/**
 * While settling: lets the process take a file of the checkpoint over from us, by a number of its own
 * that is free.
 */
int sp_files_take_over(struct sp_file_builder *builder, uint32_t file, int64_t *number,
                       struct sp_error *err);

/** Something outside of the program was changed: `undo` is called if the restore fails. */
void sp_file_builder_on_failure(struct sp_file_builder *builder, struct sp_file_undo undo);
/** `path` was made by this restore: it is unlinked if the restore fails. */
void sp_file_builder_made(struct sp_file_builder *builder, const char *path);

#endif
