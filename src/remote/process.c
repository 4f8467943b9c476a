/*
 * A process that is held by ptrace: its threads, their ends, its memory, and how it is let go. How
 * it is stopped stands in seize.c.
 */
#include "remote/process.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/kernel_abi.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"
#include "remote/collector.h"
#include "remote/process_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* How long threads that have not stopped yet are waited for when they are let go. */
#define DETACH_NS (SP_NS_PER_S / 20)

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

int sp_process_duplicate(const struct sp_process *process, int number)
{
	sp_cleanup_close int thread = -1;

	if (!sp_process_leader_has_ended(process))
		return pidfd_getfd(process->pidfd, number, 0);
	thread = pidfd_open(process->living, SP_PIDFD_THREAD);
	return thread < 0 ? -1 : pidfd_getfd(thread, number, 0);
}

/* --- threads that end meanwhile --- */

bool sp_process_is_gone(int pidfd)
{
	struct pollfd event = {.fd = pidfd, .events = POLLIN};

	return poll(&event, 1, 0) != 0;
}

static bool has_ended(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED || info->si_code == CLD_KILLED ||
	       info->si_code == CLD_DUMPED;
}

void sp_process_collect_dead(const struct sp_process *process)
{
	for (size_t i = 0; i < process->threads.count; i++) {
		pid_t tid = sp_process_thread(process, i)->tid;
		siginfo_t info = {0};

		if (tid != process->pid &&
		    !waitid(P_PID, (id_t)tid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) &&
		    info.si_pid == tid && has_ended(&info))
			waitpid(tid, NULL, WNOHANG | __WALL);
	}
}

void sp_process_wait_a_little(const struct sp_process *process, unsigned *round)
{
	struct timespec pause = {.tv_nsec = 50000};

	if (++*round < 100) {
		sched_yield();
		return;
	}
	sp_process_collect_dead(process);
	nanosleep(&pause, NULL);
}

bool sp_thread_is_ending(pid_t pid, pid_t tid)
{
	struct sp_stat stat;
	int rc = sp_stat_read(pid, tid, &stat, NULL);

	/* What cannot be read for want of descriptors or memory of our own is still there. */
	if (rc)
		return rc == -ENOENT || rc == -ESRCH;
	return stat.flags & SP_PF_EXITING;
}

bool sp_process_is_ending(const struct sp_process *process)
{
	sp_cleanup_free char *status = NULL;
	uint64_t pending = 0;
	int rc;

	if (sp_thread_is_ending(process->pid, sp_process_living(process)))
		return true;
	rc = sp_status_read(process->pid, sp_process_living(process), &status, NULL);
	if (rc)
		return rc == -ENOENT || rc == -ESRCH;
	return !sp_status_number(status, "SigPnd", 16, &pending, NULL) &&
	       pending >> (SIGKILL - 1) & 1;
}

/* --- letting go --- */

int sp_signal_of_stop(int status)
{
	bool is_signal = status >> 16 == 0 && WSTOPSIG(status) != (SIGTRAP | 0x80);

	return is_signal ? WSTOPSIG(status) : 0;
}

/* Registers that only our stop has made what they are become what they would have been. */
static void undo_stop(const struct sp_thread *thread)
{
	struct user_regs_struct general = thread->raw.general;

	if (thread->driven || !thread->stopped || !sp_undo_interruption(&general))
		return;
	sp_general_set(thread->tid, &general, NULL);
}

/*
 * Detaches a thread. One that does not stand yet (the stopping has failed) has to be made to; if it
 * does not before the deadline, the kernel lets it go when sealpoint ends.
 */
static void detach(const struct sp_process *process, const struct sp_thread *thread,
                   uint64_t deadline_ns)
{
	unsigned round = 0;
	int signal = 0;

	while (ptrace(PTRACE_DETACH, thread->tid, 0, signal) < 0) {
		int status;
		pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);

		if (got > 0 && WIFSTOPPED(status)) {
			signal = sp_signal_of_stop(status);
			continue;
		}
		if (got || ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0) < 0 ||
		    sp_now_ns() > deadline_ns)
			return;
		sp_process_wait_a_little(process, &round);
	}
}

static void collect(pid_t tid)
{
	int status;

	while (waitpid(tid, &status, __WALL) > 0 && WIFSTOPPED(status))
		;
}

/*
 * Collects the ended threads, the leader last, because it does not come before. The task list knows
 * one that a stub has cloned just now, and that we have not heard of.
 */
static void reap(const struct sp_process *process)
{
	sp_cleanup_dir DIR *tasks = NULL;
	struct dirent *entry;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task", process->pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);

		if (tid > 0 && tid != process->pid)
			collect(tid);
	}
	for (size_t i = process->threads.count; i-- > 0;)
		if (sp_process_thread(process, i)->tid != process->pid)
			collect(sp_process_thread(process, i)->tid);
	collect(process->pid);
}

void sp_process_release(struct sp_process *process, enum sp_release how)
{
	struct sp_error ignored = {0};
	uint64_t deadline;

	if (process->watched)
		sp_process_stop_watched(process, sp_now_ns() + SP_NS_PER_S, &ignored);
	process->watched = false;
	deadline = sp_now_ns() + DETACH_NS;
	if (how == SP_RELEASE_KILL) {
		syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
		reap(process);
	} else {
		if (how == SP_RELEASE_STOP)
			syscall(SYS_pidfd_send_signal, process->pidfd, SIGSTOP, NULL, 0);
		for (size_t i = 0; i < process->threads.count; i++) {
			undo_stop(sp_process_thread(process, i));
			detach(process, sp_process_thread(process, i), deadline);
		}
	}
	for (size_t i = 0; i < process->threads.count; i++)
		free(sp_process_thread(process, i));
	sp_array_clear(&process->threads);
	process->stopped_ns = 0;
	process->group_stopped = false;
}

void sp_process_forget(struct sp_process *process)
{
	sp_process_release(process, SP_RELEASE_RUN);
	sp_array_release(&process->threads);
	sp_collector_free(process->collector);
	process->collector = NULL;
	if (process->pidfd >= 0)
		close(process->pidfd);
	process->pidfd = -1;
}

/* --- memory --- */

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
	return sp_fail_errno(err, got < 0 ? errno : EFAULT,
	                     "cannot read %zu bytes at 0x%llx of process %d", size,
	                     (unsigned long long)from, pid);
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
