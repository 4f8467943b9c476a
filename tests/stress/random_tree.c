/*
 * A random tree of processes with random objects: `random_tree SEED`. The same seed makes the same tree. It checks
 * nothing itself but that all of it ends in the end: trees.py looks at it from outside, before and after.
 *
 * Each process takes steps at random (the tables in random_*.c, and `tree_steps` here): a child, an orphan, a
 * thread, a file, a pipe, some memory, a timer, ..., and then waits, in one of several calls, for the pipe that all
 * have. A process goes on only when its child waits, so nothing depends on who is faster. Whoever is sent SIGPWR with
 * a higher number than it has seen has a turn: some more steps. What was done stands in the file "steps".
 * Further arguments are names of steps that are left out, to find out which one matters.
 */
#include "random.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { THREADS_MAX = 4, STEPS_MAX = 14 };

/* Of this process. */
static int go[2], record;
static unsigned number, depth;
static atomic_uint threads, threads_waiting;
static volatile sig_atomic_t turn_asked;
static int turn;

static char **left_out;

static void take_steps(unsigned count);

/* --- waiting --- */

static bool is_time(void)
{
	struct pollfd in = {.fd = go[0], .events = POLLIN};

	return poll(&in, 1, 0) == 1;
}

static int watch_go(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	subject_need(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, go[0], &event) == 0, "epoll");
	return epoll;
}

static void ask_turn(int signal, siginfo_t *info, void *context)
{
	turn_asked = info->si_value.sival_int;
}

static void take_turn(void)
{
	turn = turn_asked;
	take_steps(1 + below(4));
	dprintf(record, "%d turned %d\n", getpid(), turn);
}

/* Until the pipe has a byte. No call has a time limit: after a restore it would leave EINTR in errno. */
static void wait_for_go(void)
{
	struct pollfd in = {.fd = go[0], .events = POLLIN};
	struct epoll_event event;
	unsigned way = below(5);
	int epoll = way == 4 ? watch_go() : -1;

	atomic_store(&family->waits[number], true);
	while (!is_time()) {
		fd_set set;

		FD_ZERO(&set);
		FD_SET(go[0], &set);
		if (turn < turn_asked)
			take_turn();
		else if (way == 0)
			poll(&in, 1, -1);
		else if (way == 1)
			ppoll(&in, 1, NULL, NULL);
		else if (way == 2)
			select(go[0] + 1, &set, NULL, NULL, NULL);
		else if (way == 3)
			pselect(go[0] + 1, &set, NULL, NULL, NULL, NULL);
		else
			epoll_wait(epoll, &event, 1, -1);
	}
}

static void *be_thread(void *argument)
{
	unsigned way = (unsigned)(uintptr_t)argument;
	sigset_t none, all;
	sem_t never;

	sigemptyset(&none);
	sigfillset(&all);
	sem_init(&never, 0, 0);
	atomic_fetch_add(&threads_waiting, 1);
	for (;;) {
		if (way == 0)
			pause();
		else if (way == 1)
			poll(NULL, 0, -1);
		else if (way == 2)
			sem_wait(&never);
		else if (way == 3)
			sigwaitinfo(&none, NULL);
		else
			sigsuspend(&all);
	}
	return NULL;
}

/* --- processes --- */

static bool may_grow(unsigned by)
{
	return depth < DEPTH_MAX && atomic_load(&family->processes) + by <= PROCESSES_MAX;
}

/* Returns in the child, too. `flags` as of clone(2). The copy of a process with threads has none of them. */
static pid_t beget(int flags)
{
	unsigned next = atomic_fetch_add(&family->processes, 1);
	uint64_t seed = draw();
	pid_t pid = flags == SIGCHLD ? fork() : (pid_t)syscall(SYS_clone, flags, 0, 0, 0, 0);

	subject_need(pid >= 0 && next < PROCESSES_MAX, "clone: %s", strerror(errno));
	if (pid)
		return pid;
	begin_chance(seed);
	number = next;
	family->pids[next] = getpid();
	depth++;
	atomic_store(&threads, 0);
	atomic_store(&threads_waiting, 0);
	return 0;
}

__attribute__((noreturn)) static void live(void)
{
	take_steps(below(STEPS_MAX));
	wait_for_go();
	_exit(0);
}

static void await_waiting(unsigned next)
{
	while (!atomic_load(&family->waits[next]))
		usleep(200);
}

static pid_t beget_living(int flags)
{
	unsigned next = atomic_load(&family->processes);
	pid_t pid = beget(flags);

	if (pid == 0)
		live();
	await_waiting(next);
	return pid;
}

static void make_child(void)
{
	static const int signals[] = {SIGCHLD, SIGCHLD, SIGCHLD, SIGCHLD, SIGURG, SIGCONT, 0};

	if (may_grow(1))
		beget_living(signals[below(7)]);
}

/* One that shares its descriptors, its directories or both with its parent. */
static void make_sharing(void)
{
	static const int flags[] = {CLONE_FILES, CLONE_FS, CLONE_FILES | CLONE_FS};

	if (may_grow(1))
		beget_living(flags[below(3)] | SIGCHLD);
}

static void make_leader(void)
{
	unsigned next = atomic_load(&family->processes);

	if (!may_grow(1))
		return;
	if (beget(SIGCHLD) == 0) {
		if (chance(40))
			take_steps(3);
		setsid();
		live();
	}
	await_waiting(next);
}

/* Its parent ends, and may stay to be collected; that has led a session or a group, or neither. */
static void make_orphan(void)
{
	pid_t between;

	if (!may_grow(2))
		return;
	between = beget(SIGCHLD);
	if (between == 0) {
		unsigned way = below(3);

		if (way == 0)
			setsid();
		if (way == 1)
			setpgid(0, 0);
		depth--;
		beget_living(SIGCHLD);
		_exit((int)below(3));
	}
	waitid(P_PID, (id_t)between, NULL, WEXITED | (chance(30) ? WNOWAIT : 0));
}

static void make_ended(void)
{
	pid_t pid;

	if (!may_grow(1))
		return;
	pid = beget(chance(80) ? SIGCHLD : SIGURG);
	if (pid == 0) {
		if (chance(30))
			setsid();
		if (chance(50))
			kill(getpid(), SIGKILL);
		_exit((int)below(256));
	}
	waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT | __WALL);
}

static void make_stopped(void)
{
	pid_t pid;

	if (!may_grow(1))
		return;
	pid = beget_living(SIGCHLD);
	kill(pid, SIGSTOP);
	waitid(P_PID, (id_t)pid, NULL, WSTOPPED | (chance(50) ? WNOWAIT : 0));
}

/* It fails for a leader of a session, which is as good. */
static void begin_group(void)
{
	setpgid(0, 0);
}

static void join_parents_group(void)
{
	setpgid(0, getpgid(getppid()));
}

static void be_subreaper(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void make_thread(void)
{
	unsigned have = atomic_load(&threads);
	int blocked = 40 + (int)below(20);
	pthread_t thread;
	char name[16];
	sigset_t before, set;

	if (have == THREADS_MAX)
		return;
	/* What is sent to the process is not for it. */
	sigfillset(&set);
	sigdelset(&set, 20 + (int)below(9));
	pthread_sigmask(SIG_BLOCK, &set, &before);
	subject_need(pthread_create(&thread, NULL, be_thread, (void *)(uintptr_t)below(5)) == 0,
	             "pthread_create");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	snprintf(name, sizeof(name), "thread %u", have);
	if (chance(50))
		pthread_setname_np(thread, name);
	while (atomic_load(&threads_waiting) <= have)
		usleep(200);
	if (chance(30))
		pthread_kill(thread, blocked);
	atomic_store(&threads, have + 1);
}

/* --- the steps --- */

static const struct step tree_steps[] = {
        {"child", make_child, 14},
        {"sharing", make_sharing, 5},
        {"leader", make_leader, 5},
        {"orphan", make_orphan, 5},
        {"ended", make_ended, 5},
        {"stopped", make_stopped, 3},
        {"group", begin_group, 3},
        {"parents-group", join_parents_group, 2},
        {"subreaper", be_subreaper, 2},
        {"thread", make_thread, 8},
        {NULL, NULL, 0},
};

static const struct step *const tables[] = {tree_steps,     attribute_steps, file_steps,
                                            terminal_steps, socket_steps,    event_steps,
                                            memory_steps,   ipc_steps};

enum { TABLES = sizeof(tables) / sizeof(*tables) };

static bool is_left_out(const char *name)
{
	for (char **word = left_out; *word; word++)
		if (!strcmp(*word, name))
			return true;
	return false;
}

static unsigned sum_of_weights(void)
{
	unsigned sum = 0;

	for (unsigned table = 0; table < TABLES; table++)
		for (const struct step *step = tables[table]; step->name; step++)
			sum += step->weight;
	return sum;
}

static const struct step *draw_step(void)
{
	unsigned at = below(sum_of_weights());

	for (unsigned table = 0;; table++)
		for (const struct step *step = tables[table]; step->name; step++) {
			if (at < step->weight)
				return step;
			at -= step->weight;
		}
}

static void take_steps(unsigned count)
{
	while (count-- > 0) {
		const struct step *step = draw_step();

		if (is_left_out(step->name))
			continue;
		dprintf(record, "%d %s\n", getpid(), step->name);
		step->take();
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = ask_turn, .sa_flags = SA_SIGINFO};

	subject_need(argc > 1, "give a seed");
	begin_chance(strtoull(argv[1], NULL, 10));
	left_out = argv + 2;
	family = mmap(NULL, sizeof(*family), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	subject_need(family != MAP_FAILED && pipe(go) == 0, "pipe");
	record = open("steps", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	family->pids[0] = getpid();
	atomic_store(&family->processes, 1);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigaction(SIGPWR, &action, NULL);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	take_steps(10 + below(40));
	if (write(STDOUT_FILENO, "READY\n", 6) != 6)
		return 1;
	wait_for_go();
	return 0;
}
