/*
 * Snapshots: checkpoints of a running program at intervals, in a store that keeps the newest.
 *
 * Each is a delta on the one before, cut from one session that lasts as long as the command. When
 * more members have piled up than are to be kept, a process in the background merges the oldest one
 * that is kept with all that it stands on; it takes its own place in one step, and the older ones
 * can go, the youngest first, so that none is ever without its parent.
 *
 * The program comes first: a snapshot has its price, and the next one waits until that is no more than
 * the share of the time since that is allowed.
 */
#include "engine/engine.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NAME_DIGITS 8
/* What the program pays for its first write to a page that was taken, and for one that has to wait. */
#define FIRST_WRITE_NS 1000
#define HELD_WRITE_NS 30000
/* What a killed run has left, to be removed by the next. */
#define REMOVED ".removed-"
#define PARTIAL ".partial-"

struct store {
	const struct sp_snapshot_options *options;
	struct sp_snapshot_result *result;
	int dirfd;               /* locked as long as it is ours */
	bool created;            /* it was not there before */
	struct sp_array members; /* unsigned: the numbers of the checkpoints in it, ascending */
	struct sp_cuts cuts;
	struct sp_array room; /* for what is read, from snapshot to snapshot */
	uint64_t lost_ns;     /* of the program's time, by all that were made */
	pid_t merger;         /* 0: none runs */
	unsigned merged;      /* the number of what it is merging */
};

static void member_name(unsigned number, char name[NAME_DIGITS + 1])
{
	snprintf(name, NAME_DIGITS + 1, "%0*u", NAME_DIGITS, number % 100000000U);
}

static void member_path(const struct store *store, unsigned number, char path[PATH_MAX])
{
	char name[NAME_DIGITS + 1];

	member_name(number, name);
	snprintf(path, PATH_MAX, "%s/%s", store->options->store, name);
}

/* --- opening the store --- */

static bool is_member(const char *name)
{
	return strlen(name) == NAME_DIGITS && strspn(name, "0123456789") == NAME_DIGITS;
}

static void remove_directory(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	sp_cleanup_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		unlinkat(fd, entry->d_name, 0);
	unlinkat(dirfd, name, AT_REMOVEDIR);
}

static int compare_numbers(const void *left, const void *right)
{
	return sp_compare(*(const unsigned *)left, *(const unsigned *)right);
}

static int list_members(struct store *store, struct sp_error *err)
{
	sp_cleanup_dir DIR *dir = opendir(store->options->store);
	struct dirent *entry;

	if (!dir)
		return sp_fail_errno(err, errno, "cannot read the store %s", store->options->store);
	while ((entry = readdir(dir))) {
		if (is_member(entry->d_name)) {
			unsigned number = (unsigned)strtoul(entry->d_name, NULL, 10);

			sp_array_append(&store->members, &number);
		} else if (!strncmp(entry->d_name, REMOVED, strlen(REMOVED)) ||
		           strstr(entry->d_name, PARTIAL)) {
			remove_directory(store->dirfd, entry->d_name);
		}
	}
	sp_array_sort(&store->members, compare_numbers);
	return 0;
}

/* The merger of a run that was killed has the lock, too, and takes a moment to end. */
static bool lock_store(const struct store *store)
{
	for (unsigned tries = 0; tries < 100; tries++) {
		if (flock(store->dirfd, LOCK_EX | LOCK_NB) == 0)
			return true;
		usleep(10000);
	}
	return false;
}

static int open_store(struct store *store, struct sp_error *err)
{
	const char *path = store->options->store;

	store->created = mkdir(path, 0700) == 0;
	if (!store->created && errno != EEXIST)
		return sp_fail_errno(err, errno, "cannot create the store %s", path);
	store->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->dirfd < 0)
		return sp_fail_errno(err, errno, "cannot open the store %s", path);
	if (!lock_store(store))
		return sp_fail(
		        err, EBUSY,
		        "cannot use the store %s: another process is making snapshots in it; "
		        "choose another directory",
		        path);
	return list_members(store, err);
}

/* --- old members --- */

static void remove_member(struct store *store, size_t index)
{
	char name[NAME_DIGITS + 1], removed[64];

	member_name(*(unsigned *)sp_array_at(&store->members, index), name);
	snprintf(removed, sizeof(removed), REMOVED "%s", name);
	/* Out of sight in one step: what has its name is complete. */
	if (renameat(store->dirfd, name, store->dirfd, removed) == 0)
		remove_directory(store->dirfd, removed);
}

/* Everything older than the member that stands alone now. */
static void remove_older(struct store *store, unsigned number)
{
	size_t older = 0;

	while (older < store->members.count &&
	       *(unsigned *)sp_array_at(&store->members, older) < number)
		older++;
	for (size_t i = older; i-- > 0;)
		remove_member(store, i);
	memmove(store->members.items, (unsigned *)store->members.items + older,
	        (store->members.count - older) * sizeof(unsigned));
	store->members.count -= older;
}

static void run_merger(const struct store *store) __attribute__((noreturn));

static void run_merger(const struct store *store)
{
	char path[PATH_MAX];
	struct sp_merge_options merge = {
	        .directory = path,
	        .compression = store->options->dump.compression,
	};
	struct sp_merge_result result;
	struct sp_error err = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	member_path(store, store->merged, path);
	if (nice(10) < 0 && errno)
		errno = 0; /* then it competes with the program */
	if (sp_merge(&merge, &result, &err) == 0)
		_exit(0);
	dprintf(STDERR_FILENO, "sealpoint: cannot merge old snapshots: %s\n", err.message);
	_exit(1);
}

static void start_merger(struct store *store)
{
	const struct sp_snapshot_options *options = store->options;

	if (store->merger || store->members.count <= options->keep + options->max_chain)
		return;
	store->merged =
	        *(unsigned *)sp_array_at(&store->members, store->members.count - options->keep);
	store->merger = fork();
	if (store->merger == 0)
		run_merger(store);
	if (store->merger < 0)
		store->merger = 0;
}

/* Whether it has ended; waits for it if told to. */
static void attend_to_merger(struct store *store, bool wait)
{
	int status;

	if (!store->merger || waitpid(store->merger, &status, wait ? 0 : WNOHANG) != store->merger)
		return;
	store->merger = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		remove_older(store, store->merged);
}

/* --- making one --- */

/* The link is a help for people: what it names is complete, and so is what it named before. */
static void point_to(const struct store *store, unsigned number)
{
	char name[NAME_DIGITS + 1];

	member_name(number, name);
	unlinkat(store->dirfd, "." SP_STORE_LATEST, 0);
	if (symlinkat(name, store->dirfd, "." SP_STORE_LATEST) == 0)
		renameat(store->dirfd, "." SP_STORE_LATEST, store->dirfd, SP_STORE_LATEST);
}

/* What was taken was protected, and is written again as it was before. */
static uint64_t lost_by(const struct sp_dump_result *result)
{
	return result->freeze.total_ns + result->held_writes * HELD_WRITE_NS +
	       result->pages.raw_bytes / SP_PAGE_SIZE * FIRST_WRITE_NS;
}

static int make_one(struct store *store, struct sp_error *err)
{
	const struct sp_snapshot_options *options = store->options;
	size_t count = store->members.count;
	unsigned newest = count ? *(unsigned *)sp_array_at(&store->members, count - 1) : 0;
	unsigned number = newest + 1;
	struct sp_dump_options dump = options->dump;
	struct sp_dump_result result;
	char path[PATH_MAX], parent[PATH_MAX];
	int rc;

	member_path(store, number, path);
	member_path(store, newest, parent);
	dump.directory = path;
	dump.after = SP_RELEASE_RUN;
	dump.session = SP_CUT_ONCE;
	dump.chain = &store->cuts;
	dump.room = &store->room;
	dump.parent = count ? parent : NULL;
	rc = sp_dump(&dump, &result, err);
	if (rc == 0)
		rc = sp_cuts_committed(&store->cuts, path, err);
	if (rc < 0) {
		sp_cuts_failed(&store->cuts);
		return rc;
	}
	store->lost_ns += lost_by(&result);
	sp_array_append(&store->members, &number);
	point_to(store, number);
	snprintf(store->result->newest, sizeof(store->result->newest), "%s", path);
	store->result->made++;
	if (options->made)
		options->made(options->context, path, &result);
	return 0;
}

/* --- the whole --- */

/* A moment that was missed is not made up for. */
static uint64_t wait_for(uint64_t moment)
{
	uint64_t now = sp_now_ns();
	struct timespec until = sp_timespec_from_ns(moment);

	if (moment <= now)
		return now;
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	return moment;
}

static uint64_t processor_ns(int who)
{
	struct rusage usage;

	if (getrusage(who, &usage) < 0)
		return 0;
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * SP_NS_PER_S +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000;
}

/*
 * What has been taken from the program and the machine so far, this process and the mergers that have
 * ended: time in which the program stood still, or waited at its writes, and time of all processors.
 */
static uint64_t price(const struct store *store)
{
	uint64_t used = processor_ns(RUSAGE_SELF) + processor_ns(RUSAGE_CHILDREN);
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	return store->lost_ns + used / (uint64_t)(processors > 0 ? processors : 1);
}

/* When the next is due that comes after one that was begun at `moment`. */
static uint64_t next_moment(const struct store *store, uint64_t moment, uint64_t *paid)
{
	uint64_t due = price(store), every = store->options->every_ns;
	uint64_t affordable = (due - *paid) * 100 / store->options->share;

	*paid = due;
	return moment + (every > affordable ? every : affordable);
}

static int make_all(struct store *store, struct sp_error *err)
{
	const struct sp_snapshot_options *options = store->options;
	uint64_t moment = sp_now_ns(), paid = 0;
	int rc = 0;

	while (!rc && (!options->count || store->result->made < options->count)) {
		struct sp_error failed = {0};

		moment = wait_for(moment);
		rc = sp_interrupt_check(err);
		if (rc)
			break;
		rc = make_one(store, &failed);
		moment = next_moment(store, moment, &paid);
		if (rc == -EAGAIN) {
			sp_warn(options->dump.log, "one snapshot was skipped: %s", failed.message);
			store->result->skipped++;
			rc = 0;
		} else if (rc && err) {
			*err = failed;
		}
		attend_to_merger(store, false);
		start_merger(store);
	}
	return rc;
}

int sp_snapshot(const struct sp_snapshot_options *options, struct sp_snapshot_result *result,
                struct sp_error *err)
{
	struct store store = {
	        .options = options,
	        .result = result,
	        .dirfd = -1,
	        .members = SP_ARRAY_OF(unsigned),
	        .cuts = SP_CUTS_NONE,
	        .room = SP_ARRAY_OF(uint8_t *),
	};
	int rc;

	*result = (struct sp_snapshot_result){0};
	rc = open_store(&store, err);
	if (rc == 0)
		rc = make_all(&store, err);
	attend_to_merger(&store, true);
	sp_cuts_end(&store.cuts);
	sp_array_release(&store.members);
	sp_page_room_free(&store.room);
	sp_close_scope(&store.dirfd);
	if (store.created && !result->made)
		rmdir(options->store);
	/* The end of the program, and that of the command, are how this ends. */
	result->program_ended = rc == -ESRCH && result->made > 0;
	if (result->program_ended || (rc == -EINTR && result->made > 0)) {
		*err = (struct sp_error){0};
		return 0;
	}
	return rc;
}
