/* Sharing between processes: see sharing.h. */
#include "kinds/sharing.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"
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

/* A relative that has ended meanwhile, or that we may not look at, does not compare as equal. */
static int compare(pid_t pid, pid_t other, const char *relation, struct sp_error *err)
{
	for (size_t i = 0; i < SP_COUNT_OF(shared); i++)
		if (syscall(SYS_kcmp, pid, other, shared[i].type, 0, 0) == 0)
			return sp_fail(err, ENOTSUP,
			               "%s shares its %s with its %s, %s, and the two cannot be "
			               "saved together yet; %s",
			               sp_process_name(pid).text, shared[i].what, relation,
			               sp_process_name(other).text, shared[i].way_out);
	return 0;
}

static int compare_children(pid_t pid, pid_t tid, struct sp_error *err)
{
	sp_cleanup_free char *children = NULL;
	char *rest;
	int rc = sp_proc_read_thread(pid, tid, "children", &children, NULL, err);

	if (rc)
		return rc;
	for (char *child = strtok_r(children, " \n", &rest); child && !rc;
	     child = strtok_r(NULL, " \n", &rest))
		rc = compare(pid, atoi(child), "child", err);
	return rc;
}

int sp_sharing_check(const struct sp_process *process, struct sp_error *err)
{
	struct sp_stat stat;
	int rc = sp_stat_read(process->pid, process->pid, &stat, err);

	if (!rc && stat.ppid > 0)
		rc = compare(process->pid, stat.ppid, "parent", err);
	for (size_t i = 0; i < process->threads.count && !rc; i++)
		rc = compare_children(process->pid, sp_process_thread(process, i)->tid, err);
	return rc;
}
