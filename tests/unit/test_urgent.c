/* Taking precedence: the calling thread does, and nothing that it starts, and only until it gives it up. */
#include "base/urgent.h"

#include "skip.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void *note_policy(void *policy)
{
	*(int *)policy = sched_getscheduler(0);
	return NULL;
}

static void only_the_caller_takes_precedence(void **state)
{
	int before = sched_getscheduler(0), in_thread = -1, status;
	struct sp_usual_turn usual = sp_urgent_begin();
	pthread_t thread;
	pid_t child;

	if (!usual.raised)
		skip_because("there is no privilege for it");
	assert_int_equal(sched_getscheduler(0), SCHED_FIFO | SCHED_RESET_ON_FORK);
	assert_int_equal(pthread_create(&thread, NULL, note_policy, &in_thread), 0);
	pthread_join(thread, NULL);
	assert_int_equal(in_thread, SCHED_OTHER);
	child = fork();
	if (child == 0)
		_exit(sched_getscheduler(0));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, W_EXITCODE(SCHED_OTHER, 0));
	sp_urgent_end(&usual);
	assert_int_equal(sched_getscheduler(0), before);
	sp_urgent_end(&usual);
	assert_int_equal(sched_getscheduler(0), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_caller_takes_precedence)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
