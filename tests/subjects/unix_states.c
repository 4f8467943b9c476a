/*
 * Unix sockets in every state: unbound, bound by a path, an abstract name or by the kernel, connected, shut in either
 * direction or both by either end, the other end closed; each of all types, with queues in both directions. What
 * poll(2), names and queues say is as it was, and so is what can be sent and received afterwards.
 */
#include "subject.h"

#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SOCKETS_MAX 256

/* What can be seen of one without changing it. */
struct look {
	short events;
	int waiting, name_error, peer_error;
	socklen_t name_size, peer_size;
	struct sockaddr_un name, peer;
};

static struct {
	char what[48];
	int fd;
	struct look before;
} sockets[SOCKETS_MAX];
static size_t count;

static struct look look_at(int fd)
{
	struct look look = {
	        .waiting = -1, .name_size = sizeof(look.name), .peer_size = sizeof(look.peer)};
	struct pollfd poller = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI};

	poll(&poller, 1, 0);
	look.events = poller.revents;
	ioctl(fd, FIONREAD, &look.waiting);
	if (getsockname(fd, (struct sockaddr *)&look.name, &look.name_size))
		look.name_error = errno;
	if (getpeername(fd, (struct sockaddr *)&look.peer, &look.peer_size))
		look.peer_error = errno;
	return look;
}

static void compare(const char *what, const struct look *before, const struct look *now)
{
	subject_check(before->events == now->events, "%s: poll says %#x, said %#x", what,
	              now->events, before->events);
	subject_check(before->waiting == now->waiting, "%s: %d bytes wait, not %d", what,
	              now->waiting, before->waiting);
	subject_check(before->name_error == now->name_error &&
	                      before->name_size == now->name_size &&
	                      !memcmp(&before->name, &now->name, sizeof(now->name)),
	              "%s: named \"%.20s\", was \"%.20s\"", what, now->name.sun_path + 1,
	              before->name.sun_path + 1);
	subject_check(before->peer_error == now->peer_error &&
	                      (now->peer_error ||
	                       (before->peer_size == now->peer_size &&
	                        !memcmp(&before->peer, &now->peer, sizeof(now->peer)))),
	              "%s: its peer is \"%.20s\" (error %d), was \"%.20s\" (error %d)", what,
	              now->peer.sun_path, now->peer_error, before->peer.sun_path,
	              before->peer_error);
}

static int add(int fd, const char *what, const char *more)
{
	subject_need(fd >= 0 && count < SOCKETS_MAX, "%s", what);
	snprintf(sockets[count].what, sizeof(sockets[count].what), "%s, %s", what, more);
	sockets[count++].fd = fd;
	return fd;
}

static const struct {
	int type;
	const char *name;
} types[] = {{SOCK_STREAM, "stream"}, {SOCK_SEQPACKET, "seqpacket"}, {SOCK_DGRAM, "datagram"}};

#define TYPES (sizeof(types) / sizeof(types[0]))

static void bind_to(int fd, const char *path, size_t size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, path, size);
	subject_need(bind(fd, (struct sockaddr *)&address,
	                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)) == 0,
	             "bind");
}

static void add_unconnected(size_t type)
{
	char path[32];
	int size = snprintf(path, sizeof(path), "path-%s", types[type].name);

	add(socket(AF_UNIX, types[type].type, 0), types[type].name, "unbound");
	bind_to(add(socket(AF_UNIX, types[type].type, 0), types[type].name, "path"), path,
	        (size_t)size + 1);
	path[0] = '\0';
	bind_to(add(socket(AF_UNIX, types[type].type, 0), types[type].name, "abstract"), path,
	        (size_t)size);
	bind_to(add(socket(AF_UNIX, types[type].type, 0), types[type].name, "named by the kernel"),
	        path, 0);
}

/* How: -1: not at all. */
static void add_pair(size_t type, int how, int how_other, bool full, bool widowed)
{
	char more[32];
	int pair[2];

	subject_need(socketpair(AF_UNIX, types[type].type, 0, pair) == 0, "socketpair");
	snprintf(more, sizeof(more), "shut %d and %d%s%s", how, how_other, full ? ", full" : "",
	         widowed ? ", widowed" : "");
	/* What the closed end had not read is an error, which hides what a seqpacket socket has to read. */
	for (int i = widowed && types[type].type != SOCK_STREAM; i < 2 && full; i++)
		subject_need(send(pair[i], "first", 5, 0) == 5 && send(pair[i], "2nd", 3, 0) == 3,
		             "send");
	if (how >= 0)
		subject_need(shutdown(pair[0], how) == 0, "shutdown");
	if (how_other >= 0)
		subject_need(shutdown(pair[1], how_other) == 0, "shutdown");
	add(pair[0], types[type].name, more);
	if (widowed)
		close(pair[1]);
	else
		add(pair[1], types[type].name, more);
}

/* Of one end, nothing but the error is left. */
static void add_reset(size_t type)
{
	int pair[2];

	subject_need(socketpair(AF_UNIX, types[type].type, 0, pair) == 0, "socketpair");
	subject_need(send(pair[0], "unread", 6, 0) == 6, "send");
	close(pair[1]);
	add(pair[0], types[type].name, "reset");
}

/* What one reads and writes; compared between a twin that was made anew and the one that was restored. */
static void use(int fd, char *text, size_t size)
{
	char bytes[32];
	size_t used = 0;
	ssize_t sent;

	for (int i = 0; i < 4; i++) {
		ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

		used += (size_t)snprintf(text + used, size - used, "%zd(%d)%.*s ", got,
		                         got < 0 ? errno : 0, got > 0 ? (int)got : 0, bytes);
	}
	sent = send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	snprintf(text + used, size - used, "sent %zd(%d)", sent, sent < 0 ? errno : 0);
}

static void add_all(void)
{
	for (size_t type = 0; type < TYPES; type++) {
		for (int full = 0; full < 2; full++) {
			add_pair(type, -1, -1, full, false);
			add_pair(type, -1, -1, full, true);
			for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
				add_pair(type, how, -1, full, false);
				add_pair(type, how, -1, full, true);
			}
			add_pair(type, SHUT_WR, SHUT_WR, full, false);
		}
		if (types[type].type != SOCK_DGRAM)
			add_reset(type);
	}
}

int main(void)
{
	size_t pairs, connected;

	add_all();
	pairs = count;
	for (size_t type = 0; type < TYPES; type++)
		add_unconnected(type);
	connected = count;
	for (size_t i = 0; i < count; i++)
		sockets[i].before = look_at(sockets[i].fd);
	subject_ready();
	for (size_t i = 0; i < connected; i++) {
		struct look now = look_at(sockets[i].fd);

		compare(sockets[i].what, &sockets[i].before, &now);
	}
	/* The same once more, which nobody has dumped. */
	add_all();
	for (size_t i = 0; i < pairs; i++) {
		char restored[256], fresh[256];

		use(sockets[i].fd, restored, sizeof(restored));
		use(sockets[connected + i].fd, fresh, sizeof(fresh));
		subject_check(!strcmp(restored, fresh), "%s: \"%s\" instead of \"%s\"",
		              sockets[i].what, restored, fresh);
	}
	return subject_end();
}
