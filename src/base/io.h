/*
 * Whole reads and writes, and small files read at once. All functions retry EINTR and short
 * transfers; errors are reported as everywhere (error.h) with the name that the caller gives.
 */
#ifndef SEALPOINT_BASE_IO_H
#define SEALPOINT_BASE_IO_H

#include <stddef.h>
#include <sys/types.h>

struct sp_error;

/** Reads until `size` bytes or the end of the file. Returns the bytes read or a negative errno. */
ssize_t sp_pread_full(int fd, void *buffer, size_t size, off_t offset);

/** Writes all of it. Returns 0 or a negative errno. */
int sp_write_full(int fd, const void *buffer, size_t size);
int sp_pwrite_full(int fd, const void *buffer, size_t size, off_t offset);

/**
 * Opens what one of our own descriptors refers to once more (/proc/self/fd), as an open file of its
 * own: whatever has lost its name, or never had one, and whatever the access mode of `fd`, O_PATH
 * too. Returns the descriptor, close-on-exec, or a negative errno.
 */
int sp_reopen(int fd, int flags, struct sp_error *err);

/**
 * Reads a whole file (a /proc file too, whose size is not known before) into a buffer of the
 * caller's that ends with a NUL byte. `*text` is the caller's to free; `*size`, which may be NULL,
 * does not count the NUL.
 */
int sp_read_file(int dirfd, const char *path, char **text, size_t *size, struct sp_error *err);

/** Writes a short text to an existing file in one write(2) (a /proc or /sys file). */
int sp_write_file(const char *path, const char *text, struct sp_error *err);

/** The target of a symbolic link, NUL-terminated, the caller's to free. */
int sp_read_link(int dirfd, const char *path, char **target, struct sp_error *err);

#endif
