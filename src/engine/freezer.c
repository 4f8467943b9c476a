/* Freezing a control group: see freezer.h. */
#include "engine/freezer.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 1000000
#define AGAIN_ROUNDS 100

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

/* --- who is in it --- */

static bool lists(const char *group, pid_t pid)
{
	sp_cleanup_free char *path = sp_format("%s/cgroup.procs", group);
	sp_cleanup_file FILE *file = fopen(path, "re");
	int listed;

	while (file && fscanf(file, "%d", &listed) == 1)
		if (listed == pid)
			return true;
	return false;
}

static bool contains(const char *group, pid_t pid)
{
	sp_cleanup_dir DIR *dir = opendir(group);
	struct dirent *entry;

	if (lists(group, pid))
		return true;
	while (dir && (entry = readdir(dir))) {
		sp_cleanup_free char *below = NULL;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		below = sp_format("%s/%s", group, entry->d_name);
		if (contains(below, pid))
			return true;
	}
	return false;
}

/* --- its state --- */

static const char *word(const struct sp_freezer *freezer, bool frozen)
{
	if (freezer->version_1)
		return frozen ? "FROZEN" : "THAWED";
	return frozen ? "1" : "0";
}

/* Version 1 tells FREEZING for a while, version 2 what was asked for; whether it is so, another file. */
static bool is_frozen(const struct sp_freezer *freezer, const char *group)
{
	sp_cleanup_free char *events = sp_format("%s/cgroup.events", group);
	sp_cleanup_free char *text = NULL;

	if (sp_read_file(AT_FDCWD, freezer->version_1 ? freezer->file : events, &text, NULL, NULL))
		return false;
	return strstr(text, freezer->version_1 ? "FROZEN" : "frozen 1");
}

/* Whoever has asked for it has not had to wait until it is so. */
static bool is_to_be_frozen(const struct sp_freezer *freezer)
{
	sp_cleanup_free char *text = NULL;

	return !sp_read_file(AT_FDCWD, freezer->file, &text, NULL, NULL) &&
	       strncmp(text, word(freezer, false), strlen(word(freezer, false))) != 0;
}

static int find(struct sp_freezer *freezer, const char *group, struct sp_error *err)
{
	sp_cleanup_free char *first = sp_format("%s/freezer.state", group);
	sp_cleanup_free char *second = sp_format("%s/cgroup.freeze", group);

	freezer->version_1 = is_there(first);
	if (!freezer->version_1 && !is_there(second))
		return sp_fail(err, ENOENT,
		               "%s is no control group that can be frozen: it has neither "
		               "freezer.state nor cgroup.freeze",
		               group);
	if (contains(group, getpid()))
		return sp_fail(err, EDEADLK,
		               "sealpoint itself is in the control group %s, and would be frozen "
		               "with it; start it in another one",
		               group);
	freezer->file = sp_steal_ptr(freezer->version_1 ? &first : &second);
	return is_to_be_frozen(freezer)
	               ? sp_fail(err, EBUSY,
	                         "the control group %s is frozen already; thaw it first", group)
	               : 0;
}

/* --- the guardian --- */

static __attribute__((noreturn)) void guard(const struct sp_freezer *freezer, const int ends[2])
{
	char byte;

	setsid();
	close(ends[1]); /* it may be one of the first three */
	dup2(ends[0], STDIN_FILENO);
	close_range(STDERR_FILENO + 1, ~0U, 0);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	_exit(sp_write_file(freezer->file, word(freezer, false), NULL) ? 1 : 0);
}

/*
 * It hears of our end by a pipe, which nobody else has open: what we start has it closed. It keeps nothing else open
 * itself, least of all a userfaultfd, whose protection ends with the last descriptor of it.
 */
static int start_guardian(struct sp_freezer *freezer, struct sp_error *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return sp_fail_errno(err, errno, "cannot make a pipe");
	freezer->guardian = fork();
	if (freezer->guardian == 0)
		guard(freezer, ends);
	close(ends[0]);
	freezer->leash = ends[1];
	if (freezer->guardian > 0)
		return 0;
	close(ends[1]);
	return sp_fail_errno(err, errno, "cannot start a process that thaws the control group");
}

/* --- the whole --- */

static int wait_until_frozen(const struct sp_freezer *freezer, const char *group,
                             uint64_t deadline_ns, struct sp_error *err)
{
	for (unsigned round = 1; !is_frozen(freezer, group); round++) {
		/* Version 1 may stay half way. */
		if (round % AGAIN_ROUNDS == 0 &&
		    (sp_freezer_thaw(freezer, err) ||
		     sp_write_file(freezer->file, word(freezer, true), err)))
			return -err->code;
		if (sp_interrupt_check(err))
			return -EINTR;
		if (sp_now_ns() > deadline_ns)
			return sp_fail(err, ETIMEDOUT,
			               "the control group %s is not frozen in time; give more with "
			               "--timeout",
			               group);
		nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	}
	return 0;
}

int sp_freezer_freeze(struct sp_freezer *freezer, const char *group, uint64_t deadline_ns,
                      struct sp_error *err)
{
	int rc = find(freezer, group, err);

	if (rc) {
		free(sp_steal_ptr(&freezer->file));
		return rc;
	}
	rc = start_guardian(freezer, err);
	if (rc) {
		free(sp_steal_ptr(&freezer->file));
		return rc;
	}
	rc = sp_write_file(freezer->file, word(freezer, true), err);
	return rc ? rc : wait_until_frozen(freezer, group, deadline_ns, err);
}

int sp_freezer_thaw(const struct sp_freezer *freezer, struct sp_error *err)
{
	return sp_write_file(freezer->file, word(freezer, false), err);
}

void sp_freezer_end(struct sp_freezer *freezer)
{
	if (!freezer->file)
		return;
	close(freezer->leash);
	while (waitpid(freezer->guardian, NULL, 0) < 0 && errno == EINTR)
		;
	free(sp_steal_ptr(&freezer->file));
}
