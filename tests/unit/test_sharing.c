/* Processes that share with a relative what fork(2) would have copied: found, or refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kinds/sharing.h"
#include "unit/remote_target.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

static unsigned long flags; /* of clone(2), for the parent that is forked next */

__attribute__((noreturn)) static int child_body(void *ready)
{
	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
	if (!(flags & CLONE_FILES))
		syscall(SYS_close, *(int *)ready); /* start() waits for that */
	for (;;)
		syscall(SYS_pause);
}

static void has_child(int ready)
{
	static char stack[65536] __attribute__((aligned(16)));

	if (clone(child_body, stack + sizeof(stack), (int)(flags | SIGCHLD), &ready) < 0)
		_exit(98);
	report(ready);
	for (;;)
		pause();
}

static pid_t child_of(pid_t pid)
{
	char path[64];
	int child = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &child), 1);
	fclose(file);
	return child;
}

static void expect(int rc, const struct sp_error *err, const char *what)
{
	assert_int_equal(rc, what ? -ENOTSUP : 0);
	if (what && !strstr(err->message, what))
		fail_msg("does not say \"%s\": %s", what, err->message);
}

static void check_with_parent(pid_t pid, const char *what)
{
	struct sp_error err = {0};

	expect(sp_sharing_check_parent(pid, &err), &err, what);
}

static struct sp_sharing find_with(pid_t one, pid_t other, const char *refusal)
{
	sp_cleanup_array struct sp_array sharers = SP_ARRAY_OF(struct sp_sharer);
	sp_cleanup_array struct sp_array sharing = SP_ARRAY_OF(struct sp_sharing);
	struct sp_error err = {0};

	*(struct sp_sharer *)sp_array_push(&sharers) = (struct sp_sharer){one, one};
	*(struct sp_sharer *)sp_array_push(&sharers) = (struct sp_sharer){other, other};
	expect(sp_sharing_find(&sharers, &sharing, &err), &err, refusal);
	return *(struct sp_sharing *)sp_array_at(&sharing, 1);
}

/* `outside`: what is said when the parent is not saved along; `refusal`: when both are. */
static void check_family(unsigned long how, const char *outside, const char *refusal)
{
	struct sp_sharing sharing;
	pid_t parent, child;

	flags = how;
	parent = start(has_child);
	child = child_of(parent);
	sharing = find_with(parent, child, refusal);
	assert_int_equal(sharing.descriptors, how & CLONE_FILES ? parent : 0);
	assert_int_equal(sharing.memory, how & CLONE_VM ? parent : 0);
	assert_int_equal(sharing.actions, how & CLONE_SIGHAND ? parent : 0);
	assert_int_equal(sharing.directories, how & CLONE_FS ? parent : 0);
	check_with_parent(child, outside);
	kill(child, SIGKILL);
	end(parent);
}

static void a_child_of_fork_shares_nothing(void **state)
{
	check_family(0, NULL, NULL);
}

static void shared_memory_is_found(void **state)
{
	check_family(CLONE_VM, "memory (CLONE_VM", NULL);
}

static void shared_descriptors_are_found(void **state)
{
	check_family(CLONE_FILES, "descriptors (CLONE_FILES)", NULL);
}

static void shared_directories_are_found(void **state)
{
	check_family(CLONE_FS, "directories and umask (CLONE_FS)", NULL);
}

/* The kernel shares signal actions only together with memory. */
static void shared_signal_actions_are_found(void **state)
{
	check_family(CLONE_SIGHAND | CLONE_VM, "shares its memory", NULL);
}

static void child_of_vfork_is_refused(void **state)
{
	pid_t parent, child;
	int status, ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	parent = fork();
	if (parent == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) {
			syscall(SYS_write, ready[1], "r", 1);
			for (;;)
				syscall(SYS_pause);
		}
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	child = child_of(parent);
	check_with_parent(child, "its parent");
	kill(child, SIGKILL);
	kill(parent, SIGKILL);
	assert_int_equal(waitpid(parent, &status, 0), parent);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_child_of_fork_shares_nothing),
	        cmocka_unit_test(shared_memory_is_found),
	        cmocka_unit_test(shared_descriptors_are_found),
	        cmocka_unit_test(shared_directories_are_found),
	        cmocka_unit_test(shared_signal_actions_are_found),
	        cmocka_unit_test(child_of_vfork_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
