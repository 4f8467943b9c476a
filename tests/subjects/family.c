/*
 * A tree of processes of three generations: parents, sessions and process groups, those too whose
 * leader is gone; orphans that have come to the root; children that have ended and were not collected;
 * one that is stopped. All share two pipes, an open file and a piece of memory.
 */
#include "subject.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MEMBERS_MAX = 32 };

struct identity {
	pid_t pid, parent, group, session;
	char state;
};

/* In memory that all of them share. */
static struct family {
	atomic_uint begun, looked, passed;
} * family;

static int go[2], leave[2], file;
static unsigned expected; /* members that live */

static struct identity identify(pid_t pid)
{
	struct identity identity = {.pid = pid};
	char path[64], text[512] = "";
	const char *fields;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return identity;
	close(fd);
	fields = strrchr(text, ')');
	if (fields)
		sscanf(fields, ") %c %d %d %d", &identity.state, &identity.parent, &identity.group,
		       &identity.session);
	return identity;
}

static void wait_until_state(pid_t pid, char state)
{
	while (identify(pid).state != state)
		sched_yield();
}

/* Lives until it is told to go on, and says then whether it is who it was. */
__attribute__((noreturn)) static void live(void)
{
	pid_t parent = getppid(), group = getpgid(0), session = getsid(0);
	char byte;

	atomic_fetch_add(&family->begun, 1);
	if (read(go[0], &byte, 1) != 1)
		_exit(2);
	if (getppid() == parent && getpgid(0) == group && getsid(0) == session &&
	    write(file, "line\n", 5) == 5)
		atomic_fetch_add(&family->passed, 1);
	atomic_fetch_add(&family->looked, 1);
	_exit(read(leave[0], &byte, 1) != 1);
}

/* A new member; returns in the child too. */
static pid_t beget(void)
{
	pid_t pid = fork();

	subject_need(pid >= 0, "fork");
	return pid;
}

static pid_t beget_living(void)
{
	pid_t pid = beget();

	if (pid == 0)
		live();
	return pid;
}

/* Until all that were counted with expect() have begun. */
static void expect(unsigned more)
{
	expected += more;
	while (atomic_load(&family->begun) < expected)
		sched_yield();
}

static void make_ended(int status)
{
	pid_t pid = beget();

	if (pid == 0 && status > 0)
		_exit(status);
	if (pid == 0)
		kill(getpid(), -status);
	wait_until_state(pid, 'Z');
}

/* One whose parent is told of its end by another signal, and which only __WALL waits for. */
static void make_ended_clone(int exit_signal)
{
	pid_t pid = (pid_t)syscall(SYS_clone, exit_signal, NULL, NULL, NULL, 0);

	subject_need(pid >= 0, "clone");
	if (pid == 0)
		_exit(9);
	wait_until_state(pid, 'Z');
}

/* A child that leads a session, one of its own born into the older session, and one into the new. */
static void make_leader(void)
{
	if (beget() == 0) {
		beget_living();
		setsid();
		beget_living();
		live();
	}
	expect(3);
}

/* As a daemon begins: the leader of its session ends, and it is an orphan. */
static void make_daemon(void)
{
	pid_t leader = beget();

	if (leader == 0) {
		setsid();
		if (beget() == 0) {
			while (getppid() == getpgid(0))
				sched_yield();
			live();
		}
		_exit(0);
	}
	subject_need(waitpid(leader, NULL, 0) == leader, "waitpid");
	expect(1);
}

/* An orphan whose session has a leader that lives on. */
static void make_orphan(void)
{
	if (beget() == 0) {
		pid_t between;

		setsid();
		between = beget();
		if (between == 0) {
			pid_t here = getpid();

			if (beget() == 0) {
				while (getppid() == here)
					sched_yield();
				live();
			}
			_exit(0);
		}
		waitpid(between, NULL, 0);
		live();
	}
	expect(2);
}

/* Groups of two: one with its leader, and one without. */
static void make_groups(void)
{
	pid_t leader = beget();

	if (leader == 0) {
		setpgid(0, 0);
		beget_living();
		live();
	}
	expect(2);
	leader = beget();
	if (leader == 0) {
		setpgid(0, 0);
		for (;;)
			pause();
	}
	setpgid(leader, leader);
	for (int i = 0; i < 2; i++) {
		if (beget() == 0) {
			subject_need(setpgid(0, leader) == 0, "setpgid");
			live();
		}
	}
	expect(2);
	kill(leader, SIGKILL);
	subject_need(waitpid(leader, NULL, 0) == leader, "waitpid");
}

static pid_t make_stopped(void)
{
	pid_t pid = beget_living();
	int status;

	expect(1);
	kill(pid, SIGSTOP);
	subject_need(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "waitpid");
	return pid;
}

/* Everybody below the root, by the kernel's own lists. */
static unsigned list(pid_t pid, struct identity *members, unsigned count)
{
	char path[64], text[4096] = "", *rest, *word;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
		*text = '\0';
	close(fd);
	for (word = strtok_r(text, " ", &rest); word && count < MEMBERS_MAX;
	     word = strtok_r(NULL, " ", &rest)) {
		members[count] = identify(atoi(word));
		count = list(atoi(word), members, count + 1);
	}
	return count;
}

static const struct identity *find(const struct identity *members, unsigned count, pid_t pid)
{
	for (unsigned i = 0; i < count; i++)
		if (members[i].pid == pid)
			return &members[i];
	return NULL;
}

static void check_members(const struct identity *before, unsigned count)
{
	struct identity now[MEMBERS_MAX];
	unsigned count_now = list(getpid(), now, 0);

	subject_check(count_now == count, "%u members, were %u", count_now, count);
	for (unsigned i = 0; i < count; i++) {
		const struct identity *other = find(now, count_now, before[i].pid);

		if (subject_check(other != NULL, "process %d is gone", before[i].pid))
			subject_check(
			        other->parent == before[i].parent &&
			                other->group == before[i].group &&
			                other->session == before[i].session &&
			                other->state == before[i].state,
			        "process %d: %c, parent %d, group %d, session %d; was %c, %d, "
			        "%d, %d",
			        other->pid, other->state, other->parent, other->group,
			        other->session, before[i].state, before[i].parent, before[i].group,
			        before[i].session);
	}
}

static void check_ended(void)
{
	int status, exited = 0, killed = 0;
	siginfo_t info = {0};

	/* Each has been seen by the parent's handler once; none comes again. */
	for (int i = 0; i < 2; i++) {
		subject_check(waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid > 0,
		              "an ended child is not to be collected");
		status = info.si_status;
		exited += info.si_code == CLD_EXITED && status == 7;
		killed += info.si_code == CLD_KILLED && status == SIGUSR2;
	}
	subject_check(exited == 1, "the one that ended with status 7 is not there");
	subject_check(killed == 1, "the one that was killed is not there");
}

/* All go on together, through the pipe, and write through the one open file. */
static void check_shared(pid_t stopped)
{
	char bytes[MEMBERS_MAX] = "";
	unsigned ended = 0;
	off_t offset;

	kill(stopped, SIGCONT);
	subject_check(write(go[1], bytes, expected) == expected, "write: %s", strerror(errno));
	while (atomic_load(&family->looked) < expected)
		sched_yield();
	subject_check(write(leave[1], bytes, expected) == expected, "write: %s", strerror(errno));
	while (ended < expected && waitpid(-1, NULL, 0) > 0)
		ended++;
	subject_check(ended == expected, "%u of %u came to the root", ended, expected);
	subject_check(atomic_load(&family->passed) == expected, "%u of %u are as they were",
	              atomic_load(&family->passed), expected);
	offset = lseek(file, 0, SEEK_CUR);
	subject_check(offset == 5 * (off_t)expected, "the offset is %ld", (long)offset);
}

static atomic_int heard;

static void hear(int signal)
{
	atomic_fetch_add(&heard, 1);
}

int main(void)
{
	struct identity before[MEMBERS_MAX];
	pid_t stopped;
	unsigned count;

	family = mmap(NULL, sizeof(*family), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	subject_need(family != MAP_FAILED, "mmap");
	subject_need(pipe(go) == 0 && pipe(leave) == 0, "pipe");
	file = open("family", O_RDWR | O_CREAT | O_TRUNC, 0600);
	subject_need(file >= 0, "open");
	subject_need(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "prctl");
	make_leader();
	make_daemon();
	make_orphan();
	make_groups();
	stopped = make_stopped();
	make_ended(7);
	make_ended(-SIGUSR2);
	make_ended_clone(SIGURG);
	count = list(getpid(), before, 0);
	subject_need(count == expected + 3, "%u members", count);
	signal(SIGCHLD, hear);
	signal(SIGURG, hear);
	subject_ready();
	subject_check(atomic_load(&heard) == 0, "heard of %d children", atomic_load(&heard));
	check_members(before, count);
	check_ended();
	check_shared(stopped);
	return subject_end();
}
