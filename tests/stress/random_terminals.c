/* Steps: pseudoterminals, with their modes and what waits in them, and controlling terminals. */
#include "random.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static int open_master(char *name, size_t size)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);

	subject_need(master >= 0 && !unlockpt(master) && !ptsname_r(master, name, size),
	             "a master");
	return master;
}

static void set_modes(int slave)
{
	struct winsize size = {.ws_row = (unsigned short)below(100),
	                       .ws_col = (unsigned short)below(200)};
	struct termios modes;

	subject_need(!tcgetattr(slave, &modes), "tcgetattr");
	if (chance(30))
		cfmakeraw(&modes);
	if (chance(50))
		modes.c_lflag ^= ECHO | ECHOCTL;
	if (chance(50))
		modes.c_iflag ^= IXANY | ICRNL;
	if (chance(50))
		modes.c_cc[VINTR] = (cc_t)below(30);
	tcsetattr(slave, TCSANOW, &modes);
	if (chance(50))
		ioctl(slave, TIOCSWINSZ, &size);
}

/* In both directions; whole lines and half ones. */
static void type(int master, int slave)
{
	static const char text[] = "what is typed\nand half of a li";

	if (chance(50))
		subject_need(write(master, text, 1 + below(sizeof(text) - 1)) > 0, "write");
	if (chance(50))
		subject_need(write(slave, text, 1 + below(sizeof(text) - 1)) > 0, "write");
}

static void make_terminal(void)
{
	int master, slave, one = 1;
	char name[64];

	master = open_master(name, sizeof(name));
	slave = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK);
	subject_need(slave >= 0, "a slave");
	set_modes(slave);
	type(master, slave);
	if (chance(20))
		ioctl(master, TIOCPKT, &one);
	if (chance(20))
		ioctl(master, TIOCSPTLCK, &one);
	keep_or_close(slave, 80);
	keep_or_close(master, 85);
}

/* For a leader that has none. */
static void take_terminal(void)
{
	int master, slave;
	char name[64];

	if (getsid(0) != getpid())
		return;
	slave = open("/dev/tty", O_RDWR | O_NOCTTY);
	if (slave >= 0) {
		keep(slave, "/dev/tty");
		return;
	}
	master = keep(open_master(name, sizeof(name)), "a master");
	slave = keep(open(name, O_RDWR | O_NONBLOCK), "a slave");
	set_modes(slave);
	type(master, slave);
}

const struct step terminal_steps[] = {
        {"terminal", make_terminal, 5},
        {"controlling-terminal", take_terminal, 4},
        {NULL, NULL, 0},
};
