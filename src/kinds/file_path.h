/*
 * Open files that are found again by their path: which path leads to an open file of the target,
 * and opening that path at restore. Shared by the kinds of files that have a name.
 */
#ifndef SEALPOINT_KINDS_FILE_PATH_H
#define SEALPOINT_KINDS_FILE_PATH_H

#include "kinds/kind.h"

/**
 * The path that leads to the file's inode now, the caller's to free: what /proc says, or where the
 * file was unlinked while it has other hard links, one of those in the same directory. Refuses a
 * file that no path leads to, and says what to do.
 */
int sp_file_path_find(const struct sp_open_file *file, char **path, struct sp_error *err);

/** What /proc says without the mark of an unlinked file, the caller's to free. */
char *sp_file_path_last(const struct sp_open_file *file);

/**
 * Opens the path at restore, if it is of the type (S_IFMT bits) that it was. Never blocks, never
 * makes a terminal the controlling one. Returns the descriptor or a negative errno.
 */
int sp_file_path_open(const char *path, int flags, mode_t type, struct sp_error *err);

/**
 * The directory that the file was in, or if that is gone too, the nearest one above. Returns the
 * descriptor or a negative errno.
 */
int sp_file_path_open_above(const char *file_path, struct sp_error *err);

/** The flags of open(2) that F_SETFL cannot set afterwards and that an open file keeps. */
int sp_file_path_flags(const Sealpoint__OpenFile *file);

/** False, and EBADMSG, unless the path of a record is an absolute one. */
int sp_file_path_check(const char *path, struct sp_error *err);

#endif
