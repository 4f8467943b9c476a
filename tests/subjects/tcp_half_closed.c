/*
 * TCP connections of which one end, or both, have been told that there is no more to come: in every state that a
 * descriptor can keep such a connection in, and with data that are still on their way in front of the end.
 *
 * subject: dump=--tcp-established restore=--tcp-established
 */
#include "tcp_pair.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

static struct pair make_pair_on(const char *host)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6};
	struct pair pair;

	inet_pton(AF_INET6, host, &address.sin6_addr);
	pair = make_pair_at(AF_INET6, address);
	close(pair.listener);
	return pair;
}

static struct pair make_pair(void)
{
	return make_pair_on("::ffff:127.0.0.1");
}

static int state_of(int fd)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
	return info.tcpi_state;
}

/* The kernel answers itself within no time, but not within the call. */
static void need_states(struct pair pair, int client, int server)
{
	for (int i = 0; i < 10000; i++) {
		if (state_of(pair.client) == client && state_of(pair.server) == server)
			return;
		sched_yield();
		usleep(100);
	}
	subject_need(false, "states are %d and %d, not %d and %d", state_of(pair.client),
	             state_of(pair.server), client, server);
}

static void check_states(struct pair pair, int client, int server, const char *what)
{
	subject_check(state_of(pair.client) == client && state_of(pair.server) == server,
	              "%s: states are %d and %d, were %d and %d", what, state_of(pair.client),
	              state_of(pair.server), client, server);
}

static unsigned char byte_at(size_t place)
{
	return (unsigned char)(place * 37 + place / 509);
}

static size_t fill(int fd)
{
	unsigned char piece[7001];
	size_t written = 0;

	do {
		ssize_t got;

		for (size_t i = 0; i < sizeof(piece); i++)
			piece[i] = byte_at(written + i);
		got = send(fd, piece, sizeof(piece), MSG_DONTWAIT | MSG_NOSIGNAL);
		written += got > 0 ? (size_t)got : 0;
	} while (poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 100) == 1);
	return written;
}

/* Everything arrives, and then the end. */
static void drain_to_the_end(int fd, size_t expected, const char *what)
{
	unsigned char piece[8192];
	size_t total = 0;
	ssize_t got = 0;

	while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 30000) == 1 &&
	       (got = read(fd, piece, sizeof(piece))) > 0)
		for (ssize_t i = 0; i < got; i++, total++)
			if (!subject_check(piece[i] == byte_at(total), "%s: byte %zu is wrong",
			                   what, total))
				return;
	subject_check(total == expected, "%s: %zu bytes, not %zu", what, total, expected);
	subject_check(got == 0, "%s: no end", what);
}

static void check_carries(int from, int to, const char *what)
{
	char text[4];

	subject_check(send(from, "more", 4, MSG_NOSIGNAL) == 4, "%s: send: %s", what,
	              strerror(errno));
	subject_check(poll(&(struct pollfd){to, POLLIN, 0}, 1, 30000) == 1 &&
	                      read(to, text, 4) == 4 && !memcmp(text, "more", 4),
	              "%s: it does not arrive", what);
}

static void check_silent(int fd, const char *what)
{
	subject_check(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE,
	              "%s: can be written to", what);
}

int main(void)
{
	struct pair half = make_pair_on("::1"), waiting = make_pair(), stuck = make_pair();
	struct pair closing = make_pair(), last = make_pair(), deaf = make_pair();
	unsigned char some[300];
	size_t in_stuck, in_closing, in_last;

	for (size_t i = 0; i < sizeof(some); i++)
		some[i] = byte_at(i);
	/* The end was seen already; and it waits behind data. */
	shutdown(half.client, SHUT_WR);
	subject_need(read(half.server, some + 299, 1) == 0, "read");
	need_states(half, TCP_FIN_WAIT2, TCP_CLOSE_WAIT);
	some[299] = byte_at(299);
	subject_need(write(waiting.client, some, 300) == 300, "write");
	shutdown(waiting.client, SHUT_WR);
	need_states(waiting, TCP_FIN_WAIT2, TCP_CLOSE_WAIT);
	/* The end is stuck behind data that the other end has no room for. */
	in_stuck = fill(stuck.client);
	shutdown(stuck.client, SHUT_WR);
	need_states(stuck, TCP_FIN_WAIT1, TCP_ESTABLISHED);
	in_closing = fill(closing.client);
	shutdown(closing.client, SHUT_WR);
	shutdown(closing.server, SHUT_WR);
	need_states(closing, TCP_CLOSING, TCP_FIN_WAIT2);
	shutdown(last.server, SHUT_WR);
	need_states(last, TCP_CLOSE_WAIT, TCP_FIN_WAIT2);
	in_last = fill(last.client);
	shutdown(last.client, SHUT_WR);
	need_states(last, TCP_LAST_ACK, TCP_FIN_WAIT2);
	/* Only the program knows of this. */
	shutdown(deaf.client, SHUT_RD);

	subject_ready();

	check_states(half, TCP_FIN_WAIT2, TCP_CLOSE_WAIT, "half");
	check_states(waiting, TCP_FIN_WAIT2, TCP_CLOSE_WAIT, "waiting");
	check_states(stuck, TCP_FIN_WAIT1, TCP_ESTABLISHED, "stuck");
	check_states(closing, TCP_CLOSING, TCP_FIN_WAIT2, "closing");
	check_states(last, TCP_LAST_ACK, TCP_FIN_WAIT2, "last");
	check_silent(half.client, "half");
	check_carries(half.server, half.client, "half");
	drain_to_the_end(half.server, 0, "half");
	drain_to_the_end(waiting.server, 300, "waiting");
	check_carries(waiting.server, waiting.client, "waiting");
	check_silent(stuck.client, "stuck");
	drain_to_the_end(stuck.server, in_stuck, "stuck");
	check_carries(stuck.server, stuck.client, "stuck");
	check_silent(closing.client, "closing, client");
	check_silent(closing.server, "closing, server");
	drain_to_the_end(closing.server, in_closing, "closing");
	drain_to_the_end(closing.client, 0, "closing");
	drain_to_the_end(last.server, in_last, "last");
	subject_check(recv(deaf.client, some, 1, MSG_DONTWAIT) == 0, "deaf: is not");
	subject_check(write(deaf.client, some, 1) == 1 && read(deaf.server, some, 1) == 1,
	              "deaf: cannot speak");
	return subject_end();
}
