/*
 * TCP connections that are over, with something that has not been read: what was sent before they were closed by both
 * ends, or broken off by the other one.
 */
#include "tcp_pair.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>

static unsigned char byte_at(size_t place)
{
	return (unsigned char)(place * 37 + place / 509);
}

static void send_all(int fd, size_t size)
{
	unsigned char *bytes = malloc(size);

	subject_need(bytes != NULL, "malloc");
	for (size_t i = 0; i < size; i++)
		bytes[i] = byte_at(i);
	subject_need(size == 0 || send(fd, bytes, size, 0) == (ssize_t)size, "send");
	free(bytes);
}

static void need_closed(int fd)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);

	while (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) && info.tcpi_state != TCP_CLOSE)
		sched_yield();
}

static struct pair make_pair(int family, const char *host)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct pair pair;

	if (family == AF_INET)
		memcpy(&v6, &v4, sizeof(v4));
	else
		inet_pton(AF_INET6, host, &v6.sin6_addr);
	pair = make_pair_at(family, v6);
	close(pair.listener);
	return pair;
}

/* The socket whose other end has sent so much and is closed, as this one is. */
static int ended(int family, const char *host, size_t size)
{
	struct pair pair = make_pair(family, host);
	int bytes = 1 << 22;

	setsockopt(pair.client, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	send_all(pair.server, size);
	close(pair.server);
	subject_need(poll(&(struct pollfd){pair.client, POLLRDHUP, 0}, 1, 30000) == 1, "no end");
	subject_need(shutdown(pair.client, SHUT_WR) == 0, "shutdown");
	need_closed(pair.client);
	return pair.client;
}

static int broken_off(size_t size)
{
	struct pair pair = make_pair(AF_INET, NULL);
	const struct linger at_once = {1, 0};
	int error;
	socklen_t error_size = sizeof(error);

	send_all(pair.server, size);
	setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(pair.server);
	need_closed(pair.client);
	subject_need(!getsockopt(pair.client, SOL_SOCKET, SO_ERROR, &error, &error_size) &&
	                     error == ECONNRESET,
	             "SO_ERROR");
	return pair.client;
}

static void check(int fd, size_t expected, const char *what)
{
	unsigned char piece[8192];
	size_t total = 0;
	ssize_t got;

	while ((got = recv(fd, piece, sizeof(piece), MSG_DONTWAIT)) > 0)
		for (ssize_t i = 0; i < got; i++, total++)
			if (!subject_check(piece[i] == byte_at(total), "%s: byte %zu is wrong",
			                   what, total))
				return;
	subject_check(total == expected, "%s: %zu bytes, not %zu", what, total, expected);
	subject_check(got == 0, "%s: no end: %s", what, strerror(errno));
	subject_check(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE,
	              "%s: can be written to", what);
}

int main(void)
{
	int few = ended(AF_INET, NULL, 7), many = ended(AF_INET6, "::1", 100000);
	int mapped = ended(AF_INET6, "::ffff:127.0.0.1", 8), none = ended(AF_INET, NULL, 0);
	int broken = broken_off(300);

	subject_ready();

	check(few, 7, "few bytes");
	check(many, 100000, "many bytes");
	check(mapped, 8, "IPv4 on an IPv6 socket");
	check(none, 0, "nothing");
	check(broken, 300, "a connection that was broken off");
	return subject_end();
}
