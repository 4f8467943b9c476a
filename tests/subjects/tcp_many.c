/*
 * Two hundred ends of TCP connections, each with something of its own to be read, so many that a dump reads several at
 * once: none is taken for another.
 *
 * subject: dump=--tcp-established restore=--tcp-established
 */
#include "tcp_pair.h"

#include <poll.h>

#define PAIRS 100

static struct pair pairs[PAIRS];

static void check(int fd, unsigned number, char direction)
{
	char expected[32], text[32] = "";

	snprintf(expected, sizeof(expected), "%u%c", number, direction);
	subject_check(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 30000) == 1 &&
	                      read(fd, text, sizeof(text) - 1) == (ssize_t)strlen(expected) &&
	                      !strcmp(text, expected),
	              "\"%s\" instead of \"%s\"", text, expected);
}

static void say(int fd, unsigned number, char direction)
{
	char text[32];
	int size = snprintf(text, sizeof(text), "%u%c", number, direction);

	subject_check(send(fd, text, (size_t)size, MSG_NOSIGNAL) == size, "send: %s",
	              strerror(errno));
}

int main(void)
{
	const struct sockaddr_in loopback = {.sin_family = AF_INET,
	                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 address = {0};

	memcpy(&address, &loopback, sizeof(loopback));
	for (unsigned i = 0; i < PAIRS; i++) {
		pairs[i] = make_pair_at(AF_INET, address);
		close(pairs[i].listener);
		say(pairs[i].client, i, '>');
		say(pairs[i].server, i, '<');
	}
	subject_ready();
	for (unsigned i = 0; i < PAIRS; i++) {
		check(pairs[i].server, i, '>');
		check(pairs[i].client, i, '<');
		say(pairs[i].client, i, '+');
		check(pairs[i].server, i, '+');
	}
	return subject_end();
}
