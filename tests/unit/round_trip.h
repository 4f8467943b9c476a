/*
 * A round trip of open files without an engine: a child process sets up some and stops, its table
 * is read and saved, the child is killed, and the files are opened again in the test itself.
 *
 *	struct round_trip trip;
 *
 *	round_trip_save(&trip, set_up, NULL);	// set_up() runs in the child, with no descriptors
 *	round_trip_restore(&trip);
 *	int fd = round_trip_fd(&trip, 0);	// the file behind the child's descriptor 0
 *	round_trip_end(&trip);
 *
 * What kinds settle through the restored process itself is not part of it (`remote` is missing).
 */
#ifndef SEALPOINT_TESTS_ROUND_TRIP_H
#define SEALPOINT_TESTS_ROUND_TRIP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kinds/file_build.h"
#include "kinds/file_table.h"
#include "kinds/registry.h"
#include "unit/scratch.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct round_trip {
	pid_t pid;
	struct sp_process process;
	struct sp_file_table table;
	struct sp_kind_options options;
	struct sp_log log;
	struct scratch scratch;
	struct sp_page_writer *writer;
	struct sp_checkpoint checkpoint;
	struct sp_file_builder builder;
	struct sp_error err;
};

static inline void round_trip_start_child(struct round_trip *trip, void (*set_up)(void))
{
	int status;

	trip->pid = fork();
	assert_true(trip->pid >= 0);
	if (!trip->pid) {
		close_range(0, ~0U, 0);
		set_up();
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(trip->pid, &status, WUNTRACED), trip->pid);
	assert_true(WIFSTOPPED(status));
	trip->process = (struct sp_process){
	        .pid = trip->pid,
	        .pidfd = (int)syscall(SYS_pidfd_open, trip->pid, 0),
	        .threads = SP_ARRAY_OF(struct sp_thread *),
	};
}

static inline void round_trip_kill_child(struct round_trip *trip)
{
	if (trip->pid <= 0)
		return;
	kill(trip->pid, SIGKILL);
	waitpid(trip->pid, NULL, 0);
	close(trip->process.pidfd);
	trip->pid = 0;
}

static inline int round_trip_save_file(struct round_trip *trip, struct sp_file_saver *saver,
                                       const struct sp_open_file *file)
{
	const struct sp_open_file *first = sp_file_table_same_inode(&trip->table, file, NULL);
	Sealpoint__OpenFile *record = sp_alloc(sizeof(*record));
	struct sp_blob body = {0};

	if (file->kind->save(saver, file, &body, &trip->err) < 0) {
		free(record);
		return -trip->err.code;
	}
	sealpoint__open_file__init(record);
	record->id = file->id;
	record->kind = (char *)file->kind->name;
	record->flags = (uint32_t)file->flags;
	record->mapping_only = file->number < 0;
	record->same_inode = first == file ? 0 : first->id;
	record->body = (ProtobufCBinaryData){.len = body.size, .data = body.bytes};
	sp_array_append(&trip->checkpoint.files, &record);
	return 0;
}

static inline void round_trip_save_descriptors(struct round_trip *trip)
{
	for (size_t i = 0; i < trip->table.descriptors.count; i++) {
		const struct sp_descriptor *descriptor = sp_array_at(&trip->table.descriptors, i);
		Sealpoint__Descriptor *record = sp_alloc(sizeof(*record));

		sealpoint__descriptor__init(record);
		record->pid = (uint32_t)descriptor->pid;
		record->number = (uint32_t)descriptor->number;
		record->file = descriptor->file;
		sp_array_append(&trip->checkpoint.descriptors, &record);
	}
}

/**
 * Saves what `set_up` makes; `map` may add mappings of the child to the table. Returns what the
 * first kind that failed returned: trip->err says why.
 */
static inline int round_trip_try_save(struct round_trip *trip, void (*set_up)(void),
                                      void (*map)(struct round_trip *trip))
{
	const struct sp_page_writer_options pages = {.level = 1, .workers = 1};
	struct sp_file_saver saver = {.process = &trip->process,
	                              .options = &trip->options,
	                              .table = &trip->table,
	                              .log = &trip->log};
	int result = 0;

	sp_log_init(&trip->log, false, true);
	round_trip_start_child(trip, set_up);
	trip->scratch = scratch_make();
	trip->checkpoint.files = SP_ARRAY_OF(Sealpoint__OpenFile *);
	trip->checkpoint.descriptors = SP_ARRAY_OF(Sealpoint__Descriptor *);
	sp_file_table_init(&trip->table);
	assert_int_equal(
	        sp_page_writer_open(&trip->writer, trip->scratch.dirfd, &pages, &trip->err), 0);
	saver.pages = trip->writer;
	result = sp_file_table_add_process(&trip->table, &trip->process, &trip->err);
	if (!result && map)
		map(trip);
	for (size_t i = 0; i < trip->table.files.count && !result; i++)
		result = round_trip_save_file(trip, &saver, sp_array_at(&trip->table.files, i));
	round_trip_save_descriptors(trip);
	if (result) {
		sp_page_writer_abandon(trip->writer);
		trip->writer = NULL;
	}
	return result;
}

static inline void round_trip_save(struct round_trip *trip, void (*set_up)(void),
                                   void (*map)(struct round_trip *trip))
{
	*trip = (struct round_trip){0};
	if (round_trip_try_save(trip, set_up, map) < 0)
		fail_msg("%s", trip->err.message);
}

/** Ends what holds the child's files: the child, and the table's duplicates of its descriptors. */
static inline void round_trip_let_go(struct round_trip *trip)
{
	round_trip_kill_child(trip);
	sp_file_table_release(&trip->table);
	sp_file_table_init(&trip->table);
}

/** Kills the child and opens everything again. */
static inline void round_trip_restore(struct round_trip *trip)
{
	struct sp_error *err = &trip->err;

	round_trip_let_go(trip);
	if (sp_page_writer_finish(trip->writer, NULL, err) < 0 ||
	    sp_page_store_open(&trip->checkpoint.pages, trip->scratch.dirfd, NULL, err) < 0 ||
	    sp_file_builder_init(&trip->builder, &trip->checkpoint, &trip->options, &trip->log,
	                         err) < 0 ||
	    sp_files_check(&trip->builder, err) < 0 || sp_files_open(&trip->builder, err) < 0)
		fail_msg("%s", err->message);
	trip->writer = NULL;
}

/** Settles the files of one kind. */
static inline void round_trip_settle(struct round_trip *trip, const struct sp_file_kind *kind)
{
	for (size_t i = 0; i < trip->checkpoint.files.count; i++) {
		const Sealpoint__OpenFile *file = sp_array_pointer(&trip->checkpoint.files, i);

		if (!strcmp(file->kind, kind->name) &&
		    kind->settle(&trip->builder, file, &trip->err) < 0)
			fail_msg("%s", trip->err.message);
	}
}

/** Sealpoint's descriptor for what the child had as `number`. */
static inline int round_trip_fd(const struct round_trip *trip, unsigned number)
{
	for (size_t i = 0; i < trip->checkpoint.descriptors.count; i++) {
		const Sealpoint__Descriptor *descriptor =
		        sp_array_pointer(&trip->checkpoint.descriptors, i);

		if (descriptor->number == number)
			return trip->builder.fds[descriptor->file];
	}
	fail_msg("descriptor %u was not restored", number);
	return -1;
}

static inline void round_trip_end(struct round_trip *trip)
{
	round_trip_kill_child(trip);
	if (trip->builder.fds)
		sp_file_builder_release(&trip->builder);
	if (trip->checkpoint.pages)
		sp_page_store_close(trip->checkpoint.pages);
	for (size_t i = 0; i < trip->checkpoint.files.count; i++) {
		Sealpoint__OpenFile *file = sp_array_pointer(&trip->checkpoint.files, i);

		free(file->body.data);
		free(file);
	}
	for (size_t i = 0; i < trip->checkpoint.descriptors.count; i++)
		free(sp_array_pointer(&trip->checkpoint.descriptors, i));
	sp_array_release(&trip->checkpoint.files);
	sp_array_release(&trip->checkpoint.descriptors);
	sp_file_table_release(&trip->table);
	scratch_remove(&trip->scratch);
}

/** Saving what `set_up` makes must fail with a message that contains `words`. */
static inline void assert_refused(void (*set_up)(void), const char *words)
{
	struct round_trip trip = {0};

	assert_true(round_trip_try_save(&trip, set_up, NULL) < 0);
	if (!strstr(trip.err.message, words))
		fail_msg("\"%s\" does not say \"%s\"", trip.err.message, words);
	round_trip_end(&trip);
}

#endif
