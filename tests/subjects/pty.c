/*
 * Pseudoterminals that a program holds both ends of: names, modes, size, node, what waits in both directions,
 * and ends that are closed, dead, locked, stopped.
 */
#include "subject.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

struct pair {
	int master, slave;
	char name[64];
};

#define PATTERN_SIZE 9000 /* more than the 4095 bytes that a terminal holds */

static char pattern[PATTERN_SIZE];

static struct pair open_pair(bool with_slave)
{
	struct pair pair = {.master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK), .slave = -1};

	subject_need(pair.master >= 0 && !ptsname_r(pair.master, pair.name, sizeof(pair.name)),
	             "a master");
	if (!with_slave)
		return pair;
	subject_need(!unlockpt(pair.master), "unlockpt");
	pair.slave = open(pair.name, O_RDWR | O_NOCTTY | O_NONBLOCK);
	subject_need(pair.slave >= 0, "a slave");
	return pair;
}

static void make_raw(int fd)
{
	struct termios modes;

	subject_need(!tcgetattr(fd, &modes), "tcgetattr");
	cfmakeraw(&modes);
	subject_need(!tcsetattr(fd, TCSANOW, &modes), "tcsetattr");
}

static void put(int fd, const char *text)
{
	subject_need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

static void expect(int fd, const char *expected, const char *what)
{
	char text[256] = "";
	ssize_t size = read(fd, text, sizeof(text) - 1);

	subject_check(size == (ssize_t)strlen(expected) && !strcmp(text, expected),
	              "%s: \"%s\", not \"%s\"", what, size < 0 ? strerror(errno) : text, expected);
}

static void expect_error(int fd, int code, const char *what)
{
	char text[256] = "";
	ssize_t size = read(fd, text, sizeof(text) - 1);

	subject_check(size < 0 && errno == code, "%s: read %zd, \"%s\"", what, size, text);
}

/* Also waits until what was written has arrived. */
static short events(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLPRI | POLLOUT};

	poll(&poll_fd, 1, 0);
	return poll_fd.revents;
}

static void wait_for_input(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	subject_check(poll(&poll_fd, 1, 20000) == 1, "nothing arrives");
}

static int number_of(int fd, unsigned long request)
{
	int value = -1;

	subject_check(!ioctl(fd, request, &value), "ioctl %#lx: %s", request, strerror(errno));
	return value;
}

/* All of the pattern, and nothing else. */
static void expect_pattern(int fd, const char *what)
{
	size_t total = 0;
	char text[4096];
	ssize_t size;

	while (total < PATTERN_SIZE && (size = read(fd, text, sizeof(text))) > 0) {
		if (!subject_check(total + (size_t)size <= PATTERN_SIZE &&
		                           !memcmp(text, pattern + total, (size_t)size),
		                   "%s: differs behind byte %zu", what, total))
			return;
		total += (size_t)size;
	}
	subject_check(total == PATTERN_SIZE, "%s: %zu bytes", what, total);
	expect_error(fd, EAGAIN, what);
}

/* --- modes, size and node --- */

static struct pair plain;
static uid_t owner; /* another one, if it may give things away */
static gid_t group;
static int append_only;

static void make_plain(void)
{
	const struct winsize size = {
	        .ws_row = 33, .ws_col = 101, .ws_xpixel = 808, .ws_ypixel = 528};
	struct termios modes;

	plain = open_pair(true);
	subject_need(!tcgetattr(plain.slave, &modes), "tcgetattr");
	modes.c_iflag |= IXANY | IUTF8;
	modes.c_lflag &= ~(tcflag_t)ECHOK;
	modes.c_cc[VINTR] = 7;
	cfsetspeed(&modes, B9600);
	subject_need(!tcsetattr(plain.slave, TCSANOW, &modes), "tcsetattr");
	subject_need(!ioctl(plain.master, TIOCSWINSZ, &size), "TIOCSWINSZ");
	owner = getuid() ? getuid() : 12;
	group = getuid() ? getgid() : 34;
	subject_need(!fchown(plain.slave, owner, group) && !fchmod(plain.slave, 0641),
	             "fchown, fchmod");
	append_only = open(plain.name, O_WRONLY | O_NOCTTY | O_APPEND);
	subject_need(append_only >= 0, "another open file of the slave");
}

static void check_plain(void)
{
	struct termios modes = {0};
	struct winsize size = {0};
	struct stat stat = {0}, by_name = {0};
	char name[64] = "", master_name[64] = "";

	ttyname_r(plain.slave, name, sizeof(name));
	ptsname_r(plain.master, master_name, sizeof(master_name));
	subject_check(!strcmp(name, plain.name) && !strcmp(master_name, plain.name),
	              "%s is called %s and %s", plain.name, name, master_name);
	tcgetattr(plain.slave, &modes);
	subject_check(modes.c_iflag & IXANY && modes.c_iflag & IUTF8 && !(modes.c_lflag & ECHOK) &&
	                      modes.c_cc[VINTR] == 7 && cfgetospeed(&modes) == B9600,
	              "modes");
	ioctl(plain.slave, TIOCGWINSZ, &size);
	subject_check(size.ws_row == 33 && size.ws_col == 101 && size.ws_xpixel == 808 &&
	                      size.ws_ypixel == 528,
	              "size %u x %u", size.ws_col, size.ws_row);
	fstat(plain.slave, &stat);
	subject_check(stat.st_uid == owner && stat.st_gid == group &&
	                      (stat.st_mode & 07777) == 0641,
	              "owner %u:%u, mode %o", stat.st_uid, stat.st_gid, stat.st_mode);
	subject_check(!lstat(plain.name, &by_name) && by_name.st_ino == stat.st_ino,
	              "the name leads to another node");
	subject_check(fcntl(append_only, F_GETFL) & O_APPEND &&
	                      !(fcntl(append_only, F_GETFL) & O_NONBLOCK),
	              "flags of the second open file");
	put(append_only, "by the second");
	wait_for_input(plain.master);
	expect(plain.master, "by the second", "written by the second open file");
	put(plain.master, "typed\r");
	wait_for_input(plain.slave);
	expect(plain.slave, "typed\n", "typed");
	expect(plain.master, "typed\r\n", "echo");
}

/* --- what waits --- */

static struct pair raw, lines, full, full_lines;

static void put_pattern(int fd, int other_end)
{
	for (size_t i = 0; i < PATTERN_SIZE; i += 1000) {
		subject_need(write(fd, pattern + i, 1000) == 1000, "write a lot");
		events(other_end);
	}
}

static void make_waiting(void)
{
	raw = open_pair(true);
	make_raw(raw.slave);
	put(raw.master, "\x03\x04 raw\n\r\x13 input\x16");
	put(raw.slave, "output\n");

	lines = open_pair(true);
	put(lines.master, "first\nsec\x16\x04ond\x04\x04third\nfour");

	full = open_pair(true);
	make_raw(full.slave);
	put_pattern(full.master, full.slave);
	put_pattern(full.slave, full.master);

	/* 300 lines of 20, each answered by an echo, where it has been seen. */
	full_lines = open_pair(true);
	for (int i = 0; i < 300; i++) {
		char line[32];

		snprintf(line, sizeof(line), "line %4d 1\x7f 3456\r", i);
		put(full_lines.master, line);
	}
	events(full_lines.slave);
}

static void check_lines(void)
{
	expect(lines.slave, "first\n", "line");
	expect(lines.slave, "sec\x04ond", "line without a newline");
	expect(lines.slave, "", "end of file");
	expect(lines.slave, "third\n", "line");
	expect_error(lines.slave, EAGAIN, "line that is not complete");
	expect(lines.master, "first\r\nsec^\b^Dondthird\r\nfour", "echo");
	put(lines.master, "\x7f\x7f"
	                  "ive\n");
	wait_for_input(lines.slave);
	expect(lines.slave, "foive\n", "edited line");
}

static void check_waiting(void)
{
	int i;

	expect(raw.slave, "\x03\x04 raw\n\r\x13 input\x16", "raw input");
	expect_error(raw.slave, EAGAIN, "raw input");
	expect(raw.master, "output\n", "output");
	expect_error(raw.master, EAGAIN, "output");
	check_lines();
	expect_pattern(full.slave, "much input");
	expect_pattern(full.master, "much output");
	for (i = 0; i < 300; i++) {
		char line[32];

		snprintf(line, sizeof(line), "line %4d  3456\n", i);
		wait_for_input(full_lines.slave);
		expect(full_lines.slave, line, "one of many lines");
		snprintf(line, sizeof(line), "line %4d 1\b \b 3456\r\n", i);
		wait_for_input(full_lines.master);
		subject_check(read(full_lines.master, pattern, strlen(line)) ==
		                              (ssize_t)strlen(line) &&
		                      !memcmp(pattern, line, strlen(line)),
		              "echo of line %d", i);
	}
	expect_error(full_lines.slave, EAGAIN, "many lines");
	expect_error(full_lines.master, EAGAIN, "echo of many lines");
}

/* --- ends --- */

static struct pair fresh, half, dead, hung_up, locked, stopped, held;
static int dead_twin;

static void make_ends(void)
{
	fresh = open_pair(false);
	half = open_pair(true);
	put(half.slave, "last words");
	close(half.slave);
	dead = open_pair(true);
	dead_twin = open(dead.name, O_RDONLY | O_NOCTTY);
	close(dead.master);
	hung_up = open_pair(true);
	/* Only root may do that to a terminal that is not its own. */
	subject_need(!ioctl(hung_up.slave, TIOCVHANGUP) || getuid(), "TIOCVHANGUP");
	put(open(hung_up.name, O_RDWR | O_NOCTTY), "afterwards");
	locked = open_pair(true);
	subject_need(!ioctl(locked.master, TIOCSPTLCK, &(int){1}) &&
	                     !ioctl(locked.master, TIOCPKT, &(int){1}) &&
	                     !ioctl(locked.slave, TIOCEXCL),
	             "lock, packet and exclusive mode");
	put(locked.slave, "in a packet");
	stopped = open_pair(true);
	put(stopped.master, "\x13");
	held = open_pair(true);
	subject_need(!tcflow(held.slave, TCOOFF), "tcflow");
	put(held.master, "typed\n");
	events(stopped.slave);
	events(held.slave);
	subject_need(write(stopped.slave, "x", 1) < 0 && write(held.slave, "x", 1) < 0,
	             "stopped output");
}

static void check_open_ends(void)
{
	int slave;

	subject_check(events(fresh.master) == POLLOUT, "fresh: %#x", events(fresh.master));
	subject_check(open(fresh.name, O_RDWR | O_NOCTTY) < 0 && errno == EIO, "fresh: is open");
	subject_check(!unlockpt(fresh.master), "unlockpt");
	slave = open(fresh.name, O_RDWR | O_NOCTTY);
	subject_check(slave >= 0, "the slave of the fresh one: %s", strerror(errno));
	put(slave, "first");
	wait_for_input(fresh.master);
	expect(fresh.master, "first", "fresh");

	subject_check(events(half.master) & POLLHUP, "half: %#x", events(half.master));
	expect(half.master, "last words", "half");
	expect_error(half.master, EIO, "half");
	slave = open(half.name, O_RDWR | O_NOCTTY);
	subject_check(slave >= 0 && !(events(half.master) & POLLHUP), "half, opened again");
}

static void check_dead(void)
{
	struct termios modes;
	char byte;

	subject_check(events(dead.slave) & POLLHUP, "dead: %#x", events(dead.slave));
	subject_check(read(dead.slave, &byte, 1) == 0 && read(dead_twin, &byte, 1) == 0,
	              "dead: can be read");
	subject_check(write(dead.slave, "x", 1) < 0 && errno == EIO, "dead: can be written");
	subject_check(tcgetattr(dead_twin, &modes) && errno == EIO, "dead: has modes");
	subject_check(getuid() || (write(hung_up.slave, "x", 1) < 0 && errno == EIO),
	              "hung up: can be written");
	subject_check(!(events(hung_up.master) & POLLHUP), "hung up: so is the master");
	expect(hung_up.master, "afterwards", "hung up, and opened again");
}

static void check_special(void)
{
	subject_check(number_of(locked.master, TIOCGPTLCK) == 1, "is not locked");
	subject_check(number_of(locked.master, TIOCGPKT) == 1, "is not in packet mode");
	subject_check(number_of(locked.slave, TIOCGEXCL) == 1, "is not exclusive");
	subject_check(number_of(locked.master, TIOCGEXCL) == 0, "the master is exclusive");
	subject_check(!(events(locked.master) & POLLPRI), "a change of state waits in packet mode");
	wait_for_input(locked.master);
	{
		char text[32] = "";

		subject_check(read(locked.master, text, sizeof(text) - 1) == 12 && !text[0] &&
		                      !strcmp(text + 1, "in a packet"),
		              "packet: \"%s\"", text + 1);
	}

	subject_check(write(stopped.slave, "x", 1) < 0 && errno == EAGAIN, "not stopped by ^S");
	subject_check(!tcflow(stopped.slave, TCOON) && !(events(stopped.slave) & POLLOUT),
	              "stopped by tcflow, not by ^S");
	put(stopped.master, "\x11");
	events(stopped.slave);
	subject_check(write(stopped.slave, "x", 1) == 1, "does not go on with ^Q");

	subject_check(write(held.slave, "x", 1) < 0 && errno == EAGAIN, "not stopped by tcflow");
	expect(held.slave, "typed\n", "typed while output was stopped");
	put(held.master, "\x11");
	events(held.slave);
	subject_check(!(events(held.slave) & POLLOUT), "stopped by ^S, not by tcflow");
	subject_check(!tcflow(held.slave, TCOON) && write(held.slave, "x", 1) == 1,
	              "does not go on by tcflow");
}

int main(void)
{
	for (size_t i = 0; i < PATTERN_SIZE; i++)
		pattern[i] = (char)(i * 7 + i / 251);
	make_plain();
	make_waiting();
	make_ends();

	subject_ready();

	check_plain();
	check_open_ends();
	check_dead();
	check_special();
	check_waiting();
	return subject_end();
}
