/*
 * Sharing between processes: see sharing.h.
 *
 * Whoever is cloned with the flag shares with who clones it. At restore that is its parent; or, where those
 * who share are children of one that does not, the first of them clones the others as brothers
 * (CLONE_PARENT), who then have its session and its exit signal.
 */
#include "kinds/sharing.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "proc/stat.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct shared {
	int type;
	size_t offset; /* in struct sp_sharing */
	const char *what, *way_out;
} all[] = {
        {KCMP_VM, offsetof(struct sp_sharing, memory), "memory (CLONE_VM, or vfork(2))",
         "end the other, or wait until one has called execve(2)"},
        {KCMP_FILES, offsetof(struct sp_sharing, descriptors), "descriptors (CLONE_FILES)",
         "end the other first"},
        {KCMP_FS, offsetof(struct sp_sharing, directories), "directories and umask (CLONE_FS)",
         "end the other first"},
        {KCMP_SIGHAND, offsetof(struct sp_sharing, actions), "signal actions (CLONE_SIGHAND)",
         "end the other first"},
};

#define STRANGER "somebody who is neither its parent nor that one's child in the same session, "

/* With whom it shares this. */
static pid_t *with_whom(struct sp_sharing *sharing, const struct shared *shared)
{
	return (pid_t *)((char *)sharing + shared->offset);
}

static int refuse_shared(pid_t pid, const struct shared *shared, const char *with, pid_t other,
                         struct sp_error *err)
{
	return sp_fail(err, ENOTSUP,
	               "%s shares its %s with %s%s, and the two cannot be saved together; %s",
	               sp_process_name(pid).text, shared->what, with, sp_process_name(other).text,
	               shared->way_out);
}

/* A parent that has ended meanwhile, or that we may not look at, does not compare as equal. */
int sp_sharing_check_parent(pid_t pid, struct sp_error *err)
{
	struct sp_stat stat;
	int rc = sp_stat_read(pid, pid, &stat, err);

	for (size_t i = 0; i < SP_COUNT_OF(all) && !rc && stat.ppid > 0; i++)
		if (syscall(SYS_kcmp, pid, stat.ppid, all[i].type, 0, 0) == 0)
			rc = refuse_shared(pid, &all[i], "its parent, ", stat.ppid, err);
	return rc;
}

/* --- many of them --- */

/* One of them; `first` is the index of the first who has the same. */
struct member {
	pid_t pid, living;
	size_t index, first;
};

static const struct sp_sharer *sharer_at(const struct sp_array *processes, size_t index)
{
	return sp_array_at(processes, index);
}

/* kcmp(2) puts what it compares in an order. */
static int compare_members(const void *a, const void *b, void *type)
{
	const struct member *one = a, *other = b;
	long result = one == other ? 0
	                           : syscall(SYS_kcmp, one->living, other->living,
	                                     *(const int *)type, 0, 0);

	return result == 1 ? -1 : result == 2 ? 1 : sp_compare(one->index, other->index);
}

static int compare_indexes(const void *a, const void *b)
{
	return sp_compare(((const struct member *)a)->index, ((const struct member *)b)->index);
}

/* In the order of `processes`, as it is given back. */
static struct member *find_members(const struct sp_array *processes, int type)
{
	struct member *members = sp_alloc((processes->count + 1) * sizeof(*members));

	for (size_t i = 0; i < processes->count; i++)
		members[i] = (struct member){sharer_at(processes, i)->pid,
		                             sharer_at(processes, i)->living, i, i};
	qsort_r(members, processes->count, sizeof(*members), compare_members, &type);
	for (size_t i = 1; i < processes->count; i++)
		if (syscall(SYS_kcmp, members[i - 1].living, members[i].living, type, 0, 0) == 0)
			members[i].first = members[i - 1].first;
	qsort(members, processes->count, sizeof(*members), compare_indexes);
	return members;
}

static void find_shared(const struct sp_array *processes, const struct shared *shared,
                        struct sp_array *sharing)
{
	sp_cleanup_free struct member *members = find_members(processes, shared->type);

	for (size_t i = 0; i < processes->count; i++)
		if (members[i].first != i)
			*with_whom(sp_array_at(sharing, i), shared) = members[members[i].first].pid;
}

/* --- who could clone them --- */

bool sp_sharing_serves(pid_t bearer, struct sp_sharing has, pid_t pid, struct sp_sharing wanted)
{
	for (size_t i = 0; i < SP_COUNT_OF(all); i++) {
		pid_t its = *with_whom(&has, &all[i]), with = *with_whom(&wanted, &all[i]);

		if (with && (its ? its : bearer) != with)
			return false;
	}
	return bearer != pid;
}

bool sp_sharing_is_none(struct sp_sharing sharing)
{
	return !sharing.memory && !sharing.descriptors && !sharing.directories && !sharing.actions;
}

/* May this one, by its place in the tree, be who clones the other? */
static bool is_bearer(pid_t pid, const struct sp_stat *stat, pid_t bearer)
{
	struct sp_stat elder, above;

	if (sp_stat_read(stat->ppid, stat->ppid, &above, NULL))
		return false;
	if (bearer == stat->ppid)
		return stat->session == above.session || stat->session == pid;
	return !sp_stat_read(bearer, bearer, &elder, NULL) && elder.ppid == stat->ppid &&
	       elder.exit_signal == stat->exit_signal && elder.session == stat->session &&
	       stat->session == above.session;
}

static int check_bearer(const struct sp_array *processes, const struct sp_array *sharing,
                        size_t index, struct sp_error *err)
{
	struct sp_sharing *wanted = sp_array_at(sharing, index);
	pid_t pid = sharer_at(processes, index)->pid;
	struct sp_stat stat;
	int rc = sp_stat_read(pid, pid, &stat, err);

	if (rc || sp_sharing_is_none(*wanted))
		return rc;
	for (size_t i = 0; i < index; i++) {
		pid_t bearer = sharer_at(processes, i)->pid;
		const struct sp_sharing *has = sp_array_at(sharing, i);

		if (sp_sharing_serves(bearer, *has, pid, *wanted) && is_bearer(pid, &stat, bearer))
			return 0;
	}
	for (size_t i = 0; i < SP_COUNT_OF(all) && !rc; i++)
		if (*with_whom(wanted, &all[i]))
			rc = refuse_shared(pid, &all[i], STRANGER, *with_whom(wanted, &all[i]),
			                   err);
	return rc;
}

int sp_sharing_find(const struct sp_array *processes, struct sp_array *sharing,
                    struct sp_error *err)
{
	int rc = 0;

	sp_array_grow(sharing, processes->count);
	for (size_t i = 0; i < SP_COUNT_OF(all); i++)
		find_shared(processes, &all[i], sharing);
	for (size_t i = 1; i < processes->count && !rc; i++)
		rc = check_bearer(processes, sharing, i, err);
	return rc;
}

void sp_sharing_find_memory(const struct sp_array *processes, struct sp_array *sharing)
{
	sp_array_grow(sharing, processes->count);
	find_shared(processes, &all[0], sharing);
}
