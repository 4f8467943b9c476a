/*
 * Seizing processes that do not hold still for it: threads come and go, programs call execve(2), get
 * signals, and are killed while they are held. Each is either seized whole or not at all, and nothing
 * that happens to it meanwhile is lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proc/maps.h"
#include "proc/stat.h"
#include "unit/remote_target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define EXEC_AGAIN "exec-again"

/* --- threads that come and go --- */

static atomic_int alive;

static void *ends_at_once(void *unused)
{
	atomic_fetch_sub(&alive, 1);
	return unused;
}

static void makes_threads(int ready)
{
	pthread_attr_t detached;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	report(ready);
	for (;;) {
		pthread_t thread;

		while (atomic_load(&alive) > 100)
			sched_yield();
		atomic_fetch_add(&alive, 1);
		if (pthread_create(&thread, &detached, ends_at_once, NULL))
			_exit(98);
	}
}

/* Seizes the process many times; every time all its threads must stand. */
static void is_seized_whole(pid_t pid, int times)
{
	for (int i = 0; i < times; i++) {
		struct sp_process process;
		struct sp_error err = {0};

		if (sp_process_seize(&process, pid, DEADLINE, &err))
			fail_msg("seizure %d: %s", i, err.message);
		for (size_t t = 0; t < process.threads.count; t++)
			assert_true(sp_process_thread(&process, t)->stopped);
		assert_int_equal(sp_process_leader(&process)->tid, pid);
		sp_process_forget(&process);
	}
}

static void threads_that_end_meanwhile_are_no_obstacle(void **state)
{
	pid_t pid = start(makes_threads);

	is_seized_whole(pid, 200);
	end(pid);
}

/* --- the vDSO --- */

/* About half of the time in the vDSO. */
static void *asks_for_the_time(void *unused)
{
	struct timespec now;

	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		for (volatile int i = 0; i < 50; i++)
			;
	}
	return unused;
}

static void asks_for_the_time_in_threads(int ready)
{
	pthread_t thread;

	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, asks_for_the_time, NULL);
	report(ready);
	asks_for_the_time(NULL);
}

static struct sp_range vdso_of(pid_t pid)
{
	struct sp_array maps = SP_ARRAY_OF(struct sp_map);
	struct sp_range range = {0};

	assert_int_equal(sp_maps_read(pid, &maps, NULL), 0);
	for (size_t i = 0; i < maps.count; i++) {
		const struct sp_map *map = sp_array_at(&maps, i);

		if (map->vdso)
			range = map->range;
	}
	sp_array_release(&maps);
	return range;
}

/* As long as threads are given to leave it (seize.c). On a busy machine one may not get to run in that time. */
#define PATIENCE_NS (SP_NS_PER_S / 5)

static void no_thread_is_held_in_the_vdso_before_time_is_up(void **state)
{
	pid_t pid = start(asks_for_the_time_in_threads);
	struct sp_range vdso = vdso_of(pid);

	for (int i = 0; i < 30; i++) {
		struct sp_process process;
		struct sp_error err = {0};
		uint64_t begin = sp_now_ns();
		unsigned inside = 0;

		if (sp_process_seize(&process, pid, DEADLINE, &err))
			fail_msg("seizure %d: %s", i, err.message);
		assert_int_equal(process.threads.count, 4);
		for (size_t t = 0; t < process.threads.count; t++)
			inside += sp_range_contains(
			        vdso, sp_instruction_pointer(
			                      &sp_process_thread(&process, t)->raw.general));
		assert_true(inside == 0 || sp_now_ns() - begin >= PATIENCE_NS);
		sp_process_forget(&process);
	}
	end(pid);
}

/* --- execve(2) meanwhile --- */

static void *spins(void *unused)
{
	for (;;)
		;
	return unused;
}

static void exec_again(void)
{
	execl("/proc/self/exe", "test_seize", EXEC_AGAIN, NULL);
	_exit(97);
}

static void *execs(void *unused)
{
	exec_again();
	return unused;
}

/* Threads are ended by execve(2), which the main thread and another one call by turns. */
static void exec_with_threads(void)
{
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == 1)
		_exit(96); /* the test has ended before that */
	pthread_create(&thread, NULL, spins, NULL);
	pthread_create(&thread, NULL, spins, NULL);
	if (sp_now_ns() % 2)
		exec_again();
	pthread_create(&thread, NULL, execs, NULL);
	for (;;)
		pause();
}

static void execs_for_ever(int ready)
{
	report(ready);
	exec_again();
}

static void program_that_execs_is_seized(void **state)
{
	pid_t pid = start(execs_for_ever);

	is_seized_whole(pid, 300);
	end(pid);
}

/* --- ends --- */

static void has_threads(int ready)
{
	pthread_t thread;

	pthread_create(&thread, NULL, spins, NULL);
	pthread_create(&thread, NULL, spins, NULL);
	sleeper(ready);
}

static pid_t kill_soon(pid_t pid)
{
	pid_t killer = fork();

	if (killer)
		return killer;
	poll(NULL, 0, 50);
	kill(pid, SIGKILL);
	_exit(0);
}

/* The end of a leader is not reported before the other threads are collected: it must be noticed
 * all the same. */
static void killed_process_is_noticed(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	struct sp_error err = {0};
	pid_t pid = start(has_threads), killer;

	take(&process, &remote, pid);
	assert_false(sp_process_is_ending(&process));
	killer = kill_soon(pid);
	assert_int_equal(sp_remote_call(&remote, NULL, &err, "wait", SYS_poll, 0, 0, -1, 0, 0, 0),
	                 -ESRCH);
	assert_true(sp_process_is_ending(&process));
	sp_remote_close(&remote, NULL);
	sp_process_forget(&process);
	waitpid(killer, NULL, 0);
}

static int main_thread_pipe;

static void *outlives_the_main_thread(void *unused)
{
	struct sp_stat stat;

	while (!sp_stat_read(getpid(), getpid(), &stat, NULL) && stat.state != 'Z')
		sched_yield();
	report(main_thread_pipe);
	for (;;)
		pause();
	return unused;
}

static void ends_its_main_thread(int ready)
{
	pthread_t thread;

	main_thread_pipe = ready;
	pthread_create(&thread, NULL, outlives_the_main_thread, NULL);
	syscall(SYS_exit, 0);
}

static void process_without_main_thread_is_driven_by_another(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	struct sp_error err = {0};
	pid_t pid = start(ends_its_main_thread);
	int64_t thread;

	take(&process, &remote, pid);
	assert_int_equal(process.threads.count, 1);
	assert_true(sp_process_leader_has_ended(&process));
	assert_false(sp_process_is_ending(&process));
	assert_false(sp_remote_call(&remote, &thread, &err, "ask who it is", SYS_gettid, 0, 0, 0, 0,
	                            0, 0));
	assert_int_equal(thread, sp_process_living(&process));
	assert_int_not_equal(thread, pid);
	assert_false(sp_remote_close(&remote, &err));
	sp_process_forget(&process);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* --- waits that nothing interrupts --- */

static void waits_for_its_vfork_child(int ready)
{
	report(ready);
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		poll(NULL, 0, 1000000);
		_exit(0);
	}
	for (;;)
		pause();
}

/* Time enough to be stopped, and then to be let go, is bounded. */
static void unstoppable_process_is_refused_in_time(void **state)
{
	struct sp_process process;
	struct sp_error err = {0};
	pid_t pid = start(waits_for_its_vfork_child);
	struct sp_stat stat;

	while (!sp_stat_read(pid, pid, &stat, NULL) && stat.state != 'D')
		sched_yield();
	assert_int_equal(sp_process_seize(&process, pid, sp_now_ns() + 100000000, &err),
	                 -ETIMEDOUT);
	assert_non_null(strstr(err.message, "vfork child"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, __WALL);
}

/* --- stops and continues meanwhile --- */

static bool is_stopped(pid_t pid)
{
	siginfo_t info = {0};

	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT), 0);
	return info.si_pid == pid;
}

static void becomes_stopped(pid_t pid)
{
	uint64_t deadline = DEADLINE;

	while (!is_stopped(pid) && sp_now_ns() < deadline)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_true(is_stopped(pid));
}

static void stop_meanwhile_takes_effect_afterwards(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	pid_t pid = start(has_threads);
	int status;

	take(&process, &remote, pid);
	kill(pid, SIGSTOP);
	let_go(&process, &remote);
	becomes_stopped(pid);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, WCONTINUED), pid);
	assert_true(WIFCONTINUED(status));
	end(pid);
}

/* A stop that was taken back while the process was held must not take effect afterwards. */
static void continue_meanwhile_takes_a_stop_back(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	pid_t pid = start(has_threads);

	take(&process, &remote, pid);
	kill(pid, SIGSTOP);
	assert_int_equal(
	        sp_remote_call(&remote, NULL, NULL, "get the pid", SYS_getpid, 0, 0, 0, 0, 0, 0),
	        0);
	kill(pid, SIGCONT);
	let_go(&process, &remote);
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	assert_false(is_stopped(pid));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* --- watching --- */

static pid_t word; /* which the kernel sets to 0 when the thread ends */

static void ignore_signal(int signal)
{
	(void)signal;
}

static int waits_for_signal_and_ends(void *unused)
{
	sigset_t set;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigwait(&set, &signal);
	syscall(SYS_exit, 0);
	return 0;
}

/* Blocked for the thread that waits; the main thread takes SIGUSR2 and goes on. */
static void has_thread_that_ends(int ready)
{
	static uint8_t stack[64 << 10] __attribute__((aligned(16)));
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGUSR2, ignore_signal);
	if (clone(waits_for_signal_and_ends, stack + sizeof(stack),
	          CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
	                  CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
	          NULL, &word, NULL, &word) < 0)
		_exit(97);
	report(ready);
	for (;;)
		pause();
}

struct told {
	pid_t pid;
	unsigned times;
	pid_t word;
};

static void note_word(void *context)
{
	struct told *told = context;

	told->times++;
	sp_process_read(told->pid, (uintptr_t)&word, &told->word, sizeof(told->word), NULL);
}

static bool word_is(pid_t pid, pid_t value)
{
	pid_t now;

	return sp_process_read(pid, (uintptr_t)&word, &now, sizeof(now), NULL) == 0 && now == value;
}

static void watch(struct sp_process *process, pid_t pid, struct told *told)
{
	struct sp_error err = {0};

	*told = (struct told){.pid = pid};
	if (sp_process_watch(process, pid, &err))
		fail_msg("%s", err.message);
	process->ending = note_word;
	process->ending_context = told;
}

/* What it leaves word of in its memory is not written yet. */
static void watcher_is_told_before_a_thread_ends(void **state)
{
	pid_t pid = start(has_thread_that_ends);
	struct sp_process process;
	struct sp_error err = {0};
	struct told told;
	int64_t tid;

	watch(&process, pid, &told);
	kill(pid, SIGUSR2);
	assert_true(sp_process_attend(&process));
	assert_int_equal(told.times, 0);
	tid = sp_process_thread(&process, 1)->tid;
	kill(pid, SIGUSR1);
	while (!told.times)
		assert_true(sp_process_attend(&process));
	assert_int_equal(told.word, tid);
	while (!word_is(pid, 0))
		assert_true(sp_process_attend(&process));
	assert_int_equal(sp_process_stop(&process, DEADLINE, &err), 0);
	assert_int_equal(process.threads.count, 1);
	sp_process_forget(&process);
	end(pid);
}

/* While the process is being stopped, too; let go, the thread ends as it would have. */
static void thread_that_ends_last_is_told_of(void **state)
{
	for (int stops = 0; stops < 2; stops++) {
		pid_t pid = start(has_thread_that_ends);
		struct sp_process process;
		struct sp_error err = {0};
		struct told told;

		watch(&process, pid, &told);
		kill(pid, SIGUSR1);
		if (stops) {
			assert_int_equal(sp_process_stop(&process, DEADLINE, &err), 0);
			assert_int_equal(told.times, word_is(pid, 0));
		}
		sp_process_forget(&process);
		assert_true(!told.times || told.word);
		while (!word_is(pid, 0))
			sched_yield();
		end(pid);
	}
}

static void watched_process_that_makes_threads_is_stopped(void **state)
{
	pid_t pid = start(makes_threads);
	unsigned watched = 0;

	for (int i = 0; i < 20; i++) {
		struct sp_process process;
		struct sp_error err = {0};

		if (sp_process_watch(&process, pid, &err))
			continue;
		watched++;
		for (int j = 0; j < 100; j++)
			assert_true(sp_process_attend(&process));
		assert_int_equal(sp_process_stop(&process, DEADLINE, &err), 0);
		for (size_t j = 0; j < process.threads.count; j++)
			assert_true(sp_process_thread(&process, j)->stopped);
		sp_process_forget(&process);
	}
	assert_true(watched > 0);
	end(pid);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(threads_that_end_meanwhile_are_no_obstacle),
	        cmocka_unit_test(no_thread_is_held_in_the_vdso_before_time_is_up),
	        cmocka_unit_test(program_that_execs_is_seized),
	        cmocka_unit_test(killed_process_is_noticed),
	        cmocka_unit_test(process_without_main_thread_is_driven_by_another),
	        cmocka_unit_test(unstoppable_process_is_refused_in_time),
	        cmocka_unit_test(stop_meanwhile_takes_effect_afterwards),
	        cmocka_unit_test(continue_meanwhile_takes_a_stop_back),
	        cmocka_unit_test(watcher_is_told_before_a_thread_ends),
	        cmocka_unit_test(thread_that_ends_last_is_told_of),
	        cmocka_unit_test(watched_process_that_makes_threads_is_stopped),
	};

	if (argc == 2 && !strcmp(argv[1], EXEC_AGAIN))
		exec_with_threads();
	return cmocka_run_group_tests_name("seize", tests, NULL, NULL);
}
