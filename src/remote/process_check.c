/* Which processes can be seized; and those that cannot, by name, with the way out. */
#include "base/cleanup.h"
#include "base/error.h"
#include "proc/capability.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"
#include "remote/process_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A number of a status text, or `missing` if the text has no such line. */
static long status_number(const char *status, const char *name, long missing)
{
	uint64_t value;

	return sp_status_number(status, name, 10, &value, NULL) ? missing : (long)value;
}

static int refuse_traced(pid_t pid, long tracer, struct sp_error *err)
{
	return sp_fail(err, EBUSY,
	               "%s is already traced by %s (a debugger, strace or another dump); end that "
	               "first",
	               sp_process_name(pid).text, sp_process_name((pid_t)tracer).text);
}

static int refuse_permission(pid_t pid, struct sp_error *err)
{
	if (sp_capability_have(CAP_SYS_PTRACE))
		return sp_fail(err, EPERM,
		               "the kernel does not let anybody trace %s: a security module or a "
		               "user namespace above ours protects it",
		               sp_process_name(pid).text);
	return sp_fail(err, EPERM,
	               "no permission to trace %s; run as root (or with CAP_SYS_PTRACE), see "
	               "\"sealpoint check\"",
	               sp_process_name(pid).text);
}

/*
 * Remote calls name the process by the number that it has for us, so it must have the same one for
 * itself. And number 1 cannot be had again: it is given to the first process of a namespace, which
 * ends with it.
 */
static int check_pid_namespace(pid_t pid, const char *status, struct sp_error *err)
{
	uint32_t numbers[32];
	size_t count;

	if (pid == 1)
		return sp_fail(err, ENOTSUP,
		               "%s is the init of its pid namespace, which begins and ends with "
		               "it; dump a program that it has started",
		               sp_process_name(pid).text);
	if (sp_status_numbers(status, "NSpid", numbers, sizeof(numbers) / sizeof(numbers[0]),
	                      &count, NULL) ||
	    count == 1)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "%s lives in a pid namespace of its own (a container), where it is process "
	               "%u; run sealpoint in there (nsenter --target %d --pid --mount sealpoint "
	               "...)",
	               sp_process_name(pid).text, numbers[count - 1], pid);
}

/* Does a file of a control group, wherever that hierarchy is mounted, have this text in it? */
static bool group_file_says(const char *mount, const char *group, const char *name,
                            const char *text)
{
	sp_cleanup_free char *path = sp_format("/sys/fs/cgroup%s%s/%s", mount, group, name);
	sp_cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char content[256];
	ssize_t size = fd < 0 ? -1 : read(fd, content, sizeof(content) - 1);

	content[size > 0 ? size : 0] = '\0';
	return strstr(content, text) != NULL;
}

/*
 * A process in a frozen control group can be stopped, and then does not run for us either: a remote
 * call would not end before somebody thaws the group.
 */
int sp_process_check_frozen(pid_t pid, struct sp_error *err)
{
	sp_cleanup_free char *groups = NULL;
	char *rest, *line;

	if (sp_proc_read(pid, "cgroup", &groups, NULL, NULL))
		return 0;
	for (line = strtok_r(groups, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *group = strchr(line, '/');
		bool frozen = false;

		if (group && !strncmp(line, "0::", 3))
			frozen = group_file_says("", group, "cgroup.events", "frozen 1") ||
			         group_file_says("/unified", group, "cgroup.events", "frozen 1");
		else if (group && strstr(line, ":freezer:"))
			frozen = group_file_says("/freezer", group, "freezer.state", "FR");
		if (frozen)
			return sp_fail(err, EBUSY,
			               "%s is frozen with its control group %s; thaw that first",
			               sp_process_name(pid).text, group);
	}
	return 0;
}

/* The kernel runs 32-bit code of two kinds: i386, and x32, whose registers look like ours. */
static int check_class(pid_t pid, struct sp_error *err)
{
	sp_cleanup_close int fd = sp_proc_open(pid, "exe", O_RDONLY, NULL);
	unsigned char ident[EI_NIDENT];

	if (fd < 0 || read(fd, ident, sizeof(ident)) != sizeof(ident) ||
	    memcmp(ident, ELFMAG, SELFMAG) || ident[EI_CLASS] != ELFCLASS32)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "%s is a 32-bit program, and sealpoint saves 64-bit programs only",
	               sp_process_name(pid).text);
}

/* Is this a thread of the process, or of one that descends from it? `*owner` becomes its process. */
static bool belongs_to(pid_t pid, pid_t tid, pid_t *owner)
{
	sp_cleanup_free char *status = NULL;
	struct sp_stat stat = {.ppid = 0};
	pid_t ancestor;

	if (sp_status_read(tid, tid, &status, NULL))
		return false;
	*owner = ancestor = (pid_t)status_number(status, "Tgid", tid);
	while (ancestor != pid && ancestor > 1 && !sp_stat_read(ancestor, ancestor, &stat, NULL))
		ancestor = stat.ppid;
	return ancestor == pid;
}

/*
 * A debugger, or one among the descendants: what it traces would be let go, and is not what a restored
 * one expects. The kernel has no list of tracees, but each names its tracer. Main threads only: who
 * traces a process traces that.
 */
int sp_process_check_tracees(pid_t pid, struct sp_error *err)
{
	sp_cleanup_dir DIR *processes = opendir("/proc");
	struct dirent *entry;

	while (processes && (entry = readdir(processes))) {
		sp_cleanup_free char *status = NULL;
		pid_t other = atoi(entry->d_name), owner;
		long tracer = 0;

		if (other > 0 && other != pid && !sp_status_read(other, other, &status, NULL))
			tracer = status_number(status, "TracerPid", 0);
		if (tracer > 0 && belongs_to(pid, (pid_t)tracer, &owner))
			return sp_fail(err, ENOTSUP,
			               "%s traces %s, which a restored one would not; let it "
			               "detach first",
			               sp_process_name(owner).text, sp_process_name(other).text);
	}
	return 0;
}

/*
 * A main thread that has ended, or is about to, and has no memory any more. So it is with its
 * process, unless that has other threads: those may run on for ever, or one of them is in execve(2)
 * and becomes the main thread. Seizing will tell.
 */
static int check_ended(pid_t pid, struct sp_error *err)
{
	sp_cleanup_close int pidfd = pidfd_open(pid, 0);
	struct sp_stat stat;

	if (!sp_stat_read(pid, pid, &stat, NULL) && stat.flags & SP_PF_KTHREAD)
		return sp_fail(err, EINVAL, "%s is a kernel thread: only programs can be saved",
		               sp_process_name(pid).text);
	if (pidfd >= 0 && !sp_process_is_gone(pidfd))
		return 0;
	return sp_fail(err, ESRCH, "%s has ended (its parent has not collected its status yet)",
	               sp_process_name(pid).text);
}

int sp_process_check(pid_t pid, struct sp_error *err)
{
	sp_cleanup_free char *status = NULL;
	sp_cleanup_close int maps = -1;
	pid_t living = sp_living_thread(pid);
	long tgid, tracer;

	if (sp_status_read(pid, pid, &status, NULL))
		return sp_fail(err, ESRCH, "there is no process %d", pid);
	tgid = status_number(status, "Tgid", pid);
	tracer = status_number(status, "TracerPid", 0);
	if (tgid != pid)
		return sp_fail(err, EINVAL, "%d is a thread of %s; name the process", pid,
		               sp_process_name((pid_t)tgid).text);
	if (pid == getpid())
		return sp_fail(err, EINVAL, "process %d is sealpoint itself", pid);
	if (living == pid && status_number(status, "VmSize", -1) < 0)
		return check_ended(pid, err);
	if (tracer)
		return refuse_traced(pid, tracer, err);
	maps = sp_proc_open(living, "maps", O_RDONLY, NULL);
	if (maps == -EACCES || maps == -EPERM)
		return refuse_permission(pid, err);
	if (check_class(living, err) || sp_process_check_frozen(pid, err))
		return -err->code;
	return check_pid_namespace(pid, status, err);
}

int sp_refuse_seize(pid_t pid, pid_t tid, int code, struct sp_error *err)
{
	sp_cleanup_free char *status = NULL;
	long tracer = 0;

	if (!sp_status_read(pid, tid, &status, NULL))
		tracer = status_number(status, "TracerPid", 0);
	if (tracer)
		return refuse_traced(pid, tracer, err);
	if (code == EPERM)
		return refuse_permission(pid, err);
	return sp_fail_errno(err, code, "cannot seize thread %d of %s", tid,
	                     sp_process_name(pid).text);
}

int sp_refuse_unstoppable(pid_t pid, pid_t tid, struct sp_error *err)
{
	static const char *const why = "cannot be stopped in time";
	sp_cleanup_free char *call = NULL, *wchan = NULL;
	long number = -1;

	if (sp_process_check_frozen(pid, err))
		return -err->code;
	if (!sp_proc_read_thread(pid, tid, "syscall", &call, NULL, NULL) &&
	    isdigit((unsigned char)*call))
		number = strtol(call, NULL, 10);
	if (number == SYS_vfork || number == SYS_clone || number == SYS_clone3)
		return sp_fail(err, ETIMEDOUT,
		               "thread %d of %s %s: it waits for its vfork child to exec or exit; "
		               "try again when the child has, or with a longer --timeout",
		               tid, sp_process_name(pid).text, why);
	if (sp_proc_read_thread(pid, tid, "wchan", &wchan, NULL, NULL) || !*wchan ||
	    !strcmp(wchan, "0"))
		return sp_fail(err, ETIMEDOUT,
		               "thread %d of %s %s: it is in an uninterruptible wait (system "
		               "call %ld); try again, or with a longer --timeout",
		               tid, sp_process_name(pid).text, why, number);
	return sp_fail(
	        err, ETIMEDOUT,
	        "thread %d of %s %s: it is in an uninterruptible wait (%s); try again, or with "
	        "a longer --timeout",
	        tid, sp_process_name(pid).text, why, wchan);
}
