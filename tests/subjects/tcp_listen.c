/* Listening TCP sockets: IPv4, and IPv6 that takes both; address, options and backlog. */
#include "subject.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void set(int fd, int level, int name, int value)
{
	subject_need(setsockopt(fd, level, name, &value, sizeof(value)) == 0, "option %d", name);
}

static int get(int fd, int level, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	getsockopt(fd, level, name, &value, &size);
	return value;
}

static int make_listener(int family)
{
	struct sockaddr_in6 address = {.sin6_family = (sa_family_t)family};
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		subject_skip("no sockets of family %d: %s", family, strerror(errno));
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (family == AF_INET6)
		set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	subject_need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 321);
	subject_need(listen(fd, 29) == 0, "listen");
	return fd;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in6 address = {0};
	socklen_t size = sizeof(address);

	subject_check(getsockname(fd, (struct sockaddr *)&address, &size) == 0, "getsockname");
	return address.sin6_port; /* IPv4 has it at the same place */
}

/* Connects by IPv4, and passes a byte. */
static void check_service(int listener, const char *what)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_port = port_of(listener),
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int client = socket(AF_INET, SOCK_STREAM, 0), server;
	char byte = 0;

	if (!subject_check(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0,
	                   "%s: connect: %s", what, strerror(errno)))
		return;
	server = accept(listener, NULL, NULL);
	subject_check(server >= 0, "%s: accept: %s", what, strerror(errno));
	subject_check(get(server, IPPROTO_TCP, TCP_KEEPIDLE) == 321,
	              "%s: options are not inherited", what);
	subject_check(write(client, "x", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'x',
	              "%s: the connection does not work", what);
	close(client);
	close(server);
}

static void check(int fd, uint16_t port, const char *what)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);

	subject_check(port_of(fd) == port, "%s: another port", what);
	subject_check(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0, "TCP_INFO");
	subject_check(info.tcpi_sacked == 29, "%s: backlog %u", what, info.tcpi_sacked);
	subject_check(get(fd, SOL_SOCKET, SO_REUSEADDR) == 1, "%s: SO_REUSEADDR", what);
	subject_check(get(fd, SOL_SOCKET, SO_KEEPALIVE) == 1, "%s: SO_KEEPALIVE", what);
	subject_check(get(fd, IPPROTO_TCP, TCP_NODELAY) == 1, "%s: TCP_NODELAY", what);
	check_service(fd, what);
}

int main(void)
{
	int v4 = make_listener(AF_INET), dual = make_listener(AF_INET6);
	uint16_t v4_port = port_of(v4), dual_port = port_of(dual);

	subject_ready();
	check(v4, v4_port, "IPv4");
	check(dual, dual_port, "dual stack");
	subject_check(get(dual, IPPROTO_IPV6, IPV6_V6ONLY) == 0, "IPV6_V6ONLY");
	return subject_end();
}
