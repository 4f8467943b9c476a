/*
 * Remote system calls: a forked child is stopped, asked to do things, and let go, and must not
 * notice. The healing tests end the tracer in the middle, as kill -9 of sealpoint would.
 *
 * not sanitized: the child is a copy of the test, and a sanitizer changes its mappings as it runs
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "proc/maps.h"
#include "proc/status.h"
#include "remote/room.h"
#include "unit/remote_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define ZEROS (32UL << 10)

/* Computes in general and vector registers, and notices at once if one of them changes. */
static void spin(void)
{
	for (;;) {
		uint64_t wrong;

		__asm__ volatile(
		        "mov $0x1111, %%rax; mov $0x2222, %%rbx; mov $0x3333, %%rcx\n"
		        "mov $0x4444, %%rdx; mov $0x5555, %%rsi; mov $0x6666, %%rdi\n"
		        "mov $0x7777, %%r8; mov $0x8888, %%r9; mov $0x9999, %%r10\n"
		        "mov $0xaaaa, %%r11; mov $0xbbbb, %%r12; mov $0xcccc, %%r13\n"
		        "movq %%rax, %%xmm0; movq %%rbx, %%xmm15\n"
		        "mov $20000, %%r14\n"
		        "1: dec %%r14; jnz 1b\n"
		        "xor $0x1111, %%rax; xor $0x2222, %%rbx; xor $0x3333, %%rcx\n"
		        "xor $0x4444, %%rdx; xor $0x5555, %%rsi; xor $0x6666, %%rdi\n"
		        "xor $0x7777, %%r8; xor $0x8888, %%r9; xor $0x9999, %%r10\n"
		        "xor $0xaaaa, %%r11; xor $0xbbbb, %%r12; xor $0xcccc, %%r13\n"
		        "or %%rbx, %%rax; or %%rcx, %%rax; or %%rdx, %%rax; or %%rsi, %%rax\n"
		        "or %%rdi, %%rax; or %%r8, %%rax; or %%r9, %%rax; or %%r10, %%rax\n"
		        "or %%r11, %%rax; or %%r12, %%rax; or %%r13, %%rax\n"
		        "movq %%xmm0, %%rbx; xor $0x1111, %%rbx; or %%rbx, %%rax\n"
		        "movq %%xmm15, %%rbx; xor $0x2222, %%rbx; or %%rbx, %%rax\n"
		        : "=&a"(wrong)
		        :
		        : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
		          "r14", "xmm0", "xmm15", "cc");
		if (wrong)
			_exit(97);
	}
}

static void spinner(int ready)
{
	report(ready);
	spin();
}

static void *spin_in_thread(void *unused)
{
	spin();
	return unused;
}

static void threads(int ready)
{
	pthread_t thread;

	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, spin_in_thread, NULL);
	spinner(ready);
}

/* One thread blocks all signals, as threads of allocators do. */
static void deaf_thread(int ready)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&thread, NULL, spin_in_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	threads(ready);
}

/* Has a page with the code that a sealpoint has left which was killed just now. */
static void not_healed_yet(int ready)
{
	size_t size;
	const void *code = sp_runner_code(&size);
	void *page = mmap(NULL, SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                  -1, 0);

	if (page == MAP_FAILED || size > SP_PAGE_SIZE)
		_exit(94);
	memcpy(page, code, size);
	if (mprotect(page, SP_PAGE_SIZE, PROT_READ | PROT_EXEC))
		_exit(94);
	spinner(ready);
}

static void ignore_signal(int signal)
{
	(void)signal;
}

/* Handlers for all signals that could end a batch: sealpoint must do without. */
static void handles_everything(int ready)
{
	signal(SIGURG, ignore_signal);
	signal(SIGWINCH, ignore_signal);
	signal(SIGCHLD, ignore_signal);
	spinner(ready);
}

/* Lives on under a filter that kills it for anything but rt_sigreturn(2) and what the start needs. */
static void filtered(int ready)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {SP_COUNT_OF(code), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		_exit(94);
	spinner(ready);
}

/* The same in the strict mode, which allows rt_sigreturn(2), read(2) and write(2). */
static void strict(int ready)
{
	report(ready);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		_exit(93);
	spin();
}

static pid_t start_strict(void)
{
	pid_t pid = start(strict);
	bool is_strict = false;

	while (!is_strict) {
		sp_cleanup_free char *status = NULL;

		assert_int_equal(sp_status_read(pid, pid, &status, NULL), 0);
		is_strict = sp_status_is(status, "Seccomp", "1");
	}
	return pid;
}

static struct sp_range own_stack(void)
{
	sp_cleanup_array struct sp_array maps = SP_ARRAY_OF(struct sp_map);

	sp_maps_read(getpid(), &maps, NULL);
	for (size_t i = 0; i < maps.count; i++) {
		const struct sp_map *map = sp_array_at(&maps, i);

		if (map->main_stack)
			return map->range;
	}
	_exit(91);
}

/* Deep in a recursion, so that the lowest page of the main stack is in use. */
static void used_stack(int ready)
{
	volatile char deep[6 << 20];

	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = 1;
	spinner(ready);
}

/*
 * The main thread runs on another stack, and has left an array of zeros at the bottom of the main
 * one, which must stay zeros.
 */
static void on_other_stack(int ready)
{
	struct sp_range stack = own_stack();
	volatile const uint64_t *array = (const uint64_t *)stack.start;

	memset((void *)stack.start, 0, ZEROS);
	report(ready);
	for (;;)
		for (size_t i = 0; i < ZEROS / sizeof(*array); i++)
			if (array[i])
				_exit(92);
}

static void other_stack(int ready)
{
	static char elsewhere[64 << 10] __attribute__((aligned(64)));
	static ucontext_t context;

	getcontext(&context);
	context.uc_stack = (stack_t){.ss_sp = elsewhere, .ss_size = sizeof(elsewhere)};
	makecontext(&context, (void (*)(void))on_other_stack, 1, ready);
	setcontext(&context);
}

/* All mappings, but for where the main stack begins: it may grow. */
static char *maps_of(pid_t pid)
{
	char path[64], *text, *stack;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	assert_int_equal(sp_read_file(AT_FDCWD, path, &text, NULL, NULL), 0);
	stack = strstr(text, "[stack]");
	assert_non_null(stack);
	while (stack > text && stack[-1] != '\n')
		stack--;
	while (*stack != '-')
		*stack++ = 'x';
	return text;
}

/* True while the process has not noticed anything for a number of its scheduling rounds. */
static void runs_on_unharmed(pid_t pid)
{
	int status;

	for (int i = 0; i < 20; i++) {
		struct timespec pause = {.tv_nsec = 1000000};

		assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
		nanosleep(&pause, NULL);
	}
}

static void asks_and_leaves_no_trace(void (*body)(int))
{
	struct sp_process process;
	struct sp_remote remote;
	struct sp_error err = {0};
	int64_t result;
	pid_t pid = start(body);
	char *before = maps_of(pid), *after;

	take(&process, &remote, pid);
	assert_int_equal(
	        sp_remote_call(&remote, &result, &err, "get the pid", SYS_getpid, 0, 0, 0, 0, 0, 0),
	        0);
	assert_int_equal(result, pid);
	for (size_t i = 0; i < process.threads.count; i++) {
		struct sp_thread *thread = sp_process_thread(&process, i);

		assert_int_equal(sp_remote_drive(&remote, thread, &err), 0);
		assert_int_equal(sp_remote_call(&remote, &result, &err, "get the tid", SYS_gettid,
		                                0, 0, 0, 0, 0, 0),
		                 0);
		assert_int_equal(result, thread->tid);
	}
	let_go(&process, &remote);
	runs_on_unharmed(pid);
	after = maps_of(pid);
	assert_string_equal(before, after);
	free(before);
	free(after);
	end(pid);
}

static void sleeping_process_answers(void **state)
{
	asks_and_leaves_no_trace(sleeper);
}

static void busy_process_answers(void **state)
{
	asks_and_leaves_no_trace(spinner);
}

static void every_thread_answers(void **state)
{
	asks_and_leaves_no_trace(threads);
}

static bool is_of_file(pid_t pid, remote_addr address)
{
	sp_cleanup_array struct sp_array maps = SP_ARRAY_OF(struct sp_map);

	assert_int_equal(sp_maps_read(pid, &maps, NULL), 0);
	for (size_t i = 0; i < maps.count; i++) {
		const struct sp_map *map = sp_array_at(&maps, i);

		if (sp_range_contains(map->range, address))
			return map->inode != 0;
	}
	return false;
}

/* It goes away as soon as the one before heals. */
static void code_of_a_killed_sealpoint_is_not_relied_on(void **state)
{
	struct sp_foothold foothold = {0};
	struct sp_error err = {0};
	pid_t pid = start(not_healed_yet);

	assert_int_equal(sp_foothold_find(pid, (struct sp_range){0}, &foothold, &err), 0);
	assert_true(is_of_file(pid, foothold.instruction));
	assert_true(is_of_file(pid, foothold.sigreturn));
	assert_true(is_of_file(pid, foothold.unmap));
	end(pid);
}

/* The others need not stop at every system call for it. */
static void only_deaf_thread_is_driven_call_by_call(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	struct sp_error err = {0};
	pid_t pid = start(deaf_thread);
	unsigned deaf = 0;

	take(&process, &remote, pid);
	for (size_t i = 0; i < process.threads.count; i++) {
		struct sp_thread *thread = sp_process_thread(&process, i);

		assert_int_equal(sp_remote_drive(&remote, thread, &err), 0);
		if (thread->signal_mask & 1ULL << (SIGURG - 1))
			deaf++;
		assert_int_equal(remote.marker_signal,
		                 thread->signal_mask & 1ULL << (SIGURG - 1) ? 0 : SIGURG);
	}
	assert_true(deaf > 0); /* a thread that has just been born is deaf for a moment, too */
	let_go(&process, &remote);
	end(pid);
	asks_and_leaves_no_trace(deaf_thread);
}

static void process_without_marker_answers(void **state)
{
	asks_and_leaves_no_trace(handles_everything);
}

static void process_under_seccomp_answers(void **state)
{
	asks_and_leaves_no_trace(filtered);
}

static void process_with_used_stack_answers(void **state)
{
	asks_and_leaves_no_trace(used_stack);
}

static void process_on_another_stack_answers(void **state)
{
	asks_and_leaves_no_trace(other_stack);
}

static void batch_passes_data_and_reports_the_failed_call(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	struct sp_error err = {0};
	char buffer[16] = "";
	size_t first, second;
	remote_addr room;
	pid_t pid = start(sleeper);

	take(&process, &remote, pid);
	sp_batch_begin(&remote);
	room = sp_batch_room(&remote, sizeof(buffer));
	first = sp_batch_try(&remote, "fail", SYS_close, 12345, 0, 0, 0, 0, 0);
	second = sp_batch_call(&remote, "read a link", SYS_readlink,
	                       sp_batch_string(&remote, "/proc/self"), room, sizeof(buffer) - 1, 0,
	                       0, 0);
	assert_int_equal(sp_batch_run(&remote, &err), 0);
	assert_int_equal(sp_batch_result(&remote, first), -EBADF);
	assert_int_equal(sp_batch_read(&remote, room, buffer, sizeof(buffer), &err), 0);
	assert_int_equal(atoi(buffer), pid);
	assert_int_equal(sp_batch_result(&remote, second), (int64_t)strlen(buffer));

	sp_batch_begin(&remote);
	sp_batch_call(&remote, "close nothing", SYS_close, 12345, 0, 0, 0, 0, 0);
	sp_batch_call(&remote, "never come here", SYS_exit_group, 1, 0, 0, 0, 0, 0);
	assert_int_equal(sp_batch_run(&remote, &err), -EBADF);
	assert_non_null(strstr(err.message, "close nothing"));
	let_go(&process, &remote);
	end(pid);
}

/* Opens a file that leads nowhere; returns its descriptor, or -1. */
static size_t add_open(struct sp_remote *remote)
{
	return sp_batch_call(remote, "open a file", SYS_open, sp_batch_string(remote, "/"), O_PATH,
	                     0, 0, 0, 0);
}

/* What has run is not run again: each open gives the next number. Results of what ran before stay. */
static void batch_goes_on_where_it_was_run(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	struct sp_error err = {0};
	size_t first, second, third;
	int64_t alone;
	pid_t pid = start(sleeper);

	take(&process, &remote, pid);
	sp_batch_begin(&remote);
	first = add_open(&remote);
	assert_int_equal(sp_batch_run(&remote, &err), 0);
	second = add_open(&remote);
	assert_int_equal(sp_remote_call(&remote, &alone, &err, "open another", SYS_open,
	                                sp_batch_string(&remote, "/"), O_PATH, 0, 0, 0, 0),
	                 0);
	third = add_open(&remote);
	assert_int_equal(sp_batch_run(&remote, &err), 0);
	assert_int_equal(sp_batch_run(&remote, &err), 0);
	assert_true(sp_batch_result(&remote, first) >= 0);
	assert_int_equal(sp_batch_result(&remote, second), sp_batch_result(&remote, first) + 1);
	assert_int_equal(alone, sp_batch_result(&remote, first) + 2);
	assert_int_equal(sp_batch_result(&remote, third), alone + 1);
	let_go(&process, &remote);
	end(pid);
}

/* Neither later, by another run, nor with a call that is made alone. */
static void calls_behind_a_failed_one_never_run(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	struct sp_error err = {0};
	int64_t result;
	pid_t pid = start(sleeper);

	take(&process, &remote, pid);
	sp_batch_begin(&remote);
	sp_batch_call(&remote, "close nothing", SYS_close, 12345, 0, 0, 0, 0, 0);
	sp_batch_call(&remote, "never come here", SYS_exit_group, 1, 0, 0, 0, 0, 0);
	assert_int_equal(sp_batch_run(&remote, &err), -EBADF);
	assert_int_equal(sp_batch_run(&remote, &err), 0);
	assert_int_equal(sp_remote_try(&remote, &result, &err, "close nothing", SYS_close, 12345, 0,
	                               0, 0, 0, 0),
	                 0);
	assert_int_equal(result, -EBADF);
	assert_int_equal(sp_remote_call(&remote, NULL, &err, "close nothing again", SYS_close,
	                                12345, 0, 0, 0, 0, 0),
	                 -EBADF);
	assert_non_null(strstr(err.message, "close nothing again"));
	let_go(&process, &remote);
	end(pid);
}

/* --- healing --- */

/*
 * In a process of its own: takes the target, runs `steps` steps of a fixed sequence, and is killed.
 */
static void die_after(pid_t pid, int steps)
{
	pid_t tracer = fork();
	int status;

	if (tracer == 0) {
		struct sp_process process;
		struct sp_remote remote;
		struct sp_error err = {0};

		if (try_to_take(&process, &remote, pid, &err))
			_exit(1);
		for (int i = 0; i < steps; i++)
			if (sp_remote_drive(
			            &remote,
			            sp_process_thread(&process, (size_t)i % process.threads.count),
			            &err) ||
			    sp_remote_call(&remote, NULL, &err, "get the tid", SYS_gettid, 0, 0, 0,
			                   0, 0, 0))
				_exit(2);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(tracer, &status, 0), tracer);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* The target heals itself as soon as it runs, which takes its time on a busy machine. */
static void mappings_become(pid_t pid, const char *expected)
{
	uint64_t deadline = DEADLINE;
	char *maps = maps_of(pid);

	while (strcmp(maps, expected) != 0 && sp_now_ns() < deadline) {
		free(maps);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		maps = maps_of(pid);
	}
	assert_string_equal(maps, expected);
	free(maps);
}

static void heals_without_trace(void (*body)(int))
{
	pid_t pid = start(body);
	char *before = maps_of(pid);

	/* Each killed tracer leaves a used frame: the next one must recognize it. */
	for (int steps = 0; steps < 6; steps++) {
		die_after(pid, steps);
		runs_on_unharmed(pid);
		mappings_become(pid, before);
	}
	free(before);
	end(pid);
}

static void target_heals_when_tracer_is_killed(void **state)
{
	heals_without_trace(spinner);
}

static void threads_heal_when_tracer_is_killed(void **state)
{
	heals_without_trace(threads);
}

/* Without its tracer, nothing may run in the target but what its filter allows. The pages may stay. */
static void survives(pid_t pid)
{
	for (int steps = 0; steps < 6; steps++) {
		die_after(pid, steps);
		runs_on_unharmed(pid);
	}
	end(pid);
}

static void filtered_target_survives_when_tracer_is_killed(void **state)
{
	survives(start(filtered));
}

static void strict_target_survives_when_tracer_is_killed(void **state)
{
	survives(start_strict());
}

static void target_with_used_stack_heals_when_tracer_is_killed(void **state)
{
	heals_without_trace(used_stack);
}

static void target_on_another_stack_heals_when_tracer_is_killed(void **state)
{
	heals_without_trace(other_stack);
}

/* A target that could not run yet since one tracer was killed is taken by the next one. */
static void target_heals_from_two_killed_tracers(void **state)
{
	pid_t pid = start(spinner);
	char *before = maps_of(pid);
	int status;

	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	die_after(pid, 1);
	die_after(pid, 1);
	kill(pid, SIGCONT);
	mappings_become(pid, before);
	runs_on_unharmed(pid);
	free(before);
	end(pid);
}

static void deaf_thread_heals_when_tracer_is_killed(void **state)
{
	heals_without_trace(deaf_thread);
}

static void target_without_marker_heals_when_tracer_is_killed(void **state)
{
	heals_without_trace(handles_everything);
}

/* --- interrupted system calls --- */

static int outcome_fd;

static void tell(long result)
{
	int number = (int)result;

	if (write(outcome_fd, &number, sizeof(number)) != sizeof(number))
		_exit(96);
}

static void reads_pipe(int ready)
{
	int fds[2];
	char byte;

	if (pipe(fds))
		_exit(95);
	report(ready);
	tell(read(fds[0], &byte, 1));
}

static void polls_forever(int ready)
{
	report(ready);
	tell(poll(NULL, 0, -1));
}

static void sleeps_long(int ready)
{
	struct timespec long_time = {.tv_sec = 1000};

	report(ready);
	tell(nanosleep(&long_time, &long_time));
}

/* A thread that waits in a system call must still wait after it was driven, and see no error. */
static void waits_on_after_being_driven(void (*body)(int))
{
	int outcome[2];
	pid_t pid;
	struct pollfd pollfd;

	assert_int_equal(pipe(outcome), 0);
	outcome_fd = outcome[1];
	pid = start(body);
	for (int i = 0; i < 20; i++) {
		struct sp_process process;
		struct sp_remote remote;

		take(&process, &remote, pid);
		let_go(&process, &remote);
	}
	pollfd = (struct pollfd){.fd = outcome[0], .events = POLLIN};
	assert_int_equal(poll(&pollfd, 1, 50), 0);
	end(pid);
	close(outcome[0]);
	close(outcome[1]);
}

static void interrupted_calls_go_on(void **state)
{
	waits_on_after_being_driven(polls_forever);
	waits_on_after_being_driven(sleeps_long);
	waits_on_after_being_driven(reads_pipe);
}

static void stopped_process_stays_stopped(void **state)
{
	struct sp_process process;
	struct sp_remote remote;
	int status;
	pid_t pid = start(sleeper);

	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	take(&process, &remote, pid);
	assert_true(process.group_stopped);
	let_go(&process, &remote);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, WCONTINUED), pid);
	assert_true(WIFCONTINUED(status));
	end(pid);
}

static void refusals_name_the_process(void **state)
{
	struct sp_process process;
	struct sp_error err = {0};
	char expected[64];
	int status;
	pid_t pid;

	assert_int_equal(sp_process_seize(&process, getpid(), DEADLINE, &err), -EINVAL);
	assert_non_null(strstr(err.message, "sealpoint itself"));
	assert_int_equal(sp_process_seize(&process, 2, DEADLINE, &err), -EINVAL);
	assert_non_null(strstr(err.message, "process 2 (kthreadd) is a kernel thread"));

	pid = start(sleeper);
	assert_int_equal(ptrace(PTRACE_SEIZE, pid, 0, 0), 0);
	assert_int_equal(sp_process_seize(&process, pid, DEADLINE, &err), -EBUSY);
	snprintf(expected, sizeof(expected), "already traced by process %d (", getpid());
	assert_non_null(strstr(err.message, expected));
	kill(pid, SIGKILL);
	waitpid(pid, &status, __WALL);
	assert_int_equal(sp_process_seize(&process, pid, DEADLINE, &err), -ESRCH);
}

/* --- limits --- */

static void has_reached_its_limit(int ready)
{
	const struct rlimit limit = {1 << 20, RLIM_INFINITY};

	if (setrlimit(RLIMIT_AS, &limit))
		_exit(90);
	sleeper(ready);
}

static void limit_explains_only_the_want_of_memory(void **state)
{
	pid_t pid = start(has_reached_its_limit);
	struct sp_error err = {0};

	sp_fail(&err, ENOMEM, "cannot map");
	assert_int_equal(sp_room_explain(pid, &err), -ENOMEM);
	assert_non_null(strstr(err.message, "has reached RLIMIT_AS"));
	sp_fail(&err, EPERM, "may not");
	assert_int_equal(sp_room_explain(pid, &err), -EPERM);
	assert_string_equal(err.message, "may not");
	end(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sleeping_process_answers),
	        cmocka_unit_test(busy_process_answers),
	        cmocka_unit_test(every_thread_answers),
	        cmocka_unit_test(only_deaf_thread_is_driven_call_by_call),
	        cmocka_unit_test(code_of_a_killed_sealpoint_is_not_relied_on),
	        cmocka_unit_test(process_without_marker_answers),
	        cmocka_unit_test(process_under_seccomp_answers),
	        cmocka_unit_test(process_with_used_stack_answers),
	        cmocka_unit_test(process_on_another_stack_answers),
	        cmocka_unit_test(batch_passes_data_and_reports_the_failed_call),
	        cmocka_unit_test(batch_goes_on_where_it_was_run),
	        cmocka_unit_test(calls_behind_a_failed_one_never_run),
	        cmocka_unit_test(target_heals_when_tracer_is_killed),
	        cmocka_unit_test(threads_heal_when_tracer_is_killed),
	        cmocka_unit_test(deaf_thread_heals_when_tracer_is_killed),
	        cmocka_unit_test(target_without_marker_heals_when_tracer_is_killed),
	        cmocka_unit_test(target_with_used_stack_heals_when_tracer_is_killed),
	        cmocka_unit_test(target_on_another_stack_heals_when_tracer_is_killed),
	        cmocka_unit_test(target_heals_from_two_killed_tracers),
	        cmocka_unit_test(filtered_target_survives_when_tracer_is_killed),
	        cmocka_unit_test(strict_target_survives_when_tracer_is_killed),
	        cmocka_unit_test(interrupted_calls_go_on),
	        cmocka_unit_test(stopped_process_stays_stopped),
	        cmocka_unit_test(refusals_name_the_process),
	        cmocka_unit_test(limit_explains_only_the_want_of_memory),
	};

	return cmocka_run_group_tests_name("remote", tests, NULL, NULL);
}
