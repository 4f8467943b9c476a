/*
 * Directories, FIFOs, symbolic links and socket files that have lost their names while they were
 * open. They have no contents of their own (a directory is empty when it is removed), so another one
 * is made in the same place, opened, and loses its name in the same way. Regular files are made by
 * their own kind.
 */
#ifndef SEALPOINT_KINDS_REMOVED_H
#define SEALPOINT_KINDS_REMOVED_H

#include "kinds/kind.h"

#include "removed.pb-c.h"

#include <limits.h>

struct sp_removed {
	bool is_removed;
	Sealpoint__Removed message;
	char target[PATH_MAX];
};

/**
 * The path that leads to the open file, the caller's to free, or if it has been removed, the one that
 * did. Refuses what neither has a path nor can be made again.
 */
int sp_removed_find(const struct sp_open_file *file, char **path, struct sp_removed *removed,
                    struct sp_error *err);
/** Owner and mode of what is to be made. */
void sp_removed_describe(const struct stat *stat, Sealpoint__Removed *message);

/** The name by which it is made in the directory, the caller's to free: that it had, if it is free. */
char *sp_removed_name(int directory, const char *path);

/**
 * Makes and opens one of the type (S_IFMT bits) that was at `path`. Returns the descriptor or a
 * negative errno.
 */
int sp_removed_open(const char *path, const Sealpoint__Removed *message, mode_t type, int flags,
                    struct sp_error *err);

#endif
