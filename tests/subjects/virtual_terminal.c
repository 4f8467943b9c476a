/*
 * A virtual terminal that the program has opened by itself: the device, its modes, and that nobody else may open it.
 *
 * Only the superuser may open one.
 *
 * subject: except=user
 */
#include "subject.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

/* Of its own in each mode, by the first letter of the directory's name: no namespace keeps them apart. */
static const char *choose(void)
{
	static char path[32];
	char directory[4096] = "";
	const char *mode;

	subject_need(getcwd(directory, sizeof(directory)) != NULL, "getcwd");
	mode = strrchr(directory, '/');
	snprintf(path, sizeof(path), "/dev/tty%d", 20 + (mode ? mode[1] % 32 : 0));
	return path;
}

int main(void)
{
	const char *path = choose();
	int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK), exclusive = 0;
	struct termios before, modes, after = {0};
	struct stat stat = {0}, path_stat = {0};

	if (fd < 0)
		subject_skip("there is no %s here", path);
	subject_need(tcgetattr(fd, &before) == 0, "tcgetattr");
	modes = before;
	cfmakeraw(&modes);
	modes.c_cc[VMIN] = 7;
	cfsetspeed(&modes, B9600);
	subject_need(tcsetattr(fd, TCSANOW, &modes) == 0 && tcgetattr(fd, &modes) == 0 &&
	                     ioctl(fd, TIOCEXCL) == 0,
	             "modes");

	subject_ready();

	subject_check(fstat(fd, &stat) == 0 && lstat(path, &path_stat) == 0 &&
	                      stat.st_rdev == path_stat.st_rdev,
	              "another device");
	subject_check(tcgetattr(fd, &after) == 0 && after.c_lflag == modes.c_lflag &&
	                      after.c_iflag == modes.c_iflag && after.c_cflag == modes.c_cflag &&
	                      after.c_cc[VMIN] == modes.c_cc[VMIN],
	              "other modes: %#x %#x %#x %u, were %#x %#x %#x %u", after.c_lflag,
	              after.c_iflag, after.c_cflag, after.c_cc[VMIN], modes.c_lflag, modes.c_iflag,
	              modes.c_cflag, modes.c_cc[VMIN]);
	subject_check(ioctl(fd, TIOCGEXCL, &exclusive) == 0 && exclusive, "not exclusive");
	ioctl(fd, TIOCNXCL);
	tcsetattr(fd, TCSANOW, &before);
	return subject_end();
}
