/*
 * From what the kernel tells of a watched inode to a path that leads there. inotify and fanotify tell their watches
 * in fdinfo by inode, device and file handle; a restore can only watch what has a path.
 */
#ifndef SEALPOINT_KINDS_WATCHED_INODE_H
#define SEALPOINT_KINDS_WATCHED_INODE_H

#include "kinds/kind.h"

/** An inode as a line of fdinfo tells it. */
struct sp_watched_inode {
	uint64_t number;
	dev_t device;
	const char *handle; /* the text that tells its file handle */
};

/** The device that the kernel's own number means, as in "sdev:800001". */
dev_t sp_device_of_kernel(uint64_t device);

/**
 * A mount on that file system or, if `id` is not negative, that one; as a path, and opened, as a directory, unless
 * `fd` is NULL. The caller frees the path; NULL if none can be reached.
 */
char *sp_mount_path(dev_t device, int id, int *fd);

/** A mount to open file handles by: kept, as most watches share one. */
struct sp_watched_mount {
	dev_t device;
	int fd; /* -1: none */
};
void sp_watched_mount_close(struct sp_watched_mount *mount);

/**
 * A path that leads to the inode, which may be a symbolic link: first one of the program's open files, then what its
 * file handle leads to. The caller frees it; NULL and ENOENT if there is none.
 */
char *sp_watched_inode_path(const struct sp_file_saver *saver, struct sp_watched_mount *mount,
                            const struct sp_watched_inode *inode, struct sp_error *err);

#endif
