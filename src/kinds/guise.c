/* Acting in the guise of another process: see guise.h. */
#include "kinds/guise.h"

#include "arch/arch.h"
#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_SIZE (256U << 10)

/* What is given to the passing process, and what it gives back. */
struct passing {
	int (*act)(void *context);
	void *context;
	int result;
};

static int pass(void *context)
{
	struct passing *passing = context;

	passing->result = passing->act(passing->context);
	return 0;
}

static long clone_passing(pid_t pid, struct passing *passing, void *stack)
{
	struct clone_args args = {
	        .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES,
	        .stack = (uintptr_t)stack,
	        .stack_size = STACK_SIZE,
	        .set_tid = pid > 0 ? (uintptr_t)&pid : 0,
	        .set_tid_size = pid > 0 ? 1 : 0,
	};

	return sp_clone_and_call(&args, sizeof(args), pass, passing);
}

int sp_guise_run(pid_t pid, int (*act)(void *context), void *context)
{
	sp_cleanup_free void *stack = sp_alloc(STACK_SIZE);
	struct passing passing = {act, context, -EINTR};
	int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	long child = clone_passing(pid, &passing, stack);

	if (child < 0 && pid > 0)
		child = clone_passing(0, &passing, stack);
	if (child < 0)
		return (int)child;
	while (waitpid((pid_t)child, NULL, __WALL) < 0 && errno == EINTR)
		;
	/* Another user has had our memory: it counts as not to be looked into since. */
	if (dumpable == 1)
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	return passing.result;
}

/* The saved ids stay, and lead back. The raw calls, because the C library would ask all threads. */
void sp_guise_put_on(uid_t uid, gid_t gid)
{
	syscall(SYS_setresgid, gid, gid, -1);
	syscall(SYS_setresuid, uid, uid, -1);
}

void sp_guise_take_off(void)
{
	uid_t real, effective, saved_user;
	gid_t real_group, effective_group, saved_group;

	syscall(SYS_getresuid, &real, &effective, &saved_user);
	syscall(SYS_getresgid, &real_group, &effective_group, &saved_group);
	syscall(SYS_setresuid, saved_user, saved_user, -1);
	syscall(SYS_setresgid, saved_group, saved_group, -1);
}

int sp_guise_leave_files(void)
{
	static const char mount_point[] = "/proc"; /* a directory that is there in any case */

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("sealpoint", mount_point, "tmpfs", 0, NULL) || chroot(mount_point) || chdir("/"))
		return -errno;
	umask(0);
	return 0;
}
