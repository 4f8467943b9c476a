/* Sharing between processes: see sharing.h. */
#include "kinds/sharing.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "proc/stat.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	int type;
	const char *what, *way_out;
} shared[] = {
        {KCMP_VM, "memory (CLONE_VM, or vfork(2))",
         "end the other, or wait until one has called execve(2)"},
        {KCMP_FILES, "descriptors (CLONE_FILES)", "end the other first"},
        {KCMP_FS, "directories and umask (CLONE_FS)", "end the other first"},
        {KCMP_SIGHAND, "signal actions (CLONE_SIGHAND)", "end the other first"},
};

static int refuse_shared(pid_t pid, size_t what, const char *with, pid_t other,
                         struct sp_error *err)
{
	return sp_fail(err, ENOTSUP,
	               "%s shares its %s with %s%s, and the two cannot be saved together yet; %s",
	               sp_process_name(pid).text, shared[what].what, with,
	               sp_process_name(other).text, shared[what].way_out);
}

/* A parent that has ended meanwhile, or that we may not look at, does not compare as equal. */
int sp_sharing_check_parent(pid_t pid, struct sp_error *err)
{
	struct sp_stat stat;
	int rc = sp_stat_read(pid, pid, &stat, err);

	for (size_t i = 0; i < SP_COUNT_OF(shared) && !rc && stat.ppid > 0; i++)
		if (syscall(SYS_kcmp, pid, stat.ppid, shared[i].type, 0, 0) == 0)
			rc = refuse_shared(pid, i, "its parent, ", stat.ppid, err);
	return rc;
}

/* --- many of them --- */

/* kcmp(2) puts what it compares in an order. */
static int compare_by(const void *a, const void *b, void *type)
{
	pid_t one = *(const pid_t *)a, other = *(const pid_t *)b;
	long result = one == other ? 0 : syscall(SYS_kcmp, one, other, *(const int *)type, 0, 0);

	return result == 1 ? -1 : result == 2 ? 1 : 0;
}

int sp_sharing_check_all(const struct sp_array *pids, struct sp_error *err)
{
	const size_t size = pids->count * sizeof(pid_t);
	sp_cleanup_free pid_t *order = sp_alloc(size);

	if (pids->count < 2)
		return 0;
	memcpy(order, pids->items, size);
	for (size_t i = 0; i < SP_COUNT_OF(shared); i++) {
		int type = shared[i].type;

		qsort_r(order, pids->count, sizeof(*order), compare_by, &type);
		for (size_t j = 1; j < pids->count; j++)
			if (syscall(SYS_kcmp, order[j - 1], order[j], type, 0, 0) == 0)
				return refuse_shared(order[j - 1], i, "", order[j], err);
	}
	return 0;
}
