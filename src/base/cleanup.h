/*
 * Clean-up by scope: a variable that is declared with one of these attributes is released when it
 * goes out of scope, so that an error path is one `return`.
 *
 *	sp_cleanup_close int fd = open(...);
 *	sp_cleanup_free char *name = strdup(...);
 *
 * To keep what a variable holds, hand it on with sp_steal_fd() or sp_steal_ptr().
 */
#ifndef SEALPOINT_BASE_CLEANUP_H
#define SEALPOINT_BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define sp_cleanup(function) __attribute__((cleanup(function)))
#define sp_cleanup_close sp_cleanup(sp_close_scope)
#define sp_cleanup_free sp_cleanup(sp_free_scope)
#define sp_cleanup_file sp_cleanup(sp_file_scope)
#define sp_cleanup_dir sp_cleanup(sp_dir_scope)

static inline void sp_close_scope(const int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

static inline void sp_free_scope(void *pointer)
{
	free(*(void **)pointer);
}

static inline void sp_file_scope(FILE **file)
{
	if (*file)
		fclose(*file);
}

static inline void sp_dir_scope(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

/** Takes the descriptor out of `*fd`, which becomes -1. */
static inline int sp_steal_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/** Takes the pointer out of `*pointer` (the address of a pointer variable), which becomes NULL. */
static inline void *sp_steal_ptr(void *pointer)
{
	void *taken = *(void **)pointer;

	*(void **)pointer = NULL;
	return taken;
}

#endif
