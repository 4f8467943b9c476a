/*
 * Files of another process, for tests of file kinds: a child sets itself up and stops; its open
 * files are saved to a checkpoint and opened again by the test, without a restored process.
 *
 *	struct file_target target = file_target_start(set_up);
 *	struct file_copy copy = file_target_copy(&target);
 *	int fd = file_copy_fd(&copy, NUMBER);	// the same file, as a restore makes it
 *	...
 *	file_copy_release(&copy);
 *	file_target_end(&target);
 */
#ifndef SEALPOINT_TESTS_FILE_TARGET_H
#define SEALPOINT_TESTS_FILE_TARGET_H

#include "kinds/file_build.h"
#include "kinds/file_table.h"
#include "unit/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

struct file_target {
	struct sp_kind_options options; /* of the restore */
	struct sp_process process;
	struct sp_file_table table;
	struct scratch scratch;
};

struct file_copy {
	struct sp_checkpoint *checkpoint;
	struct sp_file_builder builder;
};

static const struct sp_kind_options file_target_options = {.unlinked_file_limit = 1 << 20};
static struct sp_log file_target_log = {.quiet = true};

/**
 * Runs `set_up` in a child, in a scratch directory. The first descriptor that it gets is `first`;
 * those below are on /dev/null.
 */
static inline struct file_target file_target_start_at(unsigned first, void (*set_up)(void))
{
	struct file_target target = {.options = file_target_options, .scratch = scratch_make()};
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned number = 0; number < first; number++)
			dup2(null, (int)number);
		close_range(first, ~0U, 0);
		if (chdir(target.scratch.path))
			_exit(1);
		set_up();
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	target.process.pid = pid;
	target.process.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	target.process.threads = SP_ARRAY_OF(struct sp_thread *);
	sp_file_table_init(&target.table);
	return target;
}

/** The usual one: with descriptors 0 to 2 on /dev/null. */
static inline struct file_target file_target_start(void (*set_up)(void))
{
	return file_target_start_at(3, set_up);
}

static inline void file_target_kill(struct file_target *target)
{
	syscall(SYS_pidfd_send_signal, target->process.pidfd, SIGKILL, NULL, 0);
	waitpid(target->process.pid, NULL, 0);
}

/** Ends all who hold the target's files: the target, and the table with its duplicates. */
static inline void file_target_let_go(struct file_target *target)
{
	file_target_kill(target);
	sp_file_table_release(&target->table);
	sp_file_table_init(&target->table);
}

static inline void file_target_end(struct file_target *target)
{
	file_target_kill(target);
	close(target->process.pidfd);
	sp_file_table_release(&target->table);
	scratch_remove(&target->scratch);
}

/** Reads the table; a failure is the test's. */
static inline void file_target_read(struct file_target *target)
{
	struct sp_error err = {0};

	if (sp_file_table_add_process(&target->table, &target->process, &err))
		fail_msg("%s", err.message);
}

/** What stands for the process in a checkpoint that only its files are asked of. */
static inline void file_target_save_process(struct file_target *target,
                                            struct sp_checkpoint_writer *writer)
{
	Sealpoint__Process process = SEALPOINT__PROCESS__INIT;
	Sealpoint__Thread thread = SEALPOINT__THREAD__INIT;
	struct user_regs_struct registers = {0};
	struct sp_error err = {0};

	process.pid = thread.pid = thread.tid = (uint32_t)target->process.pid;
	thread.general.data = (uint8_t *)&registers;
	thread.general.len = sizeof(registers);
	process.memory_object = sp_page_writer_new_object(writer->pages);
	if (sp_record_write(&writer->records, SP_RECORD_PROCESS, &process.base, &err) ||
	    sp_record_write(&writer->records, SP_RECORD_THREAD, &thread.base, &err))
		fail_msg("%s", err.message);
}

/** Saves what was read, and what else the caller added, to the checkpoint "image". */
static inline int file_target_save(struct file_target *target,
                                   const struct sp_kind_options *options, struct sp_error *err)
{
	const struct sp_page_writer_options page_options = {.level = SP_COMPRESS_DEFAULT};
	struct sp_file_saver saver = {
	        .options = options,
	        .root = target->process.pid,
	        .log = &file_target_log,
	};
	Sealpoint__Manifest manifest = SEALPOINT__MANIFEST__INIT;
	struct sp_checkpoint_writer writer;
	char path[300];
	int result;

	snprintf(path, sizeof(path), "%s/image", target->scratch.path);
	if (sp_checkpoint_create(&writer, path, &page_options, err))
		fail_msg("%s", err->message);
	file_target_save_process(target, &writer);
	saver.pages = writer.pages;
	result = sp_file_table_save(&target->table, &saver, &writer.records, err);
	if (result) {
		sp_checkpoint_abandon(&writer);
		return result;
	}
	manifest.root_pid = (uint32_t)target->process.pid;
	if (sp_checkpoint_commit(&writer, &manifest, NULL, err))
		fail_msg("%s", err->message);
	return 0;
}

/** Opens the checkpoint that file_target_save() wrote, none of its files yet. */
static inline void file_target_open_checkpoint(struct file_target *target, struct file_copy *copy)
{
	struct sp_error err = {0};
	char path[300];

	snprintf(path, sizeof(path), "%s/image", target->scratch.path);
	if (sp_checkpoint_open(&copy->checkpoint, path, &err) ||
	    sp_file_builder_init(&copy->builder, copy->checkpoint, &target->options,
	                         &file_target_log, &err))
		fail_msg("%s", err.message);
}

static inline int file_copy_open(struct file_copy *copy, struct sp_error *err)
{
	int result = sp_files_check(&copy->builder, err);

	return result ? result : sp_files_open(&copy->builder, err);
}

/** Opens all files of the checkpoint that file_target_save() wrote. */
static inline int file_target_open(struct file_target *target, struct file_copy *copy,
                                   struct sp_error *err)
{
	file_target_open_checkpoint(target, copy);
	return file_copy_open(copy, err);
}

static inline void file_copy_release(struct file_copy *copy)
{
	sp_file_builder_release(&copy->builder);
	sp_checkpoint_close(copy->checkpoint);
}

/**
 * Reads (unless done), saves, kills the target and opens everything. The table still has it open,
 * too.
 */
static inline struct file_copy file_target_copy(struct file_target *target)
{
	struct sp_error err = {0};
	struct file_copy copy;

	if (!target->table.files.count)
		file_target_read(target);
	if (file_target_save(target, &file_target_options, &err))
		fail_msg("%s", err.message);
	file_target_kill(target);
	if (file_target_open(target, &copy, &err))
		fail_msg("%s", err.message);
	return copy;
}

/** The same when nobody has a file of the target open any more. */
static inline struct file_copy file_target_copy_alone(struct file_target *target)
{
	struct sp_error err = {0};
	struct file_copy copy;

	file_target_read(target);
	if (file_target_save(target, &file_target_options, &err))
		fail_msg("%s", err.message);
	file_target_let_go(target);
	if (file_target_open(target, &copy, &err))
		fail_msg("%s", err.message);
	return copy;
}

/** sealpoint's own descriptor of the file that the target had at `number`. */
static inline int file_copy_fd(const struct file_copy *copy, int number)
{
	for (size_t i = 0; i < copy->checkpoint->descriptors.count; i++) {
		const Sealpoint__Descriptor *descriptor =
		        sp_array_pointer(&copy->checkpoint->descriptors, i);

		if (descriptor->number == (uint32_t)number)
			return copy->builder.fds[descriptor->file];
	}
	fail_msg("no descriptor %d in the checkpoint", number);
	return -1;
}

#endif
