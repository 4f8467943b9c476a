/*
 * What is under way in unix sockets: descriptors of many kinds, sockets within sockets, bounds of messages,
 * datagrams without content, with the names and the credentials of their senders.
 */
#include "subject.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#define MOST 8

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(MOST * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

static void send_fds(int socket, const char *text, const int *fds, size_t count)
{
	union control control = {.header = {.cmsg_level = SOL_SOCKET,
	                                    .cmsg_type = SCM_RIGHTS,
	                                    .cmsg_len = CMSG_LEN(count * sizeof(int))}};
	struct iovec vector = {(void *)text, strlen(text)};
	struct msghdr message = {.msg_iov = &vector,
	                         .msg_iovlen = 1,
	                         .msg_control = &control,
	                         .msg_controllen = CMSG_SPACE(count * sizeof(int))};

	memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	subject_need(sendmsg(socket, &message, 0) == (ssize_t)strlen(text), "sendmsg");
}

/* Receives up to `size` bytes and checks the text; fills in the descriptors, returns how many. */
static size_t receive(int socket, size_t size, const char *text, int *fds, struct ucred *sender,
                      const char *what)
{
	char bytes[64] = "";
	union control control = {0};
	struct iovec vector = {bytes, size};
	struct msghdr message = {.msg_iov = &vector,
	                         .msg_iovlen = 1,
	                         .msg_control = &control,
	                         .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT);
	size_t count = 0;

	subject_check(got == (ssize_t)strlen(text) && !memcmp(bytes, text, strlen(text)),
	              "%s: \"%s\" (%zd) instead of \"%s\"", what, bytes, got, text);
	for (struct cmsghdr *each = CMSG_FIRSTHDR(&message); got >= 0 && each;
	     each = CMSG_NXTHDR(&message, each)) {
		if (each->cmsg_type == SCM_CREDENTIALS && sender)
			memcpy(sender, CMSG_DATA(each), sizeof(*sender));
		if (each->cmsg_type != SCM_RIGHTS)
			continue;
		count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(each), count * sizeof(int));
	}
	return count;
}

static void make_pair(int type, int pair[2])
{
	subject_need(socketpair(AF_UNIX, type, 0, pair) == 0, "socketpair");
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, path);
	return address;
}

/* --- descriptors of many kinds, two of which are one open file --- */

static int kinds[2], kept_file;

static void send_kinds(void)
{
	int pipe_ends[2], fds[MOST], count = 0;

	make_pair(SOCK_SEQPACKET, kinds);
	subject_need(pipe(pipe_ends) == 0 && write(pipe_ends[1], "piped", 5) == 5, "pipe");
	kept_file = open("in_flight", O_RDWR | O_CREAT | O_TRUNC, 0600);
	subject_need(kept_file >= 0 && write(kept_file, "contents", 8) == 8, "file");
	fds[count++] = pipe_ends[0];
	fds[count++] = eventfd(7, 0);
	fds[count++] = memfd_create("in flight", 0);
	subject_need(write(fds[2], "memory", 6) == 6, "memfd");
	fds[count++] = kept_file;
	fds[count++] = open("/dev/null", O_RDWR);
	fds[count++] = timerfd_create(CLOCK_MONOTONIC, 0);
	fds[count++] = open("unlinked", O_RDWR | O_CREAT, 0600);
	subject_need(write(fds[6], "no name", 7) == 7 && unlink("unlinked") == 0, "unlinked");
	send_fds(kinds[0], "many", fds, (size_t)count);
	for (int i = 0; i < count; i++)
		if (fds[i] != kept_file)
			close(fds[i]);
	close(pipe_ends[1]);
}

static void check_kinds(void)
{
	int fds[MOST] = {0};
	char bytes[16] = "";
	uint64_t number = 0;

	if (!subject_check(receive(kinds[1], 16, "many", fds, NULL, "kinds") == 7,
	                   "not all descriptors came"))
		return;
	subject_check(read(fds[0], bytes, 16) == 5 && !memcmp(bytes, "piped", 5), "pipe");
	subject_check(read(fds[0], bytes, 16) == 0, "the pipe has a writer");
	subject_check(read(fds[1], &number, 8) == 8 && number == 7, "eventfd");
	subject_check(pread(fds[2], bytes, 16, 0) == 6 && !memcmp(bytes, "memory", 6), "memfd");
	subject_check(lseek(fds[3], 3, SEEK_SET) == 3 && lseek(kept_file, 0, SEEK_CUR) == 3,
	              "the file was one open file, and is two");
	subject_check(write(fds[4], "x", 1) == 1, "/dev/null");
	subject_check(timerfd_gettime(fds[5], &(struct itimerspec){0}) == 0, "timerfd");
	subject_check(pread(fds[6], bytes, 16, 0) == 7 && !memcmp(bytes, "no name", 7), "unlinked");
}

/* --- sockets within sockets, the last of which is in its own queue --- */

static int outer[2];

static void send_nested(void)
{
	int middle[2], inner[2], event = eventfd(3, 0);

	make_pair(SOCK_STREAM, outer);
	make_pair(SOCK_STREAM, middle);
	make_pair(SOCK_DGRAM, inner);
	send_fds(inner[0], "event", &event, 1);
	send_fds(inner[0], "self", &inner[1], 1);
	send_fds(middle[0], "inner", &inner[1], 1);
	send_fds(outer[0], "middle", &middle[1], 1);
	close(middle[0]);
	close(middle[1]);
	close(inner[0]);
	close(inner[1]);
	close(event);
}

static void check_nested(void)
{
	int middle = -1, inner = -1, event = -1, self = -1;
	uint64_t number = 0;

	receive(outer[1], 16, "middle", &middle, NULL, "nested");
	receive(middle, 16, "inner", &inner, NULL, "nested, second");
	receive(middle, 16, "", &self, NULL, "nested, the end of the second");
	receive(inner, 16, "event", &event, NULL, "nested, third");
	subject_check(read(event, &number, 8) == 8 && number == 3, "nested: eventfd");
	subject_check(receive(inner, 16, "self", &self, NULL, "nested, own") == 1,
	              "own descriptor");
	subject_check(fcntl(self, F_GETFL) >= 0, "own descriptor is none");
}

/* --- bounds: bytes before and behind a descriptor, and a message that was begun to be read --- */

static int stream[2];

static void send_stream(void)
{
	int event = eventfd(1, 0), other = eventfd(2, 0);
	char byte;

	make_pair(SOCK_STREAM, stream);
	subject_need(write(stream[0], "-before", 7) == 7, "write");
	send_fds(stream[0], "first", &event, 1);
	subject_need(write(stream[0], "between", 7) == 7, "write");
	send_fds(stream[0], "second", &other, 1);
	subject_need(write(stream[0], "after", 5) == 5, "write");
	subject_need(read(stream[1], &byte, 1) == 1, "read");
	close(event);
	close(other);
}

static void check_stream(void)
{
	int fd = -1;
	uint64_t number = 0;

	subject_check(receive(stream[1], 6, "before", &fd, NULL, "before") == 0, "too early");
	subject_check(receive(stream[1], 60, "first", &fd, NULL, "first") == 1,
	              "first is not there");
	subject_check(read(fd, &number, 8) == 8 && number == 1, "first is another one");
	subject_check(receive(stream[1], 60, "betweensecond", &fd, NULL, "second") == 1,
	              "second is not there");
	subject_check(read(fd, &number, 8) == 8 && number == 2, "second is another one");
	subject_check(receive(stream[1], 60, "after", &fd, NULL, "after") == 0, "one too many");
}

/* --- datagrams: none of them lost, with names of senders that are there, or not any more --- */

static int empty[2], server, friend;

static void send_datagrams(void)
{
	struct sockaddr_un here = address_of("server"), there = address_of("friend");
	int stranger = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un gone = address_of("no/stranger");

	make_pair(SOCK_DGRAM, empty);
	subject_need(send(empty[0], "", 0, 0) == 0 && send(empty[0], "a", 1, 0) == 1, "send");
	server = socket(AF_UNIX, SOCK_DGRAM, 0);
	friend = socket(AF_UNIX, SOCK_DGRAM, 0);
	subject_need(bind(server, (struct sockaddr *)&here, sizeof(here)) == 0, "bind");
	subject_need(bind(friend, (struct sockaddr *)&there, sizeof(there)) == 0, "bind");
	subject_need(mkdir("no", 0700) == 0, "mkdir");
	subject_need(bind(stranger, (struct sockaddr *)&gone, sizeof(gone)) == 0, "bind");
	subject_need(sendto(friend, "f", 1, 0, (struct sockaddr *)&here, sizeof(here)) == 1,
	             "send");
	subject_need(sendto(stranger, "s", 1, 0, (struct sockaddr *)&here, sizeof(here)) == 1,
	             "send");
	close(stranger);
	unlink("no/stranger");
	rmdir("no");
}

static void expect_from(const char *text, const char *name)
{
	char bytes[16] = "";
	struct sockaddr_un from = {0};
	socklen_t size = sizeof(from);
	ssize_t got = recvfrom(server, bytes, sizeof(bytes), MSG_DONTWAIT, (struct sockaddr *)&from,
	                       &size);

	subject_check(got == 1 && !strcmp(bytes, text) && !strcmp(from.sun_path, name),
	              "\"%s\" (%zd) from \"%s\" instead of \"%s\" from \"%s\"", bytes, got,
	              from.sun_path, text, name);
}

static void check_datagrams(void)
{
	char bytes[16];

	subject_check(recv(empty[1], bytes, 16, MSG_DONTWAIT) == 0, "the empty datagram is lost");
	subject_check(recv(empty[1], bytes, 16, MSG_DONTWAIT) == 1, "what is behind it is lost");
	expect_from("f", "friend");
	expect_from("s", "no/stranger");
	unlink("server");
	unlink("friend");
}

/* --- credentials --- */

static int asked[2];

static void send_credentials(void)
{
	int on = 1;

	make_pair(SOCK_STREAM, asked);
	subject_need(setsockopt(asked[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0, "option");
	subject_need(write(asked[0], "mine", 4) == 4, "write");
	subject_need(write(asked[1], "unasked", 7) == 7, "write");
}

static void check_credentials(void)
{
	struct ucred sender = {0};
	socklen_t size = sizeof(sender);
	int fd;

	receive(asked[1], 16, "mine", &fd, &sender, "credentials");
	subject_check(sender.pid == getpid() && sender.uid == getuid(),
	              "sent by process %d, says SCM_CREDENTIALS", sender.pid);
	receive(asked[0], 16, "unasked", &fd, NULL, "without credentials");
	subject_check(getsockopt(asked[1], SOL_SOCKET, SO_PEERCRED, &sender, &size) == 0 &&
	                      sender.pid == getpid() && sender.uid == getuid(),
	              "made by process %d, says SO_PEERCRED", sender.pid);
}

/* What was sent before anybody wanted to know by whom, and by sockets that have no names for that reason. */
static int late[2];

static void send_unasked(void)
{
	int on = 1;

	make_pair(SOCK_SEQPACKET, late);
	for (int end = 0; end < 2; end++)
		subject_need(write(late[end], "early", 5) == 5, "write");
	for (int end = 0; end < 2; end++)
		subject_need(setsockopt(late[end], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0,
		             "SO_PASSCRED");
}

static void check_unasked(void)
{
	for (int end = 0; end < 2; end++) {
		struct ucred sender = {.pid = -1};
		struct sockaddr_un name;
		socklen_t size = sizeof(name);
		int fd;

		subject_check(!getsockname(late[end], (struct sockaddr *)&name, &size) &&
		                      size == sizeof(name.sun_family),
		              "end %d has a name", end);
		receive(late[end], 16, "early", &fd, &sender, "sent early");
		subject_check(sender.pid == 0, "sent early by process %d", sender.pid);
	}
}

int main(void)
{
	send_unasked();
	send_kinds();
	send_nested();
	send_stream();
	send_datagrams();
	send_credentials();
	subject_ready();
	check_kinds();
	check_nested();
	check_stream();
	check_datagrams();
	check_credentials();
	check_unasked();
	return subject_end();
}
