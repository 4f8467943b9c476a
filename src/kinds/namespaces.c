/*
 * Namespaces and what threads share: see namespaces.h. A checkpoint of this version holds nothing
 * of either, so there is no kind for them, only this refusal.
 */
#include "kinds/namespaces.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
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

/* Two links such as "mnt:[4026531841]", read and not followed: the kernel need not open either. */
static int compare_namespace(pid_t pid, pid_t tid, int ours, int theirs, size_t which,
                             struct sp_error *err)
{
	const char *title = namespaces[which].title;
	char our_link[64] = "", their_link[64] = "";

	if (readlinkat(ours, namespaces[which].file, our_link, sizeof(our_link) - 1) < 0)
		return 0; /* a kernel without it: there is only one */
	if (readlinkat(theirs, namespaces[which].file, their_link, sizeof(their_link) - 1) < 0)
		return sp_fail_errno(err, errno, "cannot read the %s namespace of thread %d of %s",
		                     title, tid, sp_process_name(pid).text);
	if (!strcmp(our_link, their_link))
		return 0;
	return sp_fail(
	        err, ENOTSUP,
	        "thread %d of %s lives in another %s namespace (%s, a container or a service "
	        "that is kept apart); run sealpoint inside it (nsenter -t %d -%s sealpoint "
	        "...)",
	        tid, sp_process_name(pid).text, title, their_link, tid, namespaces[which].option);
}

static int compare_namespaces(pid_t pid, pid_t tid, struct sp_error *err)
{
	sp_cleanup_close int ours = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);
	sp_cleanup_close int theirs = -1;
	char path[64];
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/ns", pid, tid);
	theirs = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (ours < 0 || theirs < 0)
		return sp_fail_errno(err, errno, "cannot read the namespaces of thread %d of %s",
		                     tid, sp_process_name(pid).text);
	for (size_t i = 0; i < SP_COUNT_OF(namespaces) && !rc; i++)
		rc = compare_namespace(pid, tid, ours, theirs, i, err);
	return rc;
}

static int compare_shared(pid_t pid, pid_t tid, struct sp_error *err)
{
	static const struct {
		int type;
		const char *what, *flag;
	} shared[] = {
	        {KCMP_FILES, "descriptors", "CLONE_FILES"},
	        {KCMP_FS, "directories and umask", "CLONE_FS"},
	};

	for (size_t i = 0; i < SP_COUNT_OF(shared); i++) {
		long result = syscall(SYS_kcmp, pid, tid, shared[i].type, 0, 0);

		if (result < 0)
			return sp_fail_errno(err, errno,
			                     "cannot compare the %s of threads with "
			                     "kcmp(2)",
			                     shared[i].what);
		if (result)
			return sp_fail(err, ENOTSUP,
			               "thread %d of %s has %s of its own (unshare(%s)): such a "
			               "thread cannot be saved yet; let it end before the dump",
			               tid, sp_process_name(pid).text, shared[i].what,
			               shared[i].flag);
	}
	return 0;
}

int sp_namespaces_check(const struct sp_process *process, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < process->threads.count && !rc; i++) {
		pid_t tid = sp_process_thread(process, i)->tid;

		rc = compare_namespaces(process->pid, tid, err);
		if (!rc && tid != process->pid)
			rc = compare_shared(process->pid, tid, err);
	}
	return rc;
}
