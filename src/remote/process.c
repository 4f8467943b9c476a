/*
 * Seizing a process: every thread stopped by ptrace, none of them harmed if we die (process.h).
 *
 * PTRACE_SEIZE and PTRACE_INTERRUPT do not send signals, so the target and its parent see nothing.
 * A thread that was about to take a signal takes it first (the kernel builds the handler's frame)
 * and stops behind that. A thread that was created meanwhile is found when the task list is read
 * again.
 */
#include "remote/process.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/io.h"
#include "base/kernel_abi.h"
#include "proc/capability.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

struct sp_thread *sp_process_thread(const struct sp_process *process, size_t index)
{
	return sp_array_pointer(&process->threads, index);
}

struct sp_thread *sp_process_add_thread(struct sp_process *process, pid_t tid)
{
	struct sp_thread *thread = sp_alloc_zeroed(1, sizeof(*thread));

	thread->tid = tid;
	sp_array_append(&process->threads, &thread);
	return thread;
}

/* --- refusals --- */

/* A number of a status text, or `missing` if the text has no such line. */
static long status_number(const char *status, const char *name, long missing)
{
	uint64_t value;

	return sp_status_number(status, name, 10, &value, NULL) ? missing : (long)value;
}

static int refuse_traced(pid_t pid, long tracer, struct sp_error *err)
{
	return sp_fail(err, EBUSY,
	               "%s is already traced by %s (a debugger, strace or another dump): end that "
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
	               "no permission to trace %s: run as root (or with CAP_SYS_PTRACE), see "
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
		               "it: dump a program that it has started",
		               sp_process_name(pid).text);
	if (sp_status_numbers(status, "NSpid", numbers, sizeof(numbers) / sizeof(numbers[0]),
	                      &count, NULL) ||
	    count == 1)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "%s lives in a pid namespace of its own (a container), where it is process "
	               "%u: run sealpoint in there (nsenter --target %d --pid --mount sealpoint "
	               "...)",
	               sp_process_name(pid).text, numbers[count - 1], pid);
}

int sp_process_check(pid_t pid, struct sp_error *err)
{
	sp_cleanup_free char *status = NULL;
	sp_cleanup_close int maps = -1;
	long tgid, tracer;

	if (sp_status_read(pid, pid, &status, NULL))
		return sp_fail(err, ESRCH, "there is no process %d", pid);
	tgid = status_number(status, "Tgid", pid);
	tracer = status_number(status, "TracerPid", 0);
	if (tgid != pid)
		return sp_fail(err, EINVAL, "%d is a thread of %s: name the process", pid,
		               sp_process_name((pid_t)tgid).text);
	if (pid == getpid())
		return sp_fail(err, EINVAL, "process %d is sealpoint itself", pid);
	if (sp_status_is(status, "State", "Z (zombie)"))
		return sp_fail(err, ESRCH,
		               "%s has ended (its parent has not collected its status yet)",
		               sp_process_name(pid).text);
	if (status_number(status, "VmSize", -1) < 0)
		return sp_fail(err, EINVAL, "%s is a kernel thread: only programs can be saved",
		               sp_process_name(pid).text);
	if (tracer)
		return refuse_traced(pid, tracer, err);
	maps = sp_proc_open(pid, "maps", O_RDONLY, NULL);
	if (maps == -EACCES || maps == -EPERM)
		return refuse_permission(pid, err);
	return check_pid_namespace(pid, status, err);
}

static int refuse_seize(pid_t pid, pid_t tid, int code, struct sp_error *err)
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

/* Names a thread that does not stop, and what it waits for. */
static int refuse_unstoppable(pid_t pid, pid_t tid, struct sp_error *err)
{
	static const char *const why = "cannot be stopped in time";
	sp_cleanup_free char *call = NULL, *wchan = NULL;
	long number = -1;

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

/* --- stopping --- */

static bool is_known(const struct sp_process *process, pid_t tid)
{
	for (size_t i = 0; i < process->threads.count; i++)
		if (sp_process_thread(process, i)->tid == tid)
			return true;
	return false;
}

static void forget_thread(struct sp_process *process, size_t index)
{
	struct sp_thread **threads = process->threads.items;

	free(threads[index]);
	process->threads.count--;
	memmove(&threads[index], &threads[index + 1],
	        (process->threads.count - index) * sizeof(*threads));
}

/* Seizes and interrupts one thread. A thread that has just ended is no error. */
static int seize_thread(struct sp_process *process, pid_t tid, struct sp_error *err)
{
	if (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0) {
		if (errno == ESRCH && tid != process->pid)
			return 0;
		return refuse_seize(process->pid, tid, errno, err);
	}
	if (!process->stopped_ns)
		process->stopped_ns = sp_now_ns();
	sp_process_add_thread(process, tid);
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 && errno != ESRCH)
		return sp_fail_errno(err, errno, "cannot interrupt thread %d of process %d", tid,
		                     process->pid);
	return 0;
}

/* Seizes what the task list shows and we do not know. Returns how many were found, or an error. */
static int seize_new_threads(struct sp_process *process, struct sp_error *err)
{
	sp_cleanup_dir DIR *tasks = NULL;
	struct dirent *entry;
	char path[64];
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", process->pid);
	tasks = opendir(path);
	if (!tasks)
		return sp_fail(err, ESRCH, "process %d has ended", process->pid);
	while ((entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);
		int rc;

		if (tid <= 0 || is_known(process, tid))
			continue;
		rc = seize_thread(process, tid, err);
		if (rc)
			return rc;
		found++;
	}
	return found;
}

static bool is_stop_signal(int signal)
{
	return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/*
 * What a wait status means for the stopping: 1 the thread stands, 0 it does not yet, -1 it has
 * ended. A signal that is about to be delivered goes its way; the interrupt takes effect behind it.
 */
static int judge_stop(struct sp_process *process, struct sp_thread *thread, int status)
{
	if (!WIFSTOPPED(status))
		return -1;
	if (status >> 16 == PTRACE_EVENT_STOP) {
		if (is_stop_signal(WSTOPSIG(status)))
			process->group_stopped = true;
		return 1;
	}
	ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0);
	ptrace(PTRACE_CONT, thread->tid, 0, WSTOPSIG(status));
	return 0;
}

/* Waits briefly between two looks at a thread: not at all at first, then longer. */
static void wait_a_little(unsigned *round)
{
	struct timespec pause = {.tv_nsec = 50000};

	if (++*round < 20)
		sched_yield();
	else
		nanosleep(&pause, NULL);
}

/* Waits until the thread at `index` stands; it is forgotten if it has ended instead. */
static int wait_thread(struct sp_process *process, size_t index, uint64_t deadline_ns,
                       struct sp_error *err)
{
	struct sp_thread *thread = sp_process_thread(process, index);
	unsigned round = 0;

	for (;;) {
		int status, verdict = 0;
		pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);

		if (got == thread->tid)
			verdict = judge_stop(process, thread, status);
		if (verdict > 0) {
			thread->stopped = true;
			return 0;
		}
		if (verdict < 0 || (got < 0 && errno == ECHILD)) {
			if (thread->tid == process->pid)
				return sp_fail(err, ESRCH, "process %d has ended", process->pid);
			forget_thread(process, index);
			return 0;
		}
		if (sp_now_ns() > deadline_ns)
			return refuse_unstoppable(process->pid, thread->tid, err);
		if (sp_interrupt_check(err))
			return -EINTR;
		wait_a_little(&round);
	}
}

static int stop_all(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err)
{
	size_t stopped = 0;
	int found;

	while ((found = seize_new_threads(process, err)) > 0)
		while (stopped < process->threads.count) {
			size_t before = process->threads.count;
			int rc = wait_thread(process, stopped, deadline_ns, err);

			if (rc)
				return rc;
			if (process->threads.count == before)
				stopped++;
		}
	return found;
}

/* --- reading what stands --- */

/* Layout of struct rseq and struct rseq_cs: UAPI linux/rseq.h. */
#define RSEQ_CRITICAL_SECTION_OFFSET 8
struct rseq_critical_section {
	uint32_t version;
	uint32_t flags;
	uint64_t start_ip;
	uint64_t post_commit_offset;
	uint64_t abort_ip;
};

/*
 * A thread that stands inside an rseq critical section has lost it: the kernel aborts it when the
 * thread goes on, provided it still stands there. A remote system call, and a restore, move the
 * instruction pointer away and back, so we take it to the abort address ourselves.
 */
static void find_rseq_abort(struct sp_process *process, struct sp_thread *thread)
{
	uint64_t ip = sp_instruction_pointer(&thread->raw.general);
	struct sp_ptrace_rseq_configuration rseq;
	struct rseq_critical_section section;
	uint64_t address = 0;

	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, thread->tid, sizeof(rseq), &rseq) <= 0 ||
	    !rseq.rseq_abi_pointer ||
	    sp_process_read(process->pid, rseq.rseq_abi_pointer + RSEQ_CRITICAL_SECTION_OFFSET,
	                    &address, sizeof(address), NULL) ||
	    !address || sp_process_read(process->pid, address, &section, sizeof(section), NULL))
		return;
	if (ip - section.start_ip < section.post_commit_offset)
		thread->rseq_abort = section.abort_ip;
}

static int read_thread(struct sp_process *process, struct sp_thread *thread, struct sp_error *err)
{
	int rc = sp_registers_get(thread->tid, &thread->raw, err);

	if (rc)
		return rc;
	if (ptrace(PTRACE_GETSIGMASK, thread->tid, sizeof(thread->signal_mask),
	           &thread->signal_mask) < 0)
		return sp_fail_errno(err, errno, "cannot read the signal mask of thread %d",
		                     thread->tid);
	find_rseq_abort(process, thread);
	thread->saved = thread->raw.general;
	if (thread->rseq_abort)
		sp_set_instruction_pointer(&thread->saved, thread->rseq_abort);
	sp_registers_for_new_task(&thread->saved);
	return 0;
}

static int order_and_read(struct sp_process *process, struct sp_error *err)
{
	for (size_t i = 0; i < process->threads.count; i++) {
		struct sp_thread *thread = sp_process_thread(process, i);

		if (read_thread(process, thread, err))
			return sp_error_context(err, "cannot save thread %d of %s", thread->tid,
			                        sp_process_name(process->pid).text);
	}
	if (sp_process_leader(process)->tid != process->pid)
		return sp_fail(
		        err, ENOTSUP,
		        "the main thread of process %d has ended while others run on: such a "
		        "process cannot be saved",
		        process->pid);
	return 0;
}

int sp_process_seize(struct sp_process *process, pid_t pid, uint64_t deadline_ns,
                     struct sp_error *err)
{
	int rc;

	*process = (struct sp_process){
	        .pid = pid,
	        .pidfd = -1,
	        .threads = SP_ARRAY_OF(struct sp_thread *),
	};
	rc = sp_process_check(pid, err);
	if (rc)
		return rc;
	process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (process->pidfd < 0)
		return sp_fail_errno(err, errno, "cannot open process %d", pid);
	rc = stop_all(process, deadline_ns, err);
	if (!rc)
		rc = order_and_read(process, err);
	if (rc)
		sp_process_forget(process);
	return rc;
}

/* --- letting go --- */

/* Registers that only our stop has made what they are become what they would have been. */
static void undo_stop(const struct sp_thread *thread)
{
	struct user_regs_struct general = thread->raw.general;

	if (thread->driven || !thread->stopped || !sp_undo_interruption(&general))
		return;
	sp_general_set(thread->tid, &general, NULL);
}

/* Detaches a thread; one that does not stand yet is made to, which it does at once or is dead. */
static void detach(const struct sp_thread *thread)
{
	int status;

	if (ptrace(PTRACE_DETACH, thread->tid, 0, 0) == 0 || thread->stopped)
		return;
	while (waitpid(thread->tid, &status, __WALL | WNOHANG) == 0)
		if (ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0) < 0)
			return;
	ptrace(PTRACE_DETACH, thread->tid, 0, 0);
}

static void reap(const struct sp_process *process)
{
	int status;

	for (size_t i = process->threads.count; i-- > 0;)
		while (waitpid(sp_process_thread(process, i)->tid, &status, __WALL) > 0 &&
		       WIFSTOPPED(status))
			;
}

void sp_process_release(struct sp_process *process, enum sp_release how)
{
	if (how == SP_RELEASE_KILL) {
		syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
		reap(process);
	} else {
		if (how == SP_RELEASE_STOP || process->stop_arrived)
			syscall(SYS_pidfd_send_signal, process->pidfd, SIGSTOP, NULL, 0);
		for (size_t i = 0; i < process->threads.count; i++) {
			undo_stop(sp_process_thread(process, i));
			detach(sp_process_thread(process, i));
		}
	}
	for (size_t i = 0; i < process->threads.count; i++)
		free(sp_process_thread(process, i));
	sp_array_clear(&process->threads);
	process->stopped_ns = 0;
}

void sp_process_forget(struct sp_process *process)
{
	sp_process_release(process, SP_RELEASE_RUN);
	sp_array_release(&process->threads);
	if (process->pidfd >= 0)
		close(process->pidfd);
	process->pidfd = -1;
}

/* --- memory --- */

static int fail_read(int code, pid_t pid, remote_addr from, size_t size, struct sp_error *err)
{
	return sp_fail_errno(err, code, "cannot read %zu bytes at 0x%llx of process %d", size,
	                     (unsigned long long)from, pid);
}

static int fail_write(int code, pid_t pid, remote_addr to, size_t size, struct sp_error *err)
{
	return sp_fail_errno(err, code, "cannot write %zu bytes at 0x%llx of process %d", size,
	                     (unsigned long long)to, pid);
}

int sp_process_read(pid_t pid, remote_addr from, void *buffer, size_t size, struct sp_error *err)
{
	struct iovec local = {.iov_base = buffer, .iov_len = size};
	struct iovec remote = {.iov_base = (void *)from, .iov_len = size};
	ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);

	if (got == (ssize_t)size)
		return 0;
	return fail_read(got < 0 ? errno : EFAULT, pid, from, size, err);
}

int sp_process_write(pid_t pid, remote_addr to, const void *buffer, size_t size,
                     struct sp_error *err)
{
	struct iovec local = {.iov_base = (void *)buffer, .iov_len = size};
	struct iovec remote = {.iov_base = (void *)to, .iov_len = size};
	ssize_t put = process_vm_writev(pid, &local, 1, &remote, 1, 0);

	if (put == (ssize_t)size)
		return 0;
	return fail_write(put < 0 ? errno : EFAULT, pid, to, size, err);
}

int sp_process_read_forced(pid_t pid, remote_addr from, void *buffer, size_t size,
                           struct sp_error *err)
{
	sp_cleanup_close int fd = sp_proc_open(pid, "mem", O_RDONLY, err);
	ssize_t got;

	if (fd < 0)
		return fd;
	got = sp_pread_full(fd, buffer, size, (off_t)from);
	if (got == (ssize_t)size)
		return 0;
	return fail_read(got < 0 ? (int)-got : EFAULT, pid, from, size, err);
}

int sp_process_write_forced(pid_t pid, remote_addr to, const void *buffer, size_t size,
                            struct sp_error *err)
{
	sp_cleanup_close int fd = sp_proc_open(pid, "mem", O_WRONLY, err);
	int rc;

	if (fd < 0)
		return fd;
	rc = sp_pwrite_full(fd, buffer, size, (off_t)to);
	return rc ? fail_write(-rc, pid, to, size, err) : 0;
}
