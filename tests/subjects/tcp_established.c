/*
 * Established TCP connections with both ends in the program, over IPv4, IPv6 and IPv4 on an IPv6 socket:
 * idle ones, one with something in each direction, one that is full in both.
 *
 * subject: dump=--tcp-established restore=--tcp-established
 */
#include "tcp_pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static struct sockaddr_in6 loopback(int family, bool mapped)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	if (family == AF_INET)
		memcpy(&address, &v4, sizeof(v4));
	if (mapped)
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr);
	return address;
}

/* The listener stays open: what was accepted shares its port. */
static struct pair make_pair(int family, bool mapped)
{
	return make_pair_at(family, loopback(family, mapped));
}

/* Bytes by their place in the stream, so that one that is lost, doubled or moved is noticed. */
static unsigned char byte_at(size_t place)
{
	return (unsigned char)(place * 31 + place / 251);
}

/* Writes until no more goes in. */
static size_t fill(int fd)
{
	unsigned char piece[7919];
	size_t written = 0;
	int rounds = 0;

	while (rounds < 50) {
		ssize_t got;

		for (size_t i = 0; i < sizeof(piece); i++)
			piece[i] = byte_at(written + i);
		got = send(fd, piece, sizeof(piece), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (got > 0)
			written += (size_t)got;
		else if (poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 20) == 0)
			rounds = 50;
		else
			rounds++;
	}
	return written;
}

static void drain(int fd, size_t expected, const char *what)
{
	unsigned char piece[8192];
	size_t read_so_far = 0;

	while (read_so_far < expected) {
		ssize_t got;

		if (!subject_check(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 30000) == 1,
		                   "%s: nothing comes after %zu of %zu bytes", what, read_so_far,
		                   expected))
			return;
		got = read(fd, piece, sizeof(piece));
		if (!subject_check(got > 0, "%s: after %zu of %zu bytes: %s", what, read_so_far,
		                   expected, got ? strerror(errno) : "end"))
			return;
		for (ssize_t i = 0; i < got; i++)
			if (!subject_check(piece[i] == byte_at(read_so_far + (size_t)i),
			                   "%s: byte %zu is wrong", what, read_so_far + (size_t)i))
				return;
		read_so_far += (size_t)got;
	}
	subject_check(recv(fd, piece, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN,
	              "%s: there is more than %zu bytes", what, expected);
}

/* Still connected, in both directions. */
static void converse(struct pair pair, const char *what)
{
	char text[8] = "";

	for (int round = 0; round < 3; round++) {
		subject_check(send(pair.client, "ping", 4, MSG_NOSIGNAL) == 4, "%s: ping: %s", what,
		              strerror(errno));
		subject_check(poll(&(struct pollfd){pair.server, POLLIN, 0}, 1, 30000) == 1 &&
		                      read(pair.server, text, 4) == 4 && !memcmp(text, "ping", 4),
		              "%s: no ping arrives", what);
		subject_check(send(pair.server, "pong", 4, MSG_NOSIGNAL) == 4, "%s: pong: %s", what,
		              strerror(errno));
		subject_check(poll(&(struct pollfd){pair.client, POLLIN, 0}, 1, 30000) == 1 &&
		                      read(pair.client, text, 4) == 4 && !memcmp(text, "pong", 4),
		              "%s: no pong arrives", what);
	}
}

static int get(int fd, int level, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	getsockopt(fd, level, name, &value, &size);
	return value;
}

static struct tcp_info info_of(int fd)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
	return info;
}

static void check_options(int fd, const struct tcp_info *before)
{
	struct tcp_info now = info_of(fd);
	char congestion[16] = "";
	socklen_t size = sizeof(congestion);

	subject_check(get(fd, IPPROTO_TCP, TCP_NODELAY) == 1, "TCP_NODELAY is lost");
	subject_check(get(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 77, "TCP_KEEPIDLE is lost");
	subject_check(get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 99000, "TCP_USER_TIMEOUT is lost");
	subject_check(get(fd, SOL_SOCKET, SO_KEEPALIVE) == 1, "SO_KEEPALIVE is lost");
	subject_check(get(fd, SOL_SOCKET, SO_REUSEADDR) == 1, "SO_REUSEADDR is lost");
	subject_check(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, &size) == 0 &&
	                      !strcmp(congestion, "reno"),
	              "congestion control is %s", congestion);
	subject_check(now.tcpi_state == TCP_ESTABLISHED, "state is %d", now.tcpi_state);
	subject_check(now.tcpi_options == before->tcpi_options, "options are %#x, were %#x",
	              now.tcpi_options, before->tcpi_options);
	subject_check(now.tcpi_snd_wscale == before->tcpi_snd_wscale &&
	                      now.tcpi_rcv_wscale == before->tcpi_rcv_wscale,
	              "window scales are %u and %u, were %u and %u", now.tcpi_snd_wscale,
	              now.tcpi_rcv_wscale, before->tcpi_snd_wscale, before->tcpi_rcv_wscale);
	/* Half of the largest window that there was, so it may have grown. */
	subject_check(now.tcpi_snd_mss >= before->tcpi_snd_mss, "MSS is %u, was %u",
	              now.tcpi_snd_mss, before->tcpi_snd_mss);
}

int main(void)
{
	struct pair v4 = make_pair(AF_INET, false), v6 = make_pair(AF_INET6, false);
	struct pair mapped = make_pair(AF_INET6, true), some = make_pair(AF_INET, false);
	struct pair full = make_pair(AF_INET, false), options = make_pair(AF_INET, false);
	const int yes = 1, idle = 77, timeout = 99000;
	struct tcp_info before;
	size_t to_server, to_client;

	setsockopt(options.client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(options.client, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(options.client, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
	setsockopt(options.client, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
	setsockopt(options.client, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	setsockopt(options.client, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	before = info_of(options.client);
	subject_need(write(some.client, "\0\37\76\135", 4) == 4, "write");
	to_server = fill(full.client);
	to_client = fill(full.server);
	subject_need(to_server > 100000 && to_client > 100000, "queues of %zu and %zu bytes",
	             to_server, to_client);
	subject_ready();
	converse(v4, "IPv4");
	converse(v6, "IPv6");
	converse(mapped, "IPv4 on IPv6 sockets");
	drain(some.server, 4, "some");
	converse(some, "some");
	drain(full.server, to_server, "full, to the server");
	drain(full.client, to_client, "full, to the client");
	converse(full, "full, drained");
	check_options(options.client, &before);
	converse(options, "with options");
	return subject_end();
}
