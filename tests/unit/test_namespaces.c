/* Programs that see another system than sealpoint, or whose threads do not share one, are refused. */
#include "unit/facet_fixture.h"

#include "kinds/namespaces.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

static void assert_checked(void (*prepare)(void), int code, const char *words)
{
	struct sp_error err = {};
	struct held held;

	hold_child(&held, prepare);
	assert_int_equal(sp_namespaces_check(&held.process, &err), -code);
	if (!strstr(err.message, words))
		fail_msg("\"%s\" does not say \"%s\"", err.message, words);
	kill_child(&held);
}

static void leave_namespace(void)
{
	must(unshare(CLONE_NEWUTS) == 0);
}

static void leave_mount_namespace(void)
{
	must(unshare(CLONE_NEWNS) == 0);
}

static void leave_time_namespace(void)
{
	must(unshare(CLONE_NEWTIME) == 0);
}

static void other_namespaces_are_refused(void **state)
{
	assert_checked(NULL, 0, "");
	assert_checked(leave_namespace, ENOTSUP, "another UTS namespace");
	assert_checked(leave_mount_namespace, ENOTSUP, "another mount namespace");
	assert_checked(leave_time_namespace, ENOTSUP, "another time namespace");
}

static int unshared;

static void *unshare_and_wait(void *ready)
{
	must(unshare(unshared) == 0);
	pthread_barrier_wait(ready);
	for (;;)
		pause();
	return NULL;
}

static void start_thread(void)
{
	static pthread_barrier_t ready;
	pthread_t thread;

	must(pthread_barrier_init(&ready, NULL, 2) == 0);
	must(pthread_create(&thread, NULL, unshare_and_wait, &ready) == 0);
	pthread_barrier_wait(&ready);
}

static void threads_that_share_less_are_refused(void **state)
{
	unshared = 0;
	assert_checked(start_thread, 0, "");
	unshared = CLONE_FILES;
	assert_checked(start_thread, ENOTSUP, "has descriptors of its own");
	unshared = CLONE_FS;
	assert_checked(start_thread, ENOTSUP, "has directories and umask of its own");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(other_namespaces_are_refused),
	        cmocka_unit_test(threads_that_share_less_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
