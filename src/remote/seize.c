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
#include "base/kernel_abi.h"
#include "base/kernel_abi.h"
#include "proc/maps.h"
#include "proc/stat.h"
#include "remote/collector.h"
#include "remote/process_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

/* After how many looks at a thread that does not stop it is interrupted again. */
#define INTERRUPT_ROUNDS 128

#define WATCH_OPTIONS (PTRACE_O_TRACEEXIT | PTRACE_O_TRACECLONE)

/* How long in all, and how long at a time, threads may run to get out of the vDSO. */
#define LEAVE_NS (SP_NS_PER_S / 5)
#define LEAVE_ROUND_NS 20000

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
	free(sp_process_thread(process, index));
	sp_array_remove(&process->threads, index);
}

/* PTRACE_SEIZE, which waits while the process is in execve(2). Returns 0 or an errno. */
static int seize(struct sp_process *process, pid_t tid)
{
	int code;

	if (process->threads.count && !process->collector)
		process->collector = sp_collector_start(process);
	sp_collector_begin(process->collector);
	code = ptrace(PTRACE_SEIZE, tid, 0, process->watched ? WATCH_OPTIONS : 0) < 0 ? errno : 0;
	sp_collector_end(process->collector);
	return code;
}

/*
 * Seizes and interrupts one thread. A thread that has just ended is no error. The kernel forbids to
 * seize one that is ending, and when we look, the id may be that of a thread that has taken it over
 * in execve(2).
 */
static int seize_thread(struct sp_process *process, pid_t tid, struct sp_error *err)
{
	int code = seize(process, tid);

	for (int again = 0; code == EPERM && again < 3; again++)
		code = sp_thread_is_ending(process->pid, tid) ? ESRCH : seize(process, tid);
	if (code == ESRCH)
		return 0;
	if (code)
		return sp_refuse_seize(process->pid, tid, code, err);
	sp_process_add_thread(process, tid);
	if (process->watched && !process->stopped_ns)
		return 0;
	if (!process->stopped_ns)
		process->stopped_ns = sp_now_ns();
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 && errno != ESRCH)
		return sp_fail_errno(err, errno, "cannot interrupt thread %d of process %d", tid,
		                     process->pid);
	return 0;
}

static int refuse_ended(const struct sp_process *process, struct sp_error *err)
{
	return sp_fail(err, ESRCH, "process %d has ended", process->pid);
}

/* Seizes what the task list shows and we do not know. Returns how many were found, or an error. */
static int seize_new_threads(struct sp_process *process, struct sp_error *err)
{
	size_t before = process->threads.count;
	sp_cleanup_dir DIR *tasks = NULL;
	struct dirent *entry;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task", process->pid);
	tasks = opendir(path);
	if (!tasks)
		return refuse_ended(process, err);
	while ((entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);
		int rc;

		if (tid <= 0 || is_known(process, tid))
			continue;
		rc = seize_thread(process, tid, err);
		if (rc)
			return rc;
	}
	return (int)(process->threads.count - before);
}

static bool is_stop_signal(int signal)
{
	return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/* From a stop that is not the one that we wait for. A thread that was born is seized already. */
static void let_go_on(struct sp_process *process, const struct sp_thread *thread, int status)
{
	unsigned long born;

	if (status >> 16 == PTRACE_EVENT_EXIT && process->ending)
		process->ending(process->ending_context);
	if (status >> 16 == PTRACE_EVENT_CLONE &&
	    ptrace(PTRACE_GETEVENTMSG, thread->tid, 0, &born) == 0)
		sp_process_add_thread(process, (pid_t)born);
	ptrace(PTRACE_CONT, thread->tid, 0, sp_signal_of_stop(status));
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
	let_go_on(process, thread, status);
	return 0;
}

/* As judge_stop(), of whatever the kernel has to tell about the thread by now. */
static int look_at_thread(struct sp_process *process, struct sp_thread *thread, unsigned round)
{
	int status;
	pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);

	if (got)
		return got < 0 ? -1 : judge_stop(process, thread, status);
	/*
	 * In execve(2) an interrupt is forgotten, and an id may go to a thread that we do not
	 * trace.
	 */
	if (round % INTERRUPT_ROUNDS == INTERRUPT_ROUNDS - 1 &&
	    ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0) < 0)
		return -1;
	return 0;
}

/*
 * Waits until the thread at `index` stands; it is forgotten if it has ended instead. ESRCH if that
 * is the leader: the process has ended, or another thread has taken the leader's id in execve(2).
 */
static int wait_thread(struct sp_process *process, size_t index, uint64_t deadline_ns,
                       struct sp_error *err)
{
	struct sp_thread *thread = sp_process_thread(process, index);
	unsigned round = 0;
	int verdict;

	while (!(verdict = look_at_thread(process, thread, round))) {
		if (sp_now_ns() > deadline_ns)
			return sp_refuse_unstoppable(process->pid, thread->tid, err);
		if (sp_interrupt_check(err))
			return -EINTR;
		sp_process_wait_a_little(process, &round);
	}
	thread->stopped = verdict > 0;
	if (!thread->stopped && thread->tid == process->pid)
		return refuse_ended(process, err);
	if (!thread->stopped)
		forget_thread(process, index);
	return 0;
}

/* Waits for all threads that do not stand yet. */
static int wait_all(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err)
{
	size_t at = 0;

	while (at < process->threads.count) {
		if (sp_process_thread(process, at)->stopped)
			at++; /* one that has ended leaves its place to the next */
		else if (wait_thread(process, at, deadline_ns, err))
			return -err->code;
	}
	return 0;
}

static int stop_all(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err)
{
	int found, rc;

	do {
		found = seize_new_threads(process, err);
		rc = found < 0 ? found : wait_all(process, deadline_ns, err);
	} while (!rc && found > 0);
	return rc;
}

/* --- watching --- */

int sp_process_stop_watched(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err)
{
	process->stopped_ns = sp_now_ns();
	for (size_t i = 0; i < process->threads.count; i++)
		ptrace(PTRACE_INTERRUPT, sp_process_thread(process, i)->tid, 0, 0);
	return wait_all(process, deadline_ns, err);
}

/* A thread that was just born stops once. What is stopped by a signal stays so. */
static bool attend_to(struct sp_process *process, struct sp_thread *thread, int status)
{
	if (!WIFSTOPPED(status))
		return false;
	thread->stopped = status >> 16 == PTRACE_EVENT_STOP && is_stop_signal(WSTOPSIG(status));
	process->group_stopped |= thread->stopped;
	if (!thread->stopped)
		let_go_on(process, thread, status);
	return !thread->stopped;
}

bool sp_process_attend(struct sp_process *process)
{
	for (size_t i = 0; i < process->threads.count;) {
		struct sp_thread *thread = sp_process_thread(process, i);
		int status;
		pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);

		if (got > 0 && !attend_to(process, thread, status)) {
			if (WIFSTOPPED(status) || thread->tid == process->pid)
				return false;
			forget_thread(process, i);
		} else if (got <= 0) {
			i++;
		}
	}
	return true;
}

/* --- out of the vDSO --- */

static struct sp_range find_vdso(pid_t pid)
{
	sp_cleanup_array struct sp_array maps = SP_ARRAY_OF(struct sp_map);

	if (sp_maps_read(pid, &maps, NULL))
		return (struct sp_range){0};
	for (size_t i = 0; i < maps.count; i++) {
		const struct sp_map *map = sp_array_at(&maps, i);

		if (map->vdso)
			return map->range;
	}
	return (struct sp_range){0};
}

static bool stands_in(const struct sp_thread *thread, struct sp_range range)
{
	struct user_regs_struct general;

	return !sp_general_get(thread->tid, &general, NULL) &&
	       sp_range_contains(range, sp_instruction_pointer(&general));
}

/* Lets those threads that stand in a range run for a moment. Returns how many there are. */
static size_t let_run(struct sp_process *process, struct sp_range range)
{
	size_t count = 0;

	for (size_t i = 0; i < process->threads.count; i++) {
		struct sp_thread *thread = sp_process_thread(process, i);

		if (!stands_in(thread, range))
			continue;
		ptrace(PTRACE_CONT, thread->tid, 0, 0);
		thread->stopped = false;
		count++;
	}
	if (count)
		nanosleep(&(struct timespec){.tv_nsec = LEAVE_ROUND_NS}, NULL);
	for (size_t i = 0; i < process->threads.count; i++)
		if (!sp_process_thread(process, i)->stopped)
			ptrace(PTRACE_INTERRUPT, sp_process_thread(process, i)->tid, 0, 0);
	return count;
}

/*
 * The code of the vDSO is the kernel's: another one has other code, in which nobody could go on. A
 * thread is never there for long, so that a moment later it most likely stands elsewhere. It is not
 * insisted on, and a process that is stopped must not run at all.
 */
static int leave_vdso(struct sp_process *process, struct sp_range vdso, uint64_t deadline_ns,
                      struct sp_error *err)
{
	uint64_t until = sp_now_ns() + LEAVE_NS;
	int rc = 0;

	while (!rc && sp_range_size(vdso) && !process->group_stopped && sp_now_ns() < until &&
	       let_run(process, vdso)) {
		rc = wait_all(process, deadline_ns, err);
		if (!rc)
			rc = stop_all(process, deadline_ns, err);
	}
	return rc;
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
	    sp_process_read(sp_process_living(process),
	                    rseq.rseq_abi_pointer + RSEQ_CRITICAL_SECTION_OFFSET, &address,
	                    sizeof(address), NULL) ||
	    !address ||
	    sp_process_read(sp_process_living(process), address, &section, sizeof(section), NULL))
		return;
	if (ip - section.start_ip < section.post_commit_offset)
		thread->rseq_abort = section.abort_ip;
}

static void recall_system_call(pid_t pid, struct user_regs_struct *general)
{
	uint8_t code[SP_RECALL_CODE_SIZE];

	if (sp_has_forgotten_call(general) &&
	    !sp_process_read(pid, sp_instruction_pointer(general) - sizeof(code), code,
	                     sizeof(code), NULL))
		sp_recall_system_call(general, code, sizeof(code));
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
	recall_system_call(sp_process_living(process), &thread->saved);
	sp_registers_for_new_task(&thread->saved);
	return 0;
}

static int read_threads(struct sp_process *process, struct sp_error *err)
{
	for (size_t i = 0; i < process->threads.count; i++) {
		struct sp_thread *thread = sp_process_thread(process, i);

		if (read_thread(process, thread, err))
			return sp_error_context(err, "cannot save thread %d of %s", thread->tid,
			                        sp_process_name(process->pid).text);
	}
	return 0;
}

/* By whose id the others are read: a main thread that has ended has no memory and no descriptors. */
static int find_living(struct sp_process *process, struct sp_error *err)
{
	sp_cleanup_close int pidfd = -1;

	process->living = sp_process_leader(process)->tid;
	if (!sp_process_leader_has_ended(process))
		return 0;
	pidfd = pidfd_open(process->living, SP_PIDFD_THREAD);
	if (pidfd >= 0)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "the main thread of %s has ended while others run on, and this kernel "
	               "gives nobody the descriptors of these (Linux 6.9 does); let the main "
	               "thread wait for the others instead (pthread_join(3))",
	               sp_process_name(process->pid).text);
}

/*
 * Stops all threads and reads them. What was stopped may be gone again when it is read: a thread
 * that was in execve(2) has replaced all others, and its own id. Then everything begins anew.
 */
static int stop_and_read(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err)
{
	int rc;

	do {
		struct sp_range vdso = find_vdso(sp_living_thread(process->pid));

		rc = process->watched ? sp_process_stop_watched(process, deadline_ns, err) : 0;
		if (!process->watched)
			sp_process_release(process, SP_RELEASE_RUN);
		process->watched = false;
		if (!rc)
			rc = stop_all(process, deadline_ns, err);
		if (!rc)
			rc = leave_vdso(process, vdso, deadline_ns, err);
		if (!rc && !process->threads.count)
			rc = refuse_ended(process, err);
		if (!rc)
			rc = find_living(process, err);
		if (!rc)
			rc = read_threads(process, err);
	} while (rc == -ESRCH && !sp_process_is_gone(process->pidfd) && sp_now_ns() < deadline_ns);
	return rc == -ESRCH ? refuse_ended(process, err) : rc;
}

static int open_process(struct sp_process *process, pid_t pid, struct sp_error *err)
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
	process->pidfd = pidfd_open(pid, 0);
	return process->pidfd < 0 ? sp_fail_errno(err, errno, "cannot open process %d", pid) : 0;
}

int sp_process_watch(struct sp_process *process, pid_t pid, struct sp_error *err)
{
	int rc = open_process(process, pid, err);

	if (rc)
		return rc;
	process->watched = true;
	do
		rc = seize_new_threads(process, err);
	while (rc > 0);
	sp_collector_free(sp_steal_ptr(&process->collector));
	if (rc)
		sp_process_forget(process);
	return rc;
}

int sp_process_stop(struct sp_process *process, uint64_t deadline_ns, struct sp_error *err)
{
	int rc = stop_and_read(process, deadline_ns, err);

	sp_collector_dismiss(process->collector);
	if (rc)
		sp_process_forget(process);
	return rc;
}

int sp_process_seize(struct sp_process *process, pid_t pid, uint64_t deadline_ns,
                     struct sp_error *err)
{
	int rc = open_process(process, pid, err);

	return rc ? rc : sp_process_stop(process, deadline_ns, err);
}
