/*
 * An established TCP connection, given up by the dump: both ends read as closed by the other.
 *
 * subject: except=running,live dump=--tcp-close (a program that runs on keeps it)
 */
#include "subject.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static void check_closed(int fd, const char *what)
{
	struct pollfd poll_fd = {fd, POLLIN, 0};
	char byte;

	subject_check(poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLHUP),
	              "%s: poll does not report a hang-up", what);
	subject_check(read(fd, &byte, 1) == 0, "%s: does not read as closed", what);
	subject_check(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE,
	              "%s: can be written to", what);
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	const int yes = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	subject_need(bind(listener, (struct sockaddr *)&address, size) == 0, "bind");
	subject_need(listen(listener, 5) == 0, "listen");
	subject_need(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
	subject_need(connect(client, (struct sockaddr *)&address, size) == 0, "connect");
	int server = accept(listener, NULL, NULL);
	subject_need(server >= 0 && write(server, "unread", 6) == 6, "accept");
	subject_ready();
	check_closed(client, "client");
	check_closed(server, "server");
	int again = socket(AF_INET, SOCK_STREAM, 0);
	subject_check(connect(again, (struct sockaddr *)&address, size) == 0, "connect again: %s",
	              strerror(errno));
	return subject_end();
}
