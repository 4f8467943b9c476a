/*
 * `sealpoint criu`, or a link to sealpoint that is named criu: dump, pre-dump and restore as people know
 * them from CRIU. See criu.h.
 *
 * The exit status is 0 or 1; that of a restored program is nobody's business here, as there.
 */
#include "cli/criu.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/io.h"
#include "cli/foreground.h"
#include "cli/saving.h"
#include "cli/worker.h"
#include "kinds/inherit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GHOST_LIMIT (1ULL << 20)
#define CRIU_VERBOSITY SP_CRIU_WARNING

/* --- directories --- */

static int resolve(const char *path, const char *what, char **resolved, struct sp_error *err)
{
	struct stat stat_buffer;

	*resolved = realpath(path, NULL);
	if (!*resolved)
		return sp_fail_errno(err, errno, "cannot open the %s directory %s", what, path);
	if (stat(*resolved, &stat_buffer) == 0 && !S_ISDIR(stat_buffer.st_mode))
		return sp_fail_errno(err, ENOTDIR, "cannot open the %s directory %s", what, path);
	return 0;
}

/* Both become absolute, and the working directory is gone to: logs and pid files are named from there. */
static int enter_directories(struct sp_criu *criu, struct sp_error *err)
{
	char *images, *work = NULL;
	int rc = resolve(criu->images ? criu->images : ".", "images", &images, err);

	if (!rc) {
		sp_array_append(&criu->words, &images);
		criu->images = images;
		rc = resolve(criu->work ? criu->work : images, "working", &work, err);
	}
	if (rc)
		return rc;
	sp_array_append(&criu->words, &work);
	criu->work = work;
	return chdir(work) < 0 ? sp_fail_errno(err, errno, "cannot change to %s", work) : 0;
}

/* --- saving --- */

static void print_dump_stats(const struct sp_dump_result *result)
{
	const struct sp_freeze *freeze = &result->freeze;

	printf("Displaying dump stats:\n"
	       "Freezing time: %llu us\n"
	       "Frozen time: %llu us\n"
	       "Memory dump time: %llu us\n"
	       "Total time: %llu us\n"
	       "Memory pages skipped from parent: %llu\n"
	       "Memory pages written: %llu\n"
	       "Images size: %llu bytes\n",
	       (unsigned long long)freeze->stop_ns / 1000,
	       (unsigned long long)freeze->total_ns / 1000,
	       (unsigned long long)freeze->memory_ns / 1000,
	       (unsigned long long)result->total_ns / 1000,
	       (unsigned long long)result->pages.pages[SP_PAGE_PARENT],
	       (unsigned long long)result->pages.pages[SP_PAGE_DATA],
	       (unsigned long long)result->image_bytes);
}

static int find_parent(const struct sp_criu *criu, char **parent, struct sp_error *err)
{
	sp_cleanup_free char *images = NULL;
	sp_cleanup_free char *given = *criu->previous == '/'
	                                      ? sp_strdup(criu->previous)
	                                      : sp_format("%s/%s", criu->images, criu->previous);
	int rc = resolve(given, "previous images", &images, err);

	if (!rc && !strcmp(images, criu->images))
		return sp_fail(err, EINVAL,
		               "the images in %s cannot stand on those that they replace; choose "
		               "another images directory",
		               images);
	return rc ? rc : sp_criu_find_checkpoint(images, parent, err);
}

static int save(struct sp_criu *criu, struct sp_error *err)
{
	sp_cleanup_free char *directory = sp_format("%s/%s", criu->images, SP_CRIU_CHECKPOINT);
	sp_cleanup_free char *parent = NULL;
	struct sp_dump_options dump = sp_saving_defaults(criu->cli);
	struct sp_dump_result result;
	int rc = criu->previous ? find_parent(criu, &parent, err) : 0;

	dump.pid = criu->tree;
	dump.directory = directory;
	dump.replace = sp_criu_has_checkpoint(directory);
	dump.parent = parent;
	dump.timeout_ns = criu->timeout_ns;
	dump.memory_only = criu->command == SP_CRIU_PRE_DUMP;
	dump.kinds.unlinked_file_limit = criu->ghost_limit;
	dump.kinds.tcp_close = criu->tcp_close;
	dump.kinds.tcp_established = criu->tcp_established;
	dump.kinds.shell_job = criu->shell_job;
	dump.kinds.external = &criu->external;
	dump.kinds.external_unix = criu->external_unix;
	dump.kinds.external_pipes = true; /* scripts ask for nothing before the restore */
	dump.kinds.skip_in_flight = criu->skip_in_flight;
	dump.after = criu->leave_running   ? SP_RELEASE_RUN
	             : criu->leave_stopped ? SP_RELEASE_STOP
	                                   : SP_RELEASE_KILL;
	if (criu->scripts.count)
		dump.hook = (struct sp_hook){sp_criu_run_scripts_at, criu};
	dump.freeze_cgroup = criu->freeze_cgroup;
	dump.kinds.cgroups = criu->cgroups;
	if (criu->track_memory || dump.memory_only)
		dump.session = SP_CUT_TRACK;
	if (!rc && !dump.memory_only)
		rc = sp_criu_run_scripts(criu, "pre-dump", criu->tree, err);
	if (!rc)
		rc = sp_dump(&dump, &result, err);
	if (!rc && criu->display_stats)
		print_dump_stats(&result);
	return rc;
}

/* --- restoring --- */

static void print_restore_stats(const struct sp_restore_result *result)
{
	printf("Displaying restore stats:\n"
	       "Pages restored: %llu\n"
	       "Memory restore time: %llu us\n"
	       "Restore time: %llu us\n",
	       (unsigned long long)result->pages.pages[SP_PAGE_DATA],
	       (unsigned long long)result->memory_ns / 1000,
	       (unsigned long long)result->total_ns / 1000);
}

static int restore(struct sp_criu *criu, struct sp_restore_result *result, struct sp_error *err)
{
	sp_cleanup_free char *directory = NULL;
	struct sp_restore_options options = {
	        .leave_stopped = criu->leave_stopped,
	        .sibling = criu->sibling,
	        .pidfile = criu->pidfile,
	        .hook = {criu->scripts.count ? sp_criu_run_scripts_at : NULL, criu},
	        .kinds = {.tcp_close = criu->tcp_close,
	                  .tcp_established = criu->tcp_established,
	                  .shell_job = criu->shell_job,
	                  .cgroups = criu->cgroups,
	                  .inherited = &criu->inherited,
	                  .foreground = !criu->detach},
	        .log = &criu->cli->log,
	};
	int rc = sp_criu_find_checkpoint(criu->images, &directory, err);

	options.directory = directory;
	if (!rc)
		rc = sp_criu_run_scripts(criu, "pre-restore", 0, err);
	if (!rc)
		rc = sp_restore(&options, result, err);
	if (!rc && criu->display_stats)
		print_restore_stats(result);
	return rc;
}

/* --- the whole --- */

static void tell_beginning(struct sp_criu *criu)
{
	sp_criu_tell(criu, SP_CRIU_INFO, "Version: sealpoint %s, command line of CRIU 3.17",
	             SP_VERSION);
	for (size_t i = 0; i < criu->permitted.count; i++) {
		const struct sp_criu_option *option = sp_array_pointer(&criu->permitted, i);

		sp_criu_tell(criu, SP_CRIU_WARNING, "--%s has no effect yet: %s", option->name,
		             option->text);
	}
}

/* The engine's sentences name options as `sealpoint dump` has them: one has another name here. */
static char *in_own_words(const struct sp_error *err)
{
	static const char theirs[] = "--unlinked-limit", ours[] = "--ghost-limit";
	sp_cleanup_free char *message = sp_failure_sentence(err);
	const char *at = strstr(message, theirs);

	if (!at)
		return sp_strdup(message);
	return sp_format("%.*s%s%s", (int)(at - message), message, ours, at + strlen(theirs));
}

static int failed(struct sp_criu *criu, const struct sp_error *err, const char *line)
{
	sp_cleanup_free char *message = in_own_words(err);

	sp_log_failed(&criu->cli->log);
	sp_criu_tell(criu, SP_CRIU_ERROR, "%s", message);
	sp_criu_tell(criu, SP_CRIU_ERROR, "%s", line);
	if (err->code == EINTR)
		sp_interrupt_follow();
	return SP_EXIT_FAILED;
}

static void tell_status(const struct sp_criu *criu)
{
	if (criu->status_fd < 0)
		return;
	sp_write_full(criu->status_fd, "", 1);
	close(criu->status_fd);
}

static int run_save(struct sp_criu *criu, struct sp_error *err)
{
	bool ahead = criu->command == SP_CRIU_PRE_DUMP;
	int status;

	if (!sp_worker_begin(criu->tree, criu->tcp_established, &status))
		return status;
	if (save(criu, err) < 0)
		return failed(criu, err, ahead ? "Pre-dumping FAILED." : "Dumping FAILED.");
	tell_status(criu);
	sp_criu_finished(criu, ahead ? "Pre-dumping finished successfully"
	                             : "Dumping finished successfully");
	return SP_EXIT_OK;
}

static int run_restore(struct sp_criu *criu, struct sp_error *err)
{
	struct sp_restore_result result = {0};
	int status;

	/* As of `sealpoint restore`: see there. */
	if (!criu->detach || criu->shell_job || criu->sibling || !criu->tcp_established)
		sp_interrupt_watch();
	else if (!sp_worker_begin(0, true, &status))
		return status;
	if (restore(criu, &result, err) < 0)
		return failed(criu, err, "Restoring FAILED.");
	if (sp_criu_run_scripts(criu, "post-resume", result.pid, err) < 0)
		sp_criu_tell(criu, SP_CRIU_WARNING, "%s", err->message);
	tell_status(criu);
	sp_criu_finished(criu, criu->leave_stopped
	                               ? "Restore finished successfully. Tasks left stopped."
	                               : "Restore finished successfully. Tasks resumed.");
	if (!criu->detach)
		sp_stand_in_until_end(result.pid, criu->leave_stopped, &status);
	return SP_EXIT_OK;
}

/* What needs no program: `words` of it are told at the end. */
static int run_on_images(struct sp_criu *criu, const char *words,
                         int (*run)(struct sp_criu *criu, struct sp_error *err),
                         struct sp_error *err)
{
	sp_cleanup_free char *good = sp_format("%s finished successfully", words);
	sp_cleanup_free char *bad = sp_format("%s FAILED.", words);

	sp_interrupt_watch();
	if (run(criu, err) < 0)
		return failed(criu, err, bad);
	sp_criu_finished(criu, good);
	return SP_EXIT_OK;
}

static bool is_complete(const struct sp_criu *criu)
{
	if (criu->command & SP_CRIU_SAVE && !criu->tree)
		return sp_criu_usage(criu, "say with -t PID which process to save");
	if (criu->leave_running && criu->leave_stopped)
		return sp_criu_usage(criu, "give one of --leave-running and --leave-stopped");
	if (criu->sibling && !criu->detach)
		return sp_criu_usage(criu, "--restore-sibling needs --restore-detached");
	if (criu->tcp_established && criu->tcp_close)
		return sp_criu_usage(criu, "give one of --tcp-established and --tcp-close");
	return true;
}

static int run_command(struct sp_criu *criu)
{
	struct sp_error err = {0};

	if (!sp_criu_parse(criu) || !is_complete(criu))
		return SP_EXIT_FAILED;
	if (criu->command != SP_CRIU_CHECK && enter_directories(criu, &err) < 0)
		return failed(criu, &err, "Nothing was done.");
	if (sp_criu_log_open(criu, &err) < 0)
		return failed(criu, &err, "Nothing was done.");
	tell_beginning(criu);
	switch (criu->command) {
	case SP_CRIU_CHECK:
		return sp_criu_check(criu);
	case SP_CRIU_DEDUP:
		return run_on_images(criu, "Deduplication", sp_criu_dedup, &err);
	case SP_CRIU_CPUINFO:
		return run_on_images(criu, "Cpuinfo", sp_criu_cpuinfo, &err);
	case SP_CRIU_RESTORE:
		return run_restore(criu, &err);
	default:
		return run_save(criu, &err);
	}
}

static void release(struct sp_criu *criu)
{
	for (size_t i = 0; i < criu->words.count; i++)
		free(sp_array_pointer(&criu->words, i));
	for (size_t i = 0; i < criu->scripts.count; i++)
		free(sp_array_pointer(&criu->scripts, i));
	sp_array_release(&criu->words);
	sp_array_release(&criu->scripts);
	sp_array_release(&criu->external);
	sp_array_release(&criu->inherited);
	sp_array_release(&criu->operands);
	sp_array_release(&criu->permitted);
	if (criu->log)
		fclose(criu->log);
}

static int run(struct sp_cli *cli)
{
	struct sp_criu criu = {
	        .cli = cli,
	        .words = SP_ARRAY_OF(char *),
	        .operands = SP_ARRAY_OF(char *),
	        .permitted = SP_ARRAY_OF(const struct sp_criu_option *),
	        .scripts = SP_ARRAY_OF(char *),
	        .external = SP_ARRAY_OF(char *),
	        .inherited = SP_ARRAY_OF(struct sp_inherited),
	        .ghost_limit = GHOST_LIMIT,
	        .timeout_ns = SP_DUMP_TIMEOUT_NS,
	        .status_fd = -1,
	        .verbosity = CRIU_VERBOSITY,
	        .started_ns = sp_now_ns(),
	};
	int status;

	cli->json = false; /* no answer in JSON here, and no such option */
	status = run_command(&criu);
	release(&criu);
	return status;
}

const struct sp_command sp_command_criu = {
        .name = "criu",
        .synopsis = "COMMAND [OPTION]...",
        .summary = "the command line of CRIU, for scripts that have it",
        .help = sp_criu_help,
        .acts = true,
        .run = run,
};
