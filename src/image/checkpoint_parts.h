/*
 * What the files about checkpoint directories share: the manifest as a file, and the steps of
 * reading that a fuzzer wants to take alone. Only src/image and its tests include this.
 */
#ifndef SEALPOINT_IMAGE_CHECKPOINT_PARTS_H
#define SEALPOINT_IMAGE_CHECKPOINT_PARTS_H

#include "image/checkpoint.h"
#include "image/page_store.h"

/* --- manifest.c --- */

/**
 * Writes the manifest of the directory: what `given` says, and beyond it versions and the
 * list of files, which must be complete; and if it has no id, also that, time and machine.
 */
int sp_manifest_write(int dirfd, const Sealpoint__Manifest *given, struct sp_error *err);
/** Reads the manifest of the checkpoint at `path` and checks it. Free with protobuf-c. */
int sp_manifest_read(int dirfd, const char *path, Sealpoint__Manifest **manifest,
                     struct sp_error *err);
/** Checks what a manifest says: that this version on this machine can use the checkpoint. */
int sp_manifest_check(const Sealpoint__Manifest *manifest, const char *path, struct sp_error *err);
/** XXH3-64 of a whole file. */
int sp_file_checksum(int dirfd, const char *name, uint64_t *checksum, struct sp_error *err);

/* --- checkpoint.c --- */

/** An empty checkpoint, to be filled in; sp_checkpoint_close() frees it at any time. */
struct sp_checkpoint *sp_checkpoint_new(void);
/** Frees all but what a younger checkpoint needs that has looked through it. */
void sp_checkpoint_retire(struct sp_checkpoint *checkpoint);

/* --- checkpoint_reader.c --- */

typedef int sp_member_visit(const struct sp_checkpoint *member, void *context,
                            struct sp_error *err);

/** As sp_checkpoint_open(); calls `visit` for each member of the chain while it is open wholly. */
int sp_checkpoint_open_members(struct sp_checkpoint **checkpoint, const char *path,
                               sp_member_visit *visit, void *context, struct sp_error *err);

/** Unpacks all records into the arrays of the checkpoint. */
int sp_checkpoint_read_records(struct sp_checkpoint *checkpoint, struct sp_record_reader *reader,
                               struct sp_error *err);

/* --- checkpoint_check.c --- */

/**
 * Checks every number and every reference in the records of a checkpoint. Pages of lower layers that
 * lie in none of its mappings are forgotten.
 */
int sp_checkpoint_check(const struct sp_checkpoint *checkpoint, struct sp_error *err);

#endif
