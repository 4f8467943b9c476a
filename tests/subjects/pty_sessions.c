/*
 * Terminals of sessions: who has which as its controlling terminal, who has given it up, which group is in
 * the foreground, also if nobody of it is left; a terminal whose session has ended; /dev/tty as a
 * descriptor.
 */
#include "subject.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>

struct terminal {
	int master, slave;
	char name[64];
};

/* What /proc/PID/stat tells of a process. */
struct place {
	int group, session, terminal, foreground;
};

static atomic_uint *begun; /* in memory that all share */
static unsigned expected;
static int go[2];

static struct terminal open_terminal(void)
{
	struct terminal terminal = {.master = posix_openpt(O_RDWR | O_NOCTTY)};

	subject_need(terminal.master >= 0 && !unlockpt(terminal.master) &&
	                     !ptsname_r(terminal.master, terminal.name, sizeof(terminal.name)),
	             "a master");
	terminal.slave = open(terminal.name, O_RDWR | O_NOCTTY);
	subject_need(terminal.slave >= 0, "a slave");
	return terminal;
}

static struct place own_place(void)
{
	struct place place = {0};
	char text[512] = "";
	const char *fields;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	if (read(fd, text, sizeof(text) - 1) < 0)
		*text = '\0';
	close(fd);
	fields = strrchr(text, ')');
	if (fields)
		sscanf(fields, ") %*c %*d %d %d %d %d", &place.group, &place.session,
		       &place.terminal, &place.foreground);
	return place;
}

/* A child; returns in it, too, and then with 0. */
static pid_t beget(void)
{
	pid_t pid = fork();

	subject_need(pid >= 0, "fork");
	return pid;
}

/* Until so many more are there. */
static void expect(unsigned more)
{
	expected += more;
	while (atomic_load(begun) < expected)
		sched_yield();
}

/* Waits for the end of all dumps and restores, and is where it was. */
static void live(void)
{
	struct place before, now;
	char byte;

	before = own_place();
	atomic_fetch_add(begun, 1);
	subject_check(read(go[0], &byte, 1) == 1, "go: %s", strerror(errno));
	now = own_place();
	subject_check(now.group == before.group && now.session == before.session &&
	                      now.terminal == before.terminal &&
	                      now.foreground == before.foreground,
	              "group %d, session %d, terminal %#x, foreground %d; was %d, %d, %#x, %d",
	              now.group, now.session, now.terminal, now.foreground, before.group,
	              before.session, before.terminal, before.foreground);
}

__attribute__((noreturn)) static void leave(void)
{
	_exit(atomic_load(&subject_failures) != 0);
}

static void collect(unsigned children)
{
	for (; children; children--) {
		int status = -1;
		pid_t pid = waitpid(-1, &status, 0);

		subject_check(pid > 0 && status == 0, "child %d: status %#x", pid, status);
	}
}

static void begin_session(const struct terminal *terminal)
{
	signal(SIGTTOU, SIG_IGN);
	subject_need(setsid() > 0 && !ioctl(terminal->slave, TIOCSCTTY, 0), "a session");
}

/* --- a session with two jobs --- */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
	interrupted = 1;
}

/* In the foreground: ^C is for it. */
static void be_foreground(void)
{
	sigset_t none, interrupt_only;

	sigemptyset(&none);
	sigemptyset(&interrupt_only);
	sigaddset(&interrupt_only, SIGINT);
	sigprocmask(SIG_BLOCK, &interrupt_only, NULL);
	signal(SIGINT, interrupt);
	setpgid(0, 0);
	tcsetpgrp(STDERR_FILENO, getpgrp());
	live();
	while (!interrupted)
		sigsuspend(&none);
	leave();
}

/* In the background: reading stops it. */
static void be_background(const struct terminal *terminal)
{
	char byte;

	setpgid(0, 0);
	live();
	signal(SIGTTIN, SIG_DFL);
	subject_check(read(terminal->slave, &byte, 1) == 1, "read: %s", strerror(errno));
	leave();
}

static void be_homeless(const struct terminal *terminal)
{
	subject_need(!ioctl(terminal->slave, TIOCNOTTY), "TIOCNOTTY");
	live();
	subject_check(open("/dev/tty", O_RDWR) < 0 && errno == ENXIO, "has a terminal");
	leave();
}

static void check_dev_tty(int tty, const struct terminal *terminal)
{
	unsigned one = 0, other = 0;

	subject_check(!ioctl(tty, TIOCGDEV, &one) && !ioctl(terminal->slave, TIOCGDEV, &other) &&
	                      one == other,
	              "/dev/tty is %#x, not %#x", one, other);
	subject_check(write(tty, "by /dev/tty", 11) == 11, "write: %s", strerror(errno));
}

static void check_background(pid_t background, const struct terminal *terminal)
{
	int status = 0;

	subject_check(waitpid(background, &status, WUNTRACED) == background && WIFSTOPPED(status) &&
	                      WSTOPSIG(status) == SIGTTIN,
	              "the background: status %#x", status);
	subject_check(!tcsetpgrp(terminal->slave, background), "tcsetpgrp: %s", strerror(errno));
	kill(-background, SIGCONT);
	subject_check(write(terminal->master, "\n", 1) == 1, "write: %s", strerror(errno));
}

static void lead_jobs(const struct terminal *terminal)
{
	pid_t foreground, background;
	int tty, status;

	begin_session(terminal);
	tty = open("/dev/tty", O_RDWR);
	subject_need(tty >= 0, "/dev/tty");
	dup2(terminal->slave, STDERR_FILENO);
	foreground = beget();
	if (foreground == 0)
		be_foreground();
	expect(1);
	background = beget();
	if (background == 0)
		be_background(terminal);
	if (beget() == 0)
		be_homeless(terminal);
	live();
	subject_check(tcgetpgrp(terminal->slave) == foreground, "tcgetpgrp");
	check_dev_tty(tty, terminal);
	subject_check(write(terminal->master, "\x03", 1) == 1, "write: %s", strerror(errno));
	subject_check(waitpid(foreground, &status, 0) == foreground && status == 0,
	              "the foreground: status %#x", status);
	check_background(background, terminal);
	collect(2);
	leave();
}

/* --- others --- */

/* The group in the foreground has ended. */
static void lead_nobody(const struct terminal *terminal)
{
	pid_t job;

	begin_session(terminal);
	job = beget();
	if (job == 0) {
		setpgid(0, 0);
		tcsetpgrp(terminal->slave, getpgrp());
		_exit(0);
	}
	subject_need(waitpid(job, NULL, 0) == job, "waitpid");
	subject_need(tcgetpgrp(terminal->slave) == job, "tcgetpgrp");
	live();
	subject_check(tcgetpgrp(terminal->slave) == job, "another group is in the foreground");
	leave();
}

/* The leader ends, and others of the session have no terminal any more. */
static void outlive_session(const struct terminal *terminal)
{
	pid_t leader;

	begin_session(terminal);
	signal(SIGHUP, SIG_IGN);
	leader = getpid();
	if (beget() == 0) {
		while (getppid() == leader)
			sched_yield();
		live();
		subject_check(open("/dev/tty", O_RDWR) < 0 && errno == ENXIO, "has a terminal");
		subject_check(write(terminal->slave, "afterwards", 10) == 10, "write: %s",
		              strerror(errno));
		leave();
	}
	_exit(0);
}

static void read_word(const struct terminal *terminal, const char *expected_word)
{
	struct pollfd poll_fd = {.fd = terminal->master, .events = POLLIN};
	char text[64] = "";

	subject_check(poll(&poll_fd, 1, 20000) == 1 && poll_fd.revents & POLLIN &&
	                      read(terminal->master, text, sizeof(text) - 1) > 0 &&
	                      strstr(text, expected_word),
	              "\"%s\" was written to %s", text, terminal->name);
}

int main(void)
{
	struct terminal jobs, nobody, ended;
	pid_t leader;

	begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	             0);
	subject_need(begun != MAP_FAILED && pipe(go) == 0, "memory and a pipe");
	subject_need(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "prctl");
	jobs = open_terminal();
	nobody = open_terminal();
	ended = open_terminal();
	if (beget() == 0)
		lead_jobs(&jobs);
	expect(4);
	if (beget() == 0)
		lead_nobody(&nobody);
	expect(1);
	leader = beget();
	if (leader == 0)
		outlive_session(&ended);
	subject_need(waitpid(leader, NULL, 0) == leader, "waitpid");
	expect(1);
	close(jobs.slave);
	close(nobody.slave);
	close(ended.slave);

	subject_ready();

	subject_check(write(go[1], "123456", 6) == 6, "write: %s", strerror(errno));
	read_word(&jobs, "by /dev/tty");
	read_word(&ended, "afterwards");
	collect(3);
	return subject_end();
}
