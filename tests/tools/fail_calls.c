/*
 * Lets the system calls of a dump or a restore fail, one in each run, and looks what becomes of it.
 *
 *	fail_calls dump ROUNDS PID HEARTBEAT SCRATCH COMMAND [ARGUMENT...]
 *	fail_calls restore ROUNDS PID SCRATCH COMMAND [ARGUMENT...]
 *
 * The command runs once to count its calls (those of all its threads, from the first that main()
 * makes); then once for each call, or with fewer ROUNDS for evenly spread ones: that call is not
 * executed, and fails with EIO, ENOMEM or EINTR, a different one each round. With more ROUNDS than
 * there are calls, each call fails with each of them. "%" in the arguments is a new name in SCRATCH.
 *
 * The command must end with 0, or with 1 and one sentence, and be able to end. After a dump the
 * target is as it was, and after one that failed nothing is in SCRATCH. After a restore that failed
 * there is no process PID; one that was restored is killed.
 *
 * A line for each failure that was not taken well; the last line sums up. Exit status 1 if there
 * was one.
 */
#include "target.h"

#include <errno.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#define HANG_S 20

static const int errors[] = {EIO, ENOMEM, EINTR};
#define ERRORS (sizeof(errors) / sizeof(errors[0]))

struct run {
	unsigned long call; /* which one fails; 0: none */
	int error;
	unsigned long calls; /* that there were */
	long number;         /* of the one that has failed */
	int status;
	bool hung;
	char said[4096]; /* to standard error */
};

static volatile sig_atomic_t too_long;

static void give_up(int signal)
{
	too_long = 1;
}

static bool dumping;

/* What is asked of a thread that stands and is ours can only fail if the thread is gone. */
static bool ptrace_may_fail(unsigned long long request)
{
	return !dumping || request == PTRACE_SEIZE || request == PTRACE_GETREGSET;
}

/* Not so calls whose failure no program can take, or that do not fail. */
static bool may_fail(const struct user_regs_struct *registers)
{
	switch (registers->orig_rax) {
	case SYS_ptrace:
		return ptrace_may_fail(registers->rdi);
	case SYS_brk: /* tells no error, but the old end */
	case SYS_exit:
	case SYS_exit_group:
	case SYS_rt_sigreturn:
	case SYS_restart_syscall:
	case SYS_execve:
	case SYS_futex: /* the C library aborts, and a wake that is lost is waited for for ever */
	case SYS_wait4: /* that of one's own child */
	case SYS_rseq:
	case SYS_set_robust_list:
	case SYS_getpid:
	case SYS_gettid:
	case SYS_rt_sigprocmask:
	case SYS_sched_yield:
		return false;
	default:
		return true;
	}
}

/* --- one run --- */

static pid_t start(char **command, const char *name, int said)
{
	char *arguments[64] = {NULL};
	pid_t pid;
	int null;

	for (int i = 0; i < 63 && command[i]; i++)
		arguments[i] = strcmp(command[i], "%") == 0 ? (char *)name : command[i];
	pid = fork();
	if (pid < 0)
		err(2, "fork");
	if (pid > 0)
		return pid;
	null = open("/dev/null", O_RDWR);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	close(said);
	close(null);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	execv(arguments[0], arguments);
	err(2, "%s", arguments[0]);
}

static struct user_regs_struct registers_of(pid_t tid)
{
	struct user_regs_struct registers = {0};

	ptrace(PTRACE_GETREGS, tid, NULL, &registers);
	return registers;
}

/* A call is entered: true if it is the one that fails. What is closed is closed, all the same. */
static bool enter_call(struct run *run, pid_t tid)
{
	struct user_regs_struct registers = registers_of(tid);
	long number = (long)registers.orig_rax;

	if ((run->calls == 0 && number != SYS_rt_sigaction) || !may_fail(&registers))
		return false;
	if (++run->calls != run->call)
		return false;
	run->number = number;
	if (number != SYS_close) {
		registers.orig_rax = (unsigned long long)-1;
		ptrace(PTRACE_SETREGS, tid, NULL, &registers);
	}
	return true;
}

static void leave_call(const struct run *run, pid_t tid)
{
	struct user_regs_struct registers = registers_of(tid);

	registers.rax = (unsigned long long)-run->error;
	ptrace(PTRACE_SETREGS, tid, NULL, &registers);
}

static bool is_entry(pid_t tid)
{
	struct __ptrace_syscall_info info;

	return ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) > 0 &&
	       info.op == PTRACE_SYSCALL_INFO_ENTRY;
}

/* What to do about a stop; returns the signal to go on with. */
static int look_at_stop(struct run *run, pid_t tid, int status, pid_t *failing)
{
	int signal = WSTOPSIG(status);

	if (signal == (SIGTRAP | 0x80)) {
		if (is_entry(tid)) {
			if (enter_call(run, tid))
				*failing = tid;
		} else if (tid == *failing) {
			leave_call(run, tid);
			*failing = 0;
		}
		return 0;
	}
	return signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
}

static void follow(struct run *run, pid_t pid)
{
	pid_t failing = 0;
	int status;

	waitpid(pid, &status, 0); /* the stop at exec */
	if (ptrace(PTRACE_SETOPTIONS, pid, NULL,
	           PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) != 0)
		err(2, "PTRACE_SETOPTIONS");
	ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
	too_long = 0;
	alarm(HANG_S);
	for (;;) {
		pid_t stopped = waitpid(-1, &status, __WALL);

		if (stopped < 0 && errno != EINTR)
			err(2, "waitpid");
		if (too_long && !run->hung) {
			run->hung = true;
			kill(pid, SIGKILL);
		}
		if (stopped < 0)
			continue;
		if (WIFSTOPPED(status)) {
			int signal = look_at_stop(run, stopped, status, &failing);

			ptrace(PTRACE_SYSCALL, stopped, NULL, (void *)(intptr_t)signal);
		} else if (stopped == pid) {
			break;
		}
	}
	alarm(0);
	run->status = status;
}

static void run_command(struct run *run, char **command, const char *scratch)
{
	static unsigned long round;
	int said = memfd_create("said", MFD_CLOEXEC);
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s/%lu", scratch, round++);
	follow(run, start(command, name, said));
	run->said[pread(said, run->said, sizeof(run->said) - 1, 0)] = '\0';
	close(said);
}

/* --- what came of it --- */

static bool is_empty(const char *path)
{
	DIR *dir = opendir(path);
	int entries = 0;

	while (dir && readdir(dir))
		entries++;
	if (dir)
		closedir(dir);
	return entries <= 2;
}

static bool is_one_sentence(const char *said)
{
	const char *end = strchr(said, '\n');

	return end && end > said && !end[1];
}

/* Everything was done, and it was only the telling that failed. */
static bool was_done(const struct run *run)
{
	return run->status == 0 || strstr(run->said, "cannot write the answer");
}

/* NULL, or what is wrong with how the command ended. */
static const char *bad_end(const struct run *run)
{
	static char text[64];

	if (run->hung)
		return "it hangs";
	if (WIFSIGNALED(run->status)) {
		snprintf(text, sizeof(text), "it dies of signal %d", WTERMSIG(run->status));
		return text;
	}
	if (WEXITSTATUS(run->status) > 1) {
		snprintf(text, sizeof(text), "exit status %d", WEXITSTATUS(run->status));
		return text;
	}
	if (run->status != 0 && run->number != SYS_write && !is_one_sentence(run->said))
		return "it does not say one sentence";
	return NULL;
}

static const char *bad_dump(const struct run *run, const struct target *target, const char *scratch)
{
	const char *harm = target_wait_unharmed(target);

	if (harm)
		return harm;
	return was_done(run) || is_empty(scratch) ? NULL : "something was left on disk";
}

static bool exists(pid_t pid)
{
	return kill(pid, 0) == 0;
}

static const char *bad_restore(const struct run *run, pid_t pid)
{
	uint64_t deadline = now_ns() + RECOVERY_S * 1000000000ULL;
	bool done = was_done(run);

	if (done && !exists(pid))
		return "nothing was restored";
	if (done)
		kill(pid, SIGKILL);
	while (exists(pid)) {
		waitpid(pid, NULL, WNOHANG | __WALL);
		if (now_ns() > deadline) {
			kill(pid, SIGKILL);
			return done ? "it cannot be killed" : "a process was left";
		}
		sleep_ns(1000000);
	}
	return NULL;
}

/* --- all runs --- */

static const char *scratch_path;

static const char *judge(const struct run *run, const struct target *target)
{
	const char *end = bad_end(run);
	const char *rest =
	        dumping ? bad_dump(run, target, scratch_path) : bad_restore(run, target->pid);

	return end ? end : rest;
}

int main(int argc, char **argv)
{
	static struct target target;
	unsigned long rounds, calls, bad = 0, done = 0, failed = 0;
	struct run run = {0};
	char **command;
	const char *what;

	dumping = argc > 1 && strcmp(argv[1], "dump") == 0;
	if (argc < 6 + dumping)
		errx(2, "usage: fail_calls dump|restore ROUNDS PID [HEARTBEAT] SCRATCH COMMAND...");
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGALRM, &(struct sigaction){.sa_handler = give_up}, NULL);
	rounds = strtoul(argv[2], NULL, 10);
	target.pid = atoi(argv[3]);
	if (dumping)
		target_open(&target, argv[4]);
	scratch_path = argv[4 + dumping];
	command = argv + 5 + dumping;

	run_command(&run, command, scratch_path);
	what = judge(&run, &target);
	if (what || run.status != 0)
		errx(2, "the command fails when no call does: %s; %s", what ? what : "", run.said);
	calls = run.calls;
	if (rounds > calls * ERRORS)
		rounds = calls * ERRORS;
	for (unsigned long round = 0; round < rounds; round++) {
		remove_below(scratch_path);
		run = (struct run){
		        .call = 1 + (rounds > calls ? round / ERRORS : round * calls / rounds),
		        .error = errors[round % ERRORS],
		};
		run_command(&run, command, scratch_path);
		what = judge(&run, &target);
		failed += run.calls >= run.call; /* a run may have fewer than were counted */
		done += was_done(&run);
		if (!what)
			continue;
		bad++;
		printf("call %lu (system call %ld) fails with %s: %s; %s", run.call, run.number,
		       strerrorname_np(run.error), what, run.said[0] ? run.said : "\n");
		if (dumping && !exists(target.pid))
			return 1;
	}
	printf("%lu of %lu calls failed, %lu times it was done all the same, %lu not taken well\n",
	       failed, calls, done, bad);
	return bad > 0 || failed == 0;
}
