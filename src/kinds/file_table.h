/*
 * The open files of a process at dump time. One struct sp_open_file for each open file (not for each
 * descriptor): duplicated descriptors are found with kcmp(2), mapped files by device and inode.
 */
#ifndef SEALPOINT_KINDS_FILE_TABLE_H
#define SEALPOINT_KINDS_FILE_TABLE_H

#include "kinds/kind.h"

struct sp_descriptor {
	pid_t pid;
	int number;
	uint32_t file; /* sp_open_file.id */
	bool close_on_exec;
};

struct sp_file_table {
	struct sp_array files;	     /* struct sp_open_file, id == index + 1 */
	struct sp_array descriptors; /* struct sp_descriptor, by pid and number */
};

void sp_file_table_init(struct sp_file_table *table);
void sp_file_table_release(struct sp_file_table *table);

/** Adds all descriptors of the stopped process: duplicates each with pidfd_getfd(2), reads its fdinfo. */
int sp_file_table_add_process(struct sp_file_table *table, struct sp_process *process,
			      struct sp_error *err);
/**
 * The id of an open file that can back the mapping at `range`; `path` and `offset` are for messages. An existing
 * mapping-only file of the same inode and access is used again; otherwise /proc/PID/map_files/RANGE is opened.
 */
int sp_file_table_add_mapping(struct sp_file_table *table, pid_t pid, struct sp_range range,
			      bool shared, bool writable, const char *path, uint32_t *id,
			      struct sp_error *err);
/** The id for /proc/PID/exe. */
int sp_file_table_add_executable(struct sp_file_table *table, pid_t pid, uint32_t *id,
				 struct sp_error *err);
/** The file behind a descriptor number, or NULL. */
const struct sp_open_file *sp_file_table_lookup(const struct sp_file_table *table, pid_t pid,
						int number);
/** Asks the kinds to save every file and writes the SP_RECORD_OPEN_FILE and _DESCRIPTOR records. */
int sp_file_table_save(struct sp_file_table *table, struct sp_file_saver *saver,
		       struct sp_record_writer *records, struct sp_error *err);

#endif
