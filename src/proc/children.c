/* Reading /proc/PID/task/TID/children: see children.h. */
#include "proc/children.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"
#include "proc/status.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A thread that has ended meanwhile has none: another one has them now. */
static void read_thread(pid_t pid, pid_t tid, struct sp_array *children)
{
	sp_cleanup_free char *text = NULL;
	char *rest;

	if (sp_proc_read_thread(pid, tid, "children", &text, NULL, NULL))
		return;
	for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
		*(pid_t *)sp_array_push(children) = atoi(word);
}

int sp_children_read(pid_t pid, struct sp_array *children, struct sp_error *err)
{
	sp_cleanup_free char *path = sp_format("/proc/%d/task", pid);
	sp_cleanup_dir DIR *tasks = opendir(path);
	struct dirent *entry;

	if (!tasks)
		return sp_fail_errno(err, errno, "cannot open %s", path);
	while ((entry = readdir(tasks)))
		if (atoi(entry->d_name) > 0)
			read_thread(pid, atoi(entry->d_name), children);
	return 0;
}

bool sp_is_of_tree(pid_t id, pid_t root)
{
	while (id > 0) {
		sp_cleanup_free char *status = NULL;
		uint64_t process, parent;

		if (sp_status_read(id, id, &status, NULL) ||
		    sp_status_number(status, "Tgid", 10, &process, NULL) ||
		    sp_status_number(status, "PPid", 10, &parent, NULL))
			return false;
		if ((pid_t)process == root)
			return true;
		id = (pid_t)parent;
	}
	return false;
}
