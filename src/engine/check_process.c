/*
 * Trials of what acts on processes: stopping them, reading and driving them, making them with a
 * process id of choice. Where a second process is needed, the probe forks a subject: a child that
 * only waits, and that the kernel ends with its parent.
 */
#include "engine/check_probe.h"

#include "base/cleanup.h"
#include "base/kernel_abi.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The subject runs `prepare` first, tells that it has, and waits to be killed. */
static pid_t start_subject(void (*prepare)(void))
{
	int ready[2];
	pid_t pid;
	char byte;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (prepare)
			prepare();
		close(ready[0]);
		close(ready[1]);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) < 0)
		pid = -1;
	close(ready[0]);
	return pid;
}

static bool seize(pid_t pid, unsigned long options)
{
	int status;

	return pid > 0 && ptrace(PTRACE_SEIZE, pid, 0, options) == 0 &&
	       ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0 && waitpid(pid, &status, __WALL) == pid &&
	       WIFSTOPPED(status);
}

static void probe_seize(struct sp_probe_result *result)
{
	sp_probe_outcome(result, seize(start_subject(NULL), 0));
}

static void probe_xstate(struct sp_probe_result *result)
{
	static unsigned char state[16384];
	struct iovec vector = {state, sizeof(state)};
	pid_t pid = start_subject(NULL);

	sp_probe_outcome(result,
	                 seize(pid, 0) && ptrace(PTRACE_GETREGSET, pid,
	                                         (void *)(uintptr_t)NT_X86_XSTATE, &vector) == 0);
	if (result->present)
		sp_probe_detail(result, "%zu bytes", vector.iov_len);
}

static void probe_rseq(struct sp_probe_result *result)
{
	struct sp_ptrace_rseq_configuration configuration;
	pid_t pid = start_subject(NULL);

	sp_probe_outcome(result, seize(pid, 0) &&
	                                 ptrace(PTRACE_GET_RSEQ_CONFIGURATION, pid,
	                                        (void *)sizeof(configuration), &configuration) > 0);
}

/* Allows everything: what matters is that there is one. */
static void install_filter(void)
{
	struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {.len = 1, .filter = code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void probe_suspend_seccomp(struct sp_probe_result *result)
{
	sp_probe_outcome(result, seize(start_subject(install_filter), PTRACE_O_SUSPEND_SECCOMP));
}

static void probe_get_filter(struct sp_probe_result *result)
{
	struct sock_filter code[16];
	pid_t pid = start_subject(install_filter);

	sp_probe_outcome(result,
	                 seize(pid, 0) && ptrace(PTRACE_SECCOMP_GET_FILTER, pid, NULL, code) == 1);
}

static void probe_vm_readv(struct sp_probe_result *result)
{
	static char word[] = "sealpoint";
	char copy[sizeof(word)] = "";
	struct iovec local = {copy, sizeof(copy)}, remote = {word, sizeof(word)};
	pid_t pid = start_subject(NULL);
	bool ok = pid > 0 && process_vm_readv(pid, &local, 1, &remote, 1, 0) == sizeof(word);

	sp_probe_outcome(result, ok && !memcmp(copy, word, sizeof(word)));
}

static void probe_pidfd_getfd(struct sp_probe_result *result)
{
	pid_t pid = start_subject(NULL);
	sp_cleanup_close int pidfd = pid > 0 ? pidfd_open(pid, 0) : -1;
	sp_cleanup_close int copy = -1;

	if (pidfd >= 0)
		copy = (int)syscall(SYS_pidfd_getfd, pidfd, STDERR_FILENO, 0);
	/* A subject without that descriptor has shown as well that the call is allowed. */
	sp_probe_outcome(result, copy >= 0 || (pidfd >= 0 && errno == EBADF));
}

static void probe_kcmp(struct sp_probe_result *result)
{
	sp_cleanup_close int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	sp_cleanup_close int copy = dup(fd);
	pid_t pid = getpid();

	sp_probe_outcome(result, syscall(SYS_kcmp, pid, pid, KCMP_FILE, fd, copy) == 0);
}

/* A process id that is free: that of a child that has gone. */
static pid_t free_pid(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

static void probe_set_tid(struct sp_probe_result *result)
{
	pid_t wanted = free_pid();
	struct clone_args args = {
	        .exit_signal = SIGCHLD,
	        .set_tid = (uintptr_t)&wanted,
	        .set_tid_size = 1,
	};
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(0);
	sp_probe_outcome(result, pid == wanted);
}

static void probe_mm_map(struct sp_probe_result *result)
{
	unsigned size = 0;

	sp_probe_outcome(result, prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) == 0 &&
	                                 size == sizeof(struct prctl_mm_map));
}

static void probe_tid_address(struct sp_probe_result *result)
{
	int *address = NULL;

	sp_probe_outcome(result, prctl(PR_GET_TID_ADDRESS, &address, 0, 0, 0) == 0);
}

static void probe_timerfd_ticks(struct sp_probe_result *result)
{
	sp_cleanup_close int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	uint64_t ticks = 3;

	sp_probe_outcome(result, ioctl(fd, TFD_IOC_SET_TICKS, &ticks) == 0 &&
	                                 read(fd, &ticks, sizeof(ticks)) == sizeof(ticks) &&
	                                 ticks == 3);
}

static void probe_timer_ids(struct sp_probe_result *result)
{
	sp_probe_outcome(result, prctl(PR_TIMER_CREATE_RESTORE_IDS, PR_TIMER_CREATE_RESTORE_IDS_ON,
	                               0, 0, 0) == 0);
	if (!result->present)
		sp_probe_detail(result, "timers are made and removed until the id comes up");
}

static void probe_membarrier(struct sp_probe_result *result)
{
	sp_probe_outcome(result,
	                 syscall(SYS_membarrier, SP_MEMBARRIER_CMD_GET_REGISTRATIONS, 0, 0) >= 0);
}

const struct sp_probe sp_process_probes[] = {
        {"PTRACE_SEIZE", SP_NEEDED_ALWAYS, "stopping a program and driving it", "Linux 3.4",
         probe_seize},
        {"NT_X86_XSTATE", SP_NEEDED_ALWAYS, "the extended registers (AVX, AMX, PKRU)",
         "Linux 2.6.35", probe_xstate},
        {"process_vm_readv", SP_NEEDED_ALWAYS, "reading memory", "Linux 3.2", probe_vm_readv},
        {"pidfd_getfd", SP_NEEDED_ALWAYS, "taking a look at descriptors", "Linux 5.6",
         probe_pidfd_getfd},
        {"kcmp", SP_NEEDED_ALWAYS, "telling duplicated descriptors from others", "Linux 3.5",
         probe_kcmp},
        {"clone3 set_tid", SP_NEEDED_ALWAYS, "restoring process and thread ids", "Linux 5.5",
         probe_set_tid},
        {"PR_SET_MM_MAP", SP_NEEDED_ALWAYS, "restoring heap, arguments and environment areas",
         "Linux 3.18, CHECKPOINT_RESTORE", probe_mm_map},
        {"PR_GET_TID_ADDRESS", SP_NEEDED_ALWAYS, "what a thread clears when it ends",
         "Linux 3.5, CHECKPOINT_RESTORE", probe_tid_address},
        {"PTRACE_GET_RSEQ_CONFIGURATION", SP_NEEDED_ALWAYS,
         "restartable sequences (glibc uses them)", "Linux 5.13", probe_rseq},
        {"PTRACE_O_SUSPEND_SECCOMP", SP_NEEDED_SOMETIMES, "driving programs with seccomp filters",
         "Linux 4.3, CAP_SYS_ADMIN", probe_suspend_seccomp},
        {"PTRACE_SECCOMP_GET_FILTER", SP_NEEDED_SOMETIMES, "saving seccomp filters",
         "Linux 4.4, CAP_SYS_ADMIN", probe_get_filter},
        {"TFD_IOC_SET_TICKS", SP_NEEDED_SOMETIMES,
         "expirations that nobody has read from a timerfd", "Linux 3.17, CHECKPOINT_RESTORE",
         probe_timerfd_ticks},
        {"PR_TIMER_CREATE_RESTORE_IDS", SP_NEEDED_SOMETIMES, "ids of POSIX timers in one step",
         "Linux 6.15", probe_timer_ids},
        {"membarrier registrations", SP_NEEDED_SOMETIMES, "programs that use membarrier(2)",
         "Linux 6.3", probe_membarrier},
        {0},
};
