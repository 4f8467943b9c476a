/*
 * Open files that belong to somebody else: a dump leaves them out if it is told which (`external`), and a
 * restore puts descriptors that its caller has in the place of saved ones (`inherited`). Both name an open file
 * by what it was at the dump:
 *
 *   pipe:[INODE], socket:[INODE]   as /proc/PID/fd shows it; pipe[INODE], socket[INODE] and unix[INODE], too
 *   tty[RDEV:DEV]                  st_rdev and st_dev of stat(2)
 *   file[MOUNT:INODE]              mnt_id of /proc/PID/fdinfo, st_ino of stat(2)
 *   PATH                           with or without the first slash
 *
 * The pairs of numbers are hexadecimal or decimal.
 */
#ifndef SEALPOINT_KINDS_INHERIT_H
#define SEALPOINT_KINDS_INHERIT_H

#include "kinds/kind.h"

/** A descriptor of the caller's that takes the place of a saved one. */
struct sp_inherited {
	int fd;
	const char *resource;
};

/** Reads "fd[N]:RESOURCE"; the resource points into `text`. False if it is not of that form. */
bool sp_inherited_parse(const char *text, struct sp_inherited *inherited);
/** Whether a dump can be told to leave this out: all of the names above but for shared memory. */
bool sp_resource_is_valid(const char *resource);

/* --- for kinds --- */

/** Fills in by what a restore can name the file; it points into `file`. */
void sp_file_origin(const struct sp_open_file *file, Sealpoint__FileOrigin *origin);
/** Has the dump been told to leave this file to somebody else? */
bool sp_file_is_external(const struct sp_kind_options *options, const struct sp_open_file *file);
/** The same of a unix socket whose other end has the inode `peer`. */
bool sp_peer_is_external(const struct sp_kind_options *options, const struct sp_open_file *file,
                         uint64_t peer);

/** Warns of descriptors that are given for nothing the checkpoint has. */
void sp_inherited_warn(const struct sp_file_builder *builder);
/** The descriptor of the caller's that is to take the place of the file, or NULL. */
const struct sp_inherited *sp_inherited_find(const struct sp_file_builder *builder,
                                             const Sealpoint__OpenFile *file);
/**
 * Opens it for the program: a pipe or a terminal as an open file of its own, so that flags of the program's are not
 * those of the caller; anything else is the caller's open file itself.
 */
int sp_inherited_open(const struct sp_inherited *inherited, const Sealpoint__OpenFile *file,
                      int *fd, struct sp_error *err);
/** What the restore of a file says that nobody has given a descriptor for. */
int sp_refuse_not_inherited(const char *name, struct sp_error *err);

#endif
