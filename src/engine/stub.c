/* Makes stub processes and their threads: see stub.h. */
#include "engine/stub.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "proc/stat.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define FREE_ID_NS (2 * SP_NS_PER_S)
#define FREE_ID_PAUSE_NS 500000
#define END_NS (5 * SP_NS_PER_S)
#define END_PAUSE_NS 100000

/*
 * For a clone that found its id taken: waits a moment and returns true if another attempt may
 * succeed. The kernel gives the id of an ended task free some time after the task has disappeared
 * and its parent has collected it; a process that is restored as soon as its predecessor is gone
 * may well be too early. An id that somebody has, or that stays the id of a group or session of
 * other processes, is taken.
 */
static bool id_may_become_free(pid_t tid, uint64_t deadline_ns)
{
	struct sp_stat stat;

	if (sp_now_ns() >= deadline_ns || !sp_stat_read(tid, tid, &stat, NULL))
		return false;
	nanosleep(&(struct timespec){.tv_nsec = FREE_ID_PAUSE_NS}, NULL);
	return true;
}

static int refuse_clone(pid_t tid, int code, struct sp_error *err)
{
	if (code == EEXIST)
		return sp_fail(err, EEXIST,
		               "process id %d is taken, by a process that began only now or as the "
		               "id of a process group or session; end those (ps -eo "
		               "pid,pgid,sid,comm), or restore in a new pid namespace (unshare "
		               "--pid --fork --mount-proc sealpoint restore ...)",
		               tid);
	if (code == EPERM)
		return sp_fail(err, EPERM,
		               "no permission to choose process id %d; run as root (or with "
		               "CAP_CHECKPOINT_RESTORE), see \"sealpoint check\"",
		               tid);
	return sp_fail_errno(err, code, "cannot make a process with id %d", tid);
}

/*
 * The copy of sealpoint: it waits, with all signals blocked, until it is driven. It ends with
 * sealpoint, which may be gone before the kernel has been told to see to that.
 */
static __attribute__((noreturn)) void wait_to_be_driven(pid_t sealpoint, bool sibling)
{
	const struct timespec look = {.tv_nsec = 10 * SP_NS_PER_MS};

	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (!sibling && syscall(SYS_getppid) != sealpoint)
		syscall(SYS_exit_group, 1);
	/* The end of one who is not its parent it has to see for itself. */
	while (syscall(SYS_kill, sealpoint, 0) == 0)
		syscall(SYS_nanosleep, &look, NULL);
	syscall(SYS_exit_group, 1);
	__builtin_unreachable();
}

static int clone_process(pid_t pid, bool sibling, struct sp_error *err)
{
	struct clone_args args = {
	        .flags = sibling ? CLONE_PARENT : 0,
	        .exit_signal = sibling ? 0 : SIGCHLD, /* a sibling has ours */
	        .set_tid = (uint64_t)&pid,
	        .set_tid_size = 1,
	};
	uint64_t deadline = sp_now_ns() + FREE_ID_NS;
	pid_t sealpoint = getpid();
	sigset_t all, before;
	long got;
	int code;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	do {
		got = syscall(SYS_clone3, &args, sizeof(args));
		code = errno;
	} while (got < 0 && code == EEXIST && id_may_become_free(pid, deadline));
	if (got == 0)
		wait_to_be_driven(sealpoint, sibling);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return got < 0 ? refuse_clone(pid, code, err) : 0;
}

/* Waits for the first stop of a thread that is seized, and reads what it stands with. */
static int wait_first_stop(struct sp_thread *thread, struct sp_error *err)
{
	int status;

	if (waitpid(thread->tid, &status, __WALL) != thread->tid || !WIFSTOPPED(status))
		return sp_fail(err, ESRCH, "thread %d ended before it began", thread->tid);
	thread->stopped = true;
	return sp_registers_get(thread->tid, &thread->raw, err);
}

static int seize_process(struct sp_process *process, struct sp_error *err)
{
	struct sp_thread *leader = sp_process_add_thread(process, process->pid);

	if (ptrace(PTRACE_SEIZE, process->pid, 0, PTRACE_O_EXITKILL) < 0 ||
	    ptrace(PTRACE_INTERRUPT, process->pid, 0, 0) < 0)
		return sp_fail_errno(err, errno, "cannot trace the stub process %d", process->pid);
	process->pidfd = pidfd_open(process->pid, 0);
	if (process->pidfd < 0)
		return sp_fail_errno(err, errno, "cannot open the stub process %d", process->pid);
	return wait_first_stop(leader, err);
}

/*
 * The stub has sealpoint's own code mapped: the system call instruction of the code that is copied.
 */
static remote_addr own_instruction(void)
{
	size_t size;
	const void *code = sp_runner_code(&size);

	return (remote_addr)memmem(code, size, sp_pattern_syscall.bytes, sp_pattern_syscall.size);
}

static remote_addr own_code(void)
{
	size_t size;

	return (remote_addr)sp_runner_code(&size);
}

int sp_stub_start_process(struct sp_process *process, struct sp_remote *remote, pid_t pid,
                          remote_addr code, bool sibling, struct sp_error *err)
{
	int rc;

	*process = (struct sp_process){
	        .pid = pid,
	        .pidfd = -1,
	        .threads = SP_ARRAY_OF(struct sp_thread *),
	};
	rc = clone_process(pid, sibling, err);
	if (rc)
		return rc;
	rc = seize_process(process, err);
	if (!rc)
		rc = sp_remote_open_stub(remote, process, own_instruction(), code, err);
	/* Sealpoint's own code will be unmapped, and its copy will not. */
	remote->foothold.instruction += code - own_code();
	if (!rc)
		rc = sp_remote_call(remote, NULL, err, "reset the parent-death signal", SYS_prctl,
		                    PR_SET_PDEATHSIG, 0, 0, 0, 0, 0);
	if (rc) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, __WALL);
	}
	return rc;
}

/* Lets the driver clone what `args` says, with this id. */
static int clone_remotely(struct sp_remote *remote, const char *what, struct clone_args args,
                          pid_t tid, struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + FREE_ID_NS;
	remote_addr remote_args;
	int64_t result;
	int rc;

	sp_batch_begin(remote);
	args.set_tid = sp_batch_put(remote, &tid, sizeof(tid));
	args.set_tid_size = 1;
	remote_args = sp_batch_put(remote, &args, sizeof(args));
	do
		rc = sp_remote_try(remote, &result, err, what, SYS_clone3, remote_args,
		                   sizeof(args), 0, 0, 0, 0);
	while (!rc && result == -EEXIST && id_may_become_free(tid, deadline));
	if (rc)
		return rc;
	return result < 0 ? refuse_clone(tid, (int)-result, err) : 0;
}

int sp_stub_add_thread(struct sp_remote *remote, pid_t tid, struct sp_error *err)
{
	const struct clone_args args = {
	        .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
	                 CLONE_SYSVSEM,
	};
	int rc = clone_remotely(remote, "clone a thread", args, tid, err);

	return rc ? rc : wait_first_stop(sp_process_add_thread(remote->process, tid), err);
}

/* The kernel has seized it for us as it has its parent, with the same options. */
int sp_stub_add_process(struct sp_remote *parent, struct sp_process *process,
                        struct sp_remote *remote, pid_t pid, uint64_t flags, int exit_signal,
                        struct sp_error *err)
{
	/* A brother has the exit signal of the one who clones it. */
	const struct clone_args args = {
	        .flags = flags,
	        .exit_signal = flags & CLONE_PARENT ? 0 : (uint64_t)exit_signal,
	};
	int rc = clone_remotely(parent, "clone a process", args, pid, err);

	if (rc)
		return rc;
	*process = (struct sp_process){
	        .pid = pid,
	        .pidfd = pidfd_open(pid, 0),
	        .threads = SP_ARRAY_OF(struct sp_thread *),
	};
	if (process->pidfd < 0) {
		kill(pid, SIGKILL);
		return sp_fail_errno(err, errno, "cannot open the stub process %d", pid);
	}
	rc = wait_first_stop(sp_process_add_thread(process, pid), err);
	return rc ? rc : sp_remote_inherit(remote, process, parent, err);
}

void sp_stub_outlive(const struct sp_process *process)
{
	for (size_t i = 0; i < process->threads.count; i++)
		ptrace(PTRACE_SETOPTIONS, sp_process_thread(process, i)->tid, 0, 0);
}

/* The last call that a stub makes: nobody drives it any more then. */
static struct sp_call last_call(pid_t pid, uint32_t wait_status)
{
	uint64_t signal = wait_status & 0x7f;

	if (signal)
		return (struct sp_call){.number = SYS_kill, .args = {(uint64_t)pid, signal}};
	return (struct sp_call){.number = SYS_exit_group, .args = {wait_status >> 8 & 0xff}};
}

/* A stub has handlers of sealpoint's, and leaves no core file. */
static int make_mortal(struct sp_remote *remote, int signal, struct sp_error *err)
{
	const struct rlimit no_core = {0, 0};
	const uint64_t default_action[4] = {0};

	sp_batch_begin(remote);
	sp_batch_call(remote, "forbid core files", SYS_prlimit64, 0, RLIMIT_CORE,
	              sp_batch_put(remote, &no_core, sizeof(no_core)), 0, 0, 0);
	if (signal != SIGKILL)
		sp_batch_call(remote, "set a signal action", SYS_rt_sigaction, (uint64_t)signal,
		              sp_batch_put(remote, default_action, sizeof(default_action)), 0,
		              sizeof(uint64_t), 0, 0);
	return sp_batch_run(remote, err);
}

int sp_stub_end(struct sp_process *process, struct sp_remote *remote, uint32_t wait_status,
                struct sp_error *err)
{
	const struct sp_call call = last_call(process->pid, wait_status);
	int rc = wait_status & 0x7f ? make_mortal(remote, (int)(wait_status & 0x7f), err) : 0;

	if (!rc)
		rc = sp_remote_leave(remote, &call, err);
	if (!rc)
		sp_process_forget(process);
	return rc;
}

/* Has it begun to end? One of a process that is to be stopped does so when that goes on. */
static bool has_left(const struct sp_process *process, pid_t tid)
{
	struct sp_stat stat;

	return sp_stat_read(process->pid, tid, &stat, NULL) || sp_stat_has_ended(&stat) ||
	       stat.state == 'T';
}

int sp_stub_end_thread(struct sp_remote *remote, struct sp_thread *thread, uint32_t status,
                       struct sp_error *err)
{
	const struct sp_call call = {.number = SYS_exit, .args = {status >> 8 & 0xff}};
	struct user_regs_struct general = thread->raw.general;
	uint64_t deadline = sp_now_ns() + END_NS, all = ~0ULL;

	sp_general_run_call(&general, remote->foothold.instruction, 0, &call);
	if (ptrace(PTRACE_SETSIGMASK, thread->tid, sizeof(all), &all) < 0 ||
	    sp_general_set(thread->tid, &general, NULL) ||
	    ptrace(PTRACE_DETACH, thread->tid, 0, 0) < 0)
		return sp_fail_errno(err, errno, "cannot end thread %d", thread->tid);
	while (!has_left(remote->process, thread->tid)) {
		if (sp_now_ns() > deadline)
			return sp_fail(err, ETIMEDOUT, "thread %d does not end", thread->tid);
		nanosleep(&(struct timespec){.tv_nsec = END_PAUSE_NS}, NULL);
	}
	return 0;
}
