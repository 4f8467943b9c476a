/*
 * Landlock (landlock_restrict_self(2)): a program that has restricted itself cannot be restored, as
 * nothing tells to what; without its restrictions it must not be. Nothing tells either that it has,
 * but a restricted process may not look into one that is not: it is made to compare itself with one
 * (kcmp(2)) that it might look into otherwise. That is sealpoint, or for those without the privilege a
 * process that has their users and no privilege.
 *
 * Asked are those who can have restricted themselves as they are, by no_new_privs or CAP_SYS_ADMIN;
 * not those whom another security module confines, which may forbid the same. A thread that is
 * restricted alone is not found.
 */
#include "kinds/registry.h"

#include "proc/capability.h"
#include "proc/file.h"
#include "proc/status.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SYS_LANDLOCK_CREATE_RULESET 444
#define ASK_VERSION 1U
#define NOT_ASKED SIZE_MAX

static bool kernel_has_landlock(void)
{
	return syscall(SYS_LANDLOCK_CREATE_RULESET, NULL, 0, ASK_VERSION) > 0;
}

/* By AppArmor, SELinux, ...: those of a process without rules say so. */
static bool is_confined(pid_t pid)
{
	sp_cleanup_free char *label = NULL;

	return !sp_proc_read(pid, "attr/current", &label, NULL, NULL) && label[0] &&
	       strncmp(label, "unconfined", strlen("unconfined")) != 0;
}

static size_t add_comparison(struct sp_remote *remote, pid_t other)
{
	return sp_batch_try(remote, "compare itself with another process", SYS_kcmp,
	                    (uint64_t)remote->process->pid, (uint64_t)other, KCMP_VM, 0, 0, 0);
}

/* Is the process kept from looking into the other one? */
static bool is_kept_from(const struct sp_remote *remote, size_t comparison)
{
	return sp_batch_result(remote, comparison) == -EPERM;
}

/* A process that everybody with these ids may look into, until the pipe is closed. */
static __attribute__((noreturn)) void stand_open(uid_t user, gid_t group, const int ends[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {0};
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (syscall(SYS_setresgid, group, group, group) ||
	    syscall(SYS_setresuid, user, user, user) || syscall(SYS_capset, &header, none) ||
	    prctl(PR_SET_DUMPABLE, 1))
		_exit(1);
	if (write(ends[1], &byte, 1) == 1)
		for (;;)
			pause();
	_exit(1);
}

static int ask_unprivileged(struct sp_facet_saver *saver, bool *kept, struct sp_error *err)
{
	uint32_t users[4], groups[4];
	sp_cleanup_close int reader = -1;
	size_t count;
	int ends[2], rc = 0;
	pid_t pid;
	char byte;

	if (sp_status_numbers(saver->status, "Uid", users, 4, &count, err) ||
	    sp_status_numbers(saver->status, "Gid", groups, 4, &count, err))
		return -err->code;
	if (pipe2(ends, O_CLOEXEC))
		return sp_fail_errno(err, errno, "cannot make a pipe");
	reader = ends[0];
	pid = fork();
	if (pid == 0)
		stand_open(users[0], groups[0], ends);
	close(ends[1]);
	if (pid < 0)
		return sp_fail_errno(err, errno, "cannot make a process");
	if (read(reader, &byte, 1) == 1) {
		size_t comparison = add_comparison(saver->remote, pid);

		rc = sp_batch_run(saver->remote, err);
		*kept = !rc && is_kept_from(saver->remote, comparison);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return rc;
}

static bool has_capability(const struct sp_facet_saver *saver, int capability)
{
	uint64_t capabilities = 0;

	sp_status_number(saver->status, "CapEff", 16, &capabilities, NULL);
	return capabilities & 1ULL << capability;
}

static bool can_be_asked(const struct sp_facet_saver *saver)
{
	return kernel_has_landlock() && !is_confined(sp_process_living(saver->process));
}

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	saver->asked->call = NOT_ASKED;
	if (has_capability(saver, CAP_SYS_PTRACE) && can_be_asked(saver))
		saver->asked->call = add_comparison(saver->remote, getpid());
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	bool kept = false;
	int rc = 0;

	if (saver->asked->call != NOT_ASKED)
		kept = is_kept_from(saver->remote, saver->asked->call);
	else if (!has_capability(saver, CAP_SYS_PTRACE) &&
	         (sp_status_is(saver->status, "NoNewPrivs", "1") ||
	          has_capability(saver, CAP_SYS_ADMIN)) &&
	         can_be_asked(saver))
		rc = ask_unprivileged(saver, &kept, err);
	if (rc || !kept)
		return rc;
	return sp_fail(
	        err, ENOTSUP,
	        "it has restricted itself with Landlock, and what to cannot be found out; start "
	        "the program without its sandbox, or restrict it with seccomp alone");
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_fail_damaged(err, "restrictions of Landlock, which none can have");
}

const struct sp_facet sp_facet_landlock = {
        .name = "landlock",
        .title = "sandbox",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_PRIVILEGES,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
};
