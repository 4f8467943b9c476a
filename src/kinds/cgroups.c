/* Control groups: see cgroups.h. */
#include "kinds/cgroups.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* What can be read and written back. Those without a limit say so in words that can be written, too. */
static const char *const properties[] = {
        /* version 2 */
        "cpuset.cpus", "cpuset.mems", "cpu.weight", "cpu.max", "memory.min", "memory.low",
        "memory.high", "memory.max", "memory.swap.max", "memory.oom.group", "io.weight", "pids.max",
        /* version 1 */
        "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes",
        "memory.soft_limit_in_bytes", "memory.swappiness", "blkio.weight", "net_cls.classid"};

bool sp_cgroups_parse_mode(const char *text, enum sp_cgroup_mode *mode)
{
	static const char *const modes[] = {
	        [SP_CGROUPS_IGNORE] = "ignore", [SP_CGROUPS_NONE] = "none",
	        [SP_CGROUPS_PROPS] = "props",   [SP_CGROUPS_SOFT] = "soft",
	        [SP_CGROUPS_FULL] = "full",     [SP_CGROUPS_STRICT] = "strict",
	};

	for (unsigned i = 0; i < SP_COUNT_OF(modes); i++) {
		if (strcmp(text, modes[i]) != 0)
			continue;
		*mode = i;
		return true;
	}
	return false;
}

/* A line of /proc/PID/cgroup: "4:memory:/a/b". */
struct membership {
	const char *hierarchy, *path;
};

/* Takes the next line off a text, in place. */
static bool next_membership(char **text, struct membership *membership)
{
	char *line = strsep(text, "\n"), *colon = line ? strchr(line, ':') : NULL;

	if (!colon)
		return false;
	membership->hierarchy = colon + 1;
	colon = strchr(colon + 1, ':');
	if (!colon)
		return false;
	*colon = '\0';
	membership->path = colon + 1;
	return true;
}

static int read_memberships(pid_t pid, pid_t tid, char **text, struct sp_error *err)
{
	sp_cleanup_free char *path = sp_format("/proc/%d/task/%d/cgroup", pid, tid);

	return sp_read_file(AT_FDCWD, path, text, NULL, err);
}

/* --- where hierarchies are mounted --- */

/* One word of a list that is separated by commas. */
static bool has_word(const char *list, const char *word, size_t length)
{
	for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
		if (!strncmp(list, word, length) && (!list[length] || list[length] == ','))
			return true;
	return false;
}

static bool has_all_words(const char *list, const char *words)
{
	for (; *words; words += strcspn(words, ","), words += *words == ',')
		if (!has_word(list, words, strcspn(words, ",")))
			return false;
	return true;
}

/*
 * The directory of a group, the caller's to free, by a line of /proc/self/mountinfo: "ID PARENT DEVICE ROOT POINT OPTIONS ... -
 * TYPE SOURCE OPTIONS". NULL if it is not that of the hierarchy, or does not show the group.
 */
static char *directory_by(char *line, const char *hierarchy, const char *path)
{
	char root[PATH_MAX], point[PATH_MAX], type[64], options[1024];
	const char *end = strstr(line, " - ");
	size_t length;

	if (!end || sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2 ||
	    sscanf(end, " - %63s %*s %1023s", type, options) != 2)
		return NULL;
	if (*hierarchy ? strcmp(type, "cgroup") != 0 || !has_all_words(options, hierarchy)
	               : strcmp(type, "cgroup2") != 0)
		return NULL;
	length = strcmp(root, "/") ? strlen(root) : 0;
	if (strncmp(path, root, length) || (path[length] && path[length] != '/'))
		return NULL;
	return sp_format("%s%s", point, strcmp(path + length, "/") ? path + length : "");
}

static char *find_directory(const char *hierarchy, const char *path)
{
	sp_cleanup_free char *text = NULL;
	char *rest, *line, *directory = NULL;

	if (sp_read_file(AT_FDCWD, "/proc/self/mountinfo", &text, NULL, NULL))
		return NULL;
	rest = text;
	while (!directory && (line = strsep(&rest, "\n")))
		directory = directory_by(line, hierarchy, path);
	return directory;
}

/* --- dump --- */

void sp_cgroups_free(struct sp_array *groups)
{
	for (size_t i = 0; i < groups->count; i++)
		sealpoint__cgroup__free_unpacked(sp_array_pointer(groups, i), NULL);
	sp_array_release(groups);
}

static Sealpoint__Cgroup__Property *read_property(const char *directory, const char *name)
{
	sp_cleanup_free char *path = sp_format("%s/%s", directory, name);
	sp_cleanup_free char *value = NULL;
	Sealpoint__Cgroup__Property *property;

	if (sp_read_file(AT_FDCWD, path, &value, NULL, NULL))
		return NULL;
	value[strcspn(value, "\n")] = '\0';
	if (!*value)
		return NULL;
	property = sp_alloc(sizeof(*property));
	sealpoint__cgroup__property__init(property);
	property->name = sp_strdup(name);
	property->value = sp_steal_ptr(&value);
	return property;
}

static void read_properties(const char *directory, Sealpoint__Cgroup *group)
{
	group->properties = sp_alloc_zeroed(SP_COUNT_OF(properties), sizeof(*group->properties));
	for (size_t i = 0; i < SP_COUNT_OF(properties); i++) {
		Sealpoint__Cgroup__Property *property = read_property(directory, properties[i]);

		if (property)
			group->properties[group->n_properties++] = property;
	}
}

/* The root of a hierarchy is nobody's to set up. */
static void add_group(struct sp_array *groups, const struct membership *membership)
{
	sp_cleanup_free char *directory = find_directory(membership->hierarchy, membership->path);
	Sealpoint__Cgroup *group = sp_alloc(sizeof(*group));

	sealpoint__cgroup__init(group);
	group->hierarchy = sp_strdup(membership->hierarchy);
	group->path = sp_strdup(membership->path);
	if (directory && strcmp(membership->path, "/") != 0)
		read_properties(directory, group);
	sp_array_append(groups, &group);
}

static int check_threads(const struct sp_process *process, const char *leader, struct sp_error *err)
{
	for (size_t i = 1; i < process->threads.count; i++) {
		sp_cleanup_free char *text = NULL;
		pid_t tid = sp_process_thread(process, i)->tid;
		int rc = read_memberships(process->pid, tid, &text, err);

		if (rc)
			return rc;
		if (strcmp(text, leader) != 0)
			return sp_fail(err, ENOTSUP,
			               "thread %d of process %d is in other control groups than "
			               "its process; put it back, or dump without control groups",
			               tid, process->pid);
	}
	return 0;
}

int sp_cgroups_save(const struct sp_process *process, struct sp_array *groups, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	struct membership membership;
	char *rest;
	int rc = read_memberships(process->pid, sp_process_living(process), &text, err);

	if (!rc)
		rc = check_threads(process, text, err);
	if (rc)
		return sp_error_context(err, "cannot save the control groups of process %d",
		                        process->pid);
	rest = text;
	while (next_membership(&rest, &membership))
		add_group(groups, &membership);
	return 0;
}

/* --- restore --- */

static bool is_in(pid_t pid, const Sealpoint__Cgroup *group)
{
	sp_cleanup_free char *text = NULL;
	struct membership membership;
	char *rest;

	if (read_memberships(pid, pid, &text, NULL))
		return false;
	rest = text;
	while (next_membership(&rest, &membership))
		if (!strcmp(membership.hierarchy, group->hierarchy))
			return !strcmp(membership.path, group->path);
	return false;
}

static bool was_made(const struct sp_cgroups *cgroups, const char *directory)
{
	for (size_t i = 0; i < cgroups->made.count; i++)
		if (!strcmp(sp_array_pointer(&cgroups->made, i), directory))
			return true;
	return false;
}

/* With all above it. */
static int make(struct sp_cgroups *cgroups, const char *directory, struct sp_error *err)
{
	sp_cleanup_free char *above = sp_strdup(directory);
	char *made;

	*strrchr(above, '/') = '\0';
	if (mkdir(directory, 0755) &&
	    (errno != ENOENT || !*above || make(cgroups, above, err) || mkdir(directory, 0755)))
		return sp_failed(err) ? -err->code
		                      : sp_fail_errno(err, errno, "cannot make %s", directory);
	made = sp_strdup(directory);
	sp_array_append(&cgroups->made, &made);
	return 0;
}

/* Of version 2, a file exists if the group above it gives its controller away. */
static void offer_controller(const char *directory, const char *property)
{
	const char *slash = strrchr(directory, '/');
	sp_cleanup_free char *file =
	        sp_format("%.*s/cgroup.subtree_control", (int)(slash - directory), directory);
	sp_cleanup_free char *text = sp_format("+%.*s", (int)strcspn(property, "."), property);

	sp_write_file(file, text, NULL);
}

static int set_properties(const char *directory, const Sealpoint__Cgroup *group,
                          struct sp_error *err)
{
	for (size_t i = 0; i < group->n_properties; i++) {
		const Sealpoint__Cgroup__Property *property = group->properties[i];
		sp_cleanup_free char *file = sp_format("%s/%s", directory, property->name);

		if (strchr(property->name, '/'))
			return sp_fail_damaged(err, "an impossible property");
		if (access(file, F_OK) && !*group->hierarchy)
			offer_controller(directory, property->name);
		if (sp_write_file(file, property->value, err))
			return -err->code;
	}
	return 0;
}

/* Makes it what the mode wants it to be. */
static int prepare(struct sp_cgroups *cgroups, const char *directory,
                   const Sealpoint__Cgroup *group, enum sp_cgroup_mode mode, struct sp_error *err)
{
	bool there = access(directory, F_OK) == 0, ours = was_made(cgroups, directory);
	int rc = 0;

	if (!there && (mode == SP_CGROUPS_NONE || mode == SP_CGROUPS_PROPS))
		return sp_fail(err, ENOENT, "there is no %s; make it first", directory);
	if (there && !ours && mode == SP_CGROUPS_STRICT)
		return sp_fail(err, EEXIST, "there is a %s already; remove it first", directory);
	if (!there)
		rc = make(cgroups, directory, err);
	if (rc || ours || mode == SP_CGROUPS_NONE || (there && mode == SP_CGROUPS_SOFT))
		return rc;
	return set_properties(directory, group, err);
}

static int enter(struct sp_cgroups *cgroups, pid_t pid, const Sealpoint__Cgroup *group,
                 enum sp_cgroup_mode mode, struct sp_error *err)
{
	sp_cleanup_free char *directory = NULL;
	sp_cleanup_free char *file = NULL;
	sp_cleanup_free char *number = sp_format("%d", pid);
	int rc;

	if (is_in(pid, group))
		return 0;
	if (group->path[0] != '/' || strstr(group->path, "/.."))
		return sp_fail(err, ENOTSUP,
		               "the group %s is outside of what can be seen here; restore without "
		               "control groups",
		               group->path);
	directory = find_directory(group->hierarchy, group->path);
	if (!directory)
		return sp_fail(err, ENOENT,
		               "the hierarchy %s is not mounted here; mount it, or restore without "
		               "control groups",
		               *group->hierarchy ? group->hierarchy : "of version 2");
	rc = prepare(cgroups, directory, group, mode, err);
	if (rc)
		return rc;
	file = sp_format("%s/cgroup.procs", directory);
	return sp_write_file(file, number, err);
}

int sp_cgroups_enter(struct sp_cgroups *cgroups, const Sealpoint__Process *record,
                     enum sp_cgroup_mode mode, struct sp_error *err)
{
	if (mode == SP_CGROUPS_IGNORE)
		return 0;
	if (!record->n_cgroups)
		return sp_fail(
		        err, ENOENT,
		        "the checkpoint does not say in which control groups process %u was: "
		        "save them with the dump, or restore without them",
		        record->pid);
	for (size_t i = 0; i < record->n_cgroups; i++)
		if (enter(cgroups, (pid_t)record->pid, record->cgroups[i], mode, err))
			return sp_error_context(err,
			                        "cannot put process %u into the control group %s",
			                        record->pid, record->cgroups[i]->path);
	return 0;
}

void sp_cgroups_release(struct sp_cgroups *cgroups, bool restored)
{
	for (size_t i = cgroups->made.count; i-- > 0;) {
		char *directory = sp_array_pointer(&cgroups->made, i);

		if (!restored)
			rmdir(directory);
		free(directory);
	}
	sp_array_release(&cgroups->made);
}
