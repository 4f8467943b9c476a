/*
 * Who gets a signal when an open file becomes ready: F_SETOWN_EX, F_SETSIG and the credentials that
 * the kernel remembers with them, of whatever kind the file is.
 */
#ifndef SEALPOINT_KINDS_FILE_OWNER_H
#define SEALPOINT_KINDS_FILE_OWNER_H

#include "kinds/file_table.h"

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17 /* from linux/fcntl.h, which does not go together with fcntl.h */
#endif

/**
 * Fills in the owner of an open file. `present` is false if it has none and the signal is the
 * default. It must be a process that is saved, or a group of some that are.
 */
int sp_file_owner_save(const struct sp_file_saver *saver, const struct sp_open_file *file,
                       Sealpoint__FileOwner *owner, bool *present, struct sp_error *err);
/** Sets the owner of sealpoint's descriptor `fd`; the owning process must exist. */
int sp_file_owner_set(int fd, const Sealpoint__FileOwner *owner, struct sp_error *err);

#endif
