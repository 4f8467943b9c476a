/*
 * The open files of a process at dump time. One struct sp_open_file for each open file (not for
 * each descriptor): duplicated descriptors are found with kcmp(2), mapped files by device and
 * inode.
 */
#ifndef SEALPOINT_KINDS_FILE_TABLE_H
#define SEALPOINT_KINDS_FILE_TABLE_H

#include "kinds/connection_lock.h"
#include "kinds/kind.h"

struct sp_descriptor {
	pid_t pid;
	int number;
	uint32_t file; /* sp_open_file.id */
	bool close_on_exec;
};

struct sp_file_mapping {
	uint32_t file; /* sp_open_file.id */
	pid_t pid;
};

struct sp_file_table {
	struct sp_array files;       /* struct sp_open_file, id == index + 1 */
	struct sp_array descriptors; /* struct sp_descriptor, by pid and number */
	struct sp_array locks;       /* struct sp_file_lock (kinds/file_locks.h), by file */
	struct sp_array inodes;      /* uint32_t: all ids, by device, inode and id */
	struct sp_array mappings;    /* struct sp_file_mapping: one for each VMA */
	struct sp_connection_lock
	        lock; /* on those that are connections, from sp_file_table_save() */
	/*
	 * struct sp_error, or NULL: what is refused is listed there, and stays in the table without a
	 * kind (base/error.h, sp_error_collect()).
	 */
	struct sp_array *refusals;
};

void sp_file_table_init(struct sp_file_table *table);
void sp_file_table_release(struct sp_file_table *table);

/**
 * Adds all descriptors of the stopped process: duplicates each open file with pidfd_getfd(2), reads
 * its fdinfo. Refuses, by number and name, what no kind claims.
 */
int sp_file_table_add_process(struct sp_file_table *table, struct sp_process *process,
                              struct sp_error *err);
/**
 * The id of an open file that can back the mapping at `range`, which must be exactly one VMA;
 * `path` is for messages. An existing mapping-only file of the same inode and access is used again;
 * otherwise /proc/PID/map_files/RANGE is opened. A shared mapping of a file that was opened for
 * writing is given a file opened for writing, even where it is not `writable` now: mprotect(2) may
 * make it so.
 */
int sp_file_table_add_mapping(struct sp_file_table *table, pid_t pid, struct sp_range range,
                              bool shared, bool writable, const char *path, uint32_t *id,
                              struct sp_error *err);
/** The id for /proc/PID/exe. */
int sp_file_table_add_executable(struct sp_file_table *table, pid_t pid, uint32_t *id,
                                 struct sp_error *err);

/** The socket with this inode number, or NULL; `socket` is any socket of the table. */
const struct sp_open_file *sp_file_table_find_socket(const struct sp_file_table *table,
                                                     const struct sp_open_file *socket,
                                                     uint64_t inode);
/** The terminal `device` if that is one that a restore is given, or NULL. */
const struct sp_open_file *sp_file_table_find_external(const struct sp_file_table *table,
                                                       dev_t device);
/**
 * The id of an open file that we have got as `fd`, out of a message that waits in a socket; it is added if it
 * is not in the table yet. Takes `fd` over.
 */
int sp_file_table_add_in_flight(struct sp_file_table *table, int fd, uint32_t *id,
                                struct sp_error *err);

/** The open file with this id, which must exist. Valid until another one is added. */
struct sp_open_file *sp_file_table_at(const struct sp_file_table *table, uint32_t id);
/** The file behind a descriptor number, or NULL. */
const struct sp_open_file *sp_file_table_lookup(const struct sp_file_table *table, pid_t pid,
                                                int number);
/**
 * Walks the open files of one inode in the order of their ids: the first one for `previous` NULL,
 * then the next, NULL at the end. (All anonymous inodes, eventfds and the like, are one inode.)
 */
const struct sp_open_file *sp_file_table_same_inode(const struct sp_file_table *table,
                                                    const struct sp_open_file *file,
                                                    const struct sp_open_file *previous);

/**
 * Adds the files that are in flight, locks the connections that are to be saved, asks the kinds to save every file, and writes the
 * SP_RECORD_OPEN_FILE and _DESCRIPTOR records.
 */
int sp_file_table_save(struct sp_file_table *table, struct sp_file_saver *saver,
                       struct sp_record_writer *records, struct sp_error *err);

/**
 * For kinds whose contents belong to the inode (unlinked files, memfds): stores the contents as a
 * new object of the page store, unless an earlier open file of the same inode has done so; then,
 * and for an empty file, `*object` is 0. At restore OpenFile.same_inode leads to that earlier one.
 */
int sp_file_save_contents(struct sp_file_saver *saver, const struct sp_open_file *file,
                          uint32_t *object, struct sp_error *err);

#endif
