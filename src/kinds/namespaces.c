/*
 * Namespaces and what threads share: see namespaces.h. A checkpoint of this version holds nothing
 * of either, so there is no kind for them, only this refusal.
 */
#include "kinds/namespaces.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/stat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *file, *title;
	const char *option; /* of nsenter(1) */
} namespaces[] = {
        {"mnt", "mount", "m"},     {"pid", "pid", "p"},   {"pid_for_children", "pid", "p"},
        {"net", "network", "n"},   {"ipc", "IPC", "i"},   {"uts", "UTS", "u"},
        {"user", "user", "U"},     {"time", "time", "T"}, {"time_for_children", "time", "T"},
        {"cgroup", "cgroup", "C"},
};

/* Links such as "mnt:[4026531841]", read and not followed: the kernel need not open what they name. */
struct view {
	char links[SP_COUNT_OF(namespaces)][64]; /* "": there is only one */
};

/* Our own, once: reading links is most of the work, and the program stands still meanwhile. */
static int read_own_view(struct view *view, struct sp_error *err)
{
	sp_cleanup_close int ours = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);

	*view = (struct view){0};
	if (ours < 0)
		return sp_fail_errno(err, errno, "cannot read the namespaces of sealpoint");
	for (size_t i = 0; i < SP_COUNT_OF(namespaces); i++)
		if (readlinkat(ours, namespaces[i].file, view->links[i],
		               sizeof(view->links[i]) - 1) < 0)
			view->links[i][0] = '\0';
	return 0;
}

static int compare_namespace(pid_t pid, pid_t tid, int theirs, size_t which, const char *ours,
                             struct sp_error *err)
{
	const char *title = namespaces[which].title;
	char link[64] = "";

	if (readlinkat(theirs, namespaces[which].file, link, sizeof(link) - 1) < 0)
		return sp_fail_errno(err, errno, "cannot read the %s namespace of thread %d of %s",
		                     title, tid, sp_process_name(pid).text);
	if (!strcmp(link, ours))
		return 0;
	return sp_fail(
	        err, ENOTSUP,
	        "thread %d of %s lives in another %s namespace (%s, a container or a service "
	        "that is kept apart); run sealpoint inside it (nsenter -t %d -%s sealpoint "
	        "...)",
	        tid, sp_process_name(pid).text, title, link, tid, namespaces[which].option);
}

static int compare_namespaces(pid_t pid, pid_t tid, const struct view *own, struct sp_error *err)
{
	sp_cleanup_close int theirs = -1;
	char path[64];
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/ns", pid, tid);
	theirs = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (theirs < 0)
		return sp_fail_errno(err, errno, "cannot read the namespaces of thread %d of %s",
		                     tid, sp_process_name(pid).text);
	for (size_t i = 0; i < SP_COUNT_OF(namespaces) && !rc; i++)
		if (own->links[i][0])
			rc = compare_namespace(pid, tid, theirs, i, own->links[i], err);
	return rc;
}

static int compare_shared(const struct sp_process *process, pid_t tid, struct sp_error *err)
{
	static const struct {
		int type;
		const char *what, *flag;
	} shared[] = {
	        {KCMP_FILES, "descriptors", "CLONE_FILES"},
	        {KCMP_FS, "directories and umask", "CLONE_FS"},
	};

	for (size_t i = 0; i < SP_COUNT_OF(shared); i++) {
		long result =
		        syscall(SYS_kcmp, sp_process_living(process), tid, shared[i].type, 0, 0);

		if (result < 0)
			return sp_fail_errno(err, errno,
			                     "cannot compare the %s of threads with "
			                     "kcmp(2)",
			                     shared[i].what);
		if (result)
			return sp_fail(err, ENOTSUP,
			               "thread %d of %s has %s of its own (unshare(%s)): such a "
			               "thread cannot be saved yet; let it end before the dump",
			               tid, sp_process_name(process->pid).text, shared[i].what,
			               shared[i].flag);
	}
	return 0;
}

int sp_namespaces_look(pid_t pid, struct sp_error *err)
{
	char path[32];
	sp_cleanup_dir DIR *tasks = NULL;
	struct dirent *entry;
	struct view own;
	int rc = read_own_view(&own, err);

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (!rc && tasks && (entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);

		rc = tid > 0 ? compare_namespaces(pid, tid, &own, err) : 0;
		if (rc && rc != -ENOTSUP) { /* it is gone */
			*err = (struct sp_error){0};
			rc = 0;
		}
	}
	return rc;
}

int sp_namespaces_check(const struct sp_process *process, struct sp_error *err)
{
	struct view own;
	int rc = read_own_view(&own, err);

	for (size_t i = 0; i < process->threads.count && !rc; i++) {
		pid_t tid = sp_process_thread(process, i)->tid;

		rc = compare_namespaces(process->pid, tid, &own, err);
		if (!rc && i)
			rc = compare_shared(process, tid, err);
	}
	return rc;
}
