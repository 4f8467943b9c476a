/* Pairs of unix sockets within the program: contents both ways, message bounds, shut directions. */
#include "subject.h"

#include <sys/socket.h>

static void expect(int fd, const char *text, const char *what)
{
	char bytes[64] = "";
	ssize_t size = recv(fd, bytes, sizeof(bytes) - 1, MSG_DONTWAIT);

	subject_check(size == (ssize_t)strlen(text) && !strcmp(bytes, text),
	              "%s: \"%s\" (%zd) instead of \"%s\"", what, bytes, size, text);
}

static void say(int fd, const char *text)
{
	subject_need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

int main(void)
{
	int stream[2], packets[2], datagrams[2], half[2], widow[2];

	subject_need(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0, "socketpair");
	subject_need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0, "socketpair");
	subject_need(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0, "socketpair");
	subject_need(socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0, "socketpair");
	subject_need(socketpair(AF_UNIX, SOCK_STREAM, 0, widow) == 0, "socketpair");
	say(stream[0], "one ");
	say(stream[0], "way");
	say(stream[1], "other way");
	say(packets[0], "packet one");
	say(packets[0], "packet two");
	say(datagrams[1], "datagram");
	say(half[0], "last words");
	subject_need(shutdown(half[0], SHUT_WR) == 0, "shutdown");
	say(widow[1], "farewell");
	close(widow[1]);

	subject_ready();

	expect(stream[1], "one way", "stream");
	expect(stream[0], "other way", "stream, back");
	expect(packets[1], "packet one", "first packet");
	expect(packets[1], "packet two", "second packet");
	expect(datagrams[0], "datagram", "datagram");
	expect(half[1], "last words", "half shut");
	expect(half[1], "", "half shut, at its end");
	say(half[1], "answer");
	expect(half[0], "answer", "half shut, back");
	subject_check(send(half[0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE,
	              "a shut direction can be written to");
	expect(widow[0], "farewell", "the other end is closed");
	expect(widow[0], "", "the other end is closed, at its end");
	say(stream[0], "goes on");
	expect(stream[1], "goes on", "stream, afterwards");
	return subject_end();
}
