/* Steps: sockets, with what waits in them, and descriptors in flight. */
#include "random.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

static void make_socketpair(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	int ends[2], buffer = 20000 + (int)below(50000);

	subject_need(socketpair(AF_UNIX, types[below(3)] | SOCK_NONBLOCK, 0, ends) == 0,
	             "socketpair");
	if (chance(30))
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	fill(ends[0]);
	fill(ends[1]);
	if (chance(20))
		shutdown(ends[0], (int)below(3));
	keep(ends[0], "socketpair");
	keep_or_close(ends[1], 80);
}

static void make_listener(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = keep(socket(AF_UNIX, chance(50) ? SOCK_STREAM : SOCK_SEQPACKET, 0), "socket");
	bool abstract = chance(50);

	snprintf(address.sun_path + abstract, 60, "%s", new_name("listener"));
	subject_need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	subject_need(listen(fd, (int)below(20)) == 0, "listen");
}

static void make_inet(void)
{
	bool tcp = chance(50);
	int one = 1;
	int fd =
	        keep(socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0), "socket");
	struct sockaddr_in address = {.sin_family = AF_INET};

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (chance(50))
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	if (chance(50))
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (chance(80))
		subject_need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	if (tcp && chance(80))
		subject_need(listen(fd, (int)below(20)) == 0, "listen");
}

static void make_connection(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int server;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	subject_need(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 1),
	             "listen");
	getsockname(listener, (struct sockaddr *)&address, &size);
	subject_need(!connect(client, (struct sockaddr *)&address, size), "connect");
	server = accept(listener, NULL, NULL);
	keep_or_close(listener, 30);
	subject_need(write(server, "from the server", below(16)) >= 0, "write");
	subject_need(write(client, "from the client", below(16)) >= 0, "write");
	if (chance(20))
		shutdown(client, SHUT_WR);
	keep(server, "accept");
	keep(client, "connect");
}

/* --- descriptors in flight --- */

static void send_message(int fd, const int *sent, unsigned count)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = {0};
	char text[] = "message";
	struct iovec data = {text, 1 + below(7)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control};
	struct cmsghdr *header;

	message.msg_controllen = CMSG_SPACE(count * sizeof(int));
	header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), sent, count * sizeof(int));
	sendmsg(fd, &message, MSG_DONTWAIT);
}

/* One that nobody else has. */
static int new_descriptor(void)
{
	int ends[2], fd;

	switch (below(4)) {
	case 0:
		return memfd_create("in flight", 0);
	case 1:
		return eventfd(below(100), 0);
	case 2:
		fd = open(new_name("sent"), O_RDWR | O_CREAT, 0600);
		fill(fd);
		return fd;
	default:
		subject_need(pipe2(ends, O_NONBLOCK) == 0, "pipe");
		fill(ends[1]);
		close(ends[1]);
		return ends[0];
	}
}

/* The end that they are sent to, or from, may be in flight itself, or closed. */
static void send_descriptors(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	int ends[2];

	subject_need(socketpair(AF_UNIX, types[below(3)] | SOCK_NONBLOCK, 0, ends) == 0,
	             "socketpair");
	for (unsigned i = 1 + below(3); i-- > 0;) {
		int sent[] = {any_file(), any_file(), -1};

		sent[2] = new_descriptor();
		if (chance(50))
			send_message(ends[0], sent, 1 + below(2));
		else
			send_message(ends[0], sent + 1 + below(2), 1);
		close(sent[2]);
		if (chance(30))
			fill(ends[0]);
	}
	keep_or_close(ends[0], 80);
	keep(ends[1], "socketpair");
}

/* --- connections by name --- */

static socklen_t unix_address(struct sockaddr_un *address, const char *name, bool abstract)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(address->sun_path + abstract, 60, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name) +
	                   !abstract);
}

/*
 * Accepted or not. One that was not, and has sent something, or whose listener has lost its name, is refused: nobody
 * could make it again.
 */
static void connect_by_name(void)
{
	bool abstract = chance(40), pending = chance(50);
	int type = chance(50) ? SOCK_STREAM : SOCK_SEQPACKET;
	int listener = keep(socket(AF_UNIX, type | SOCK_NONBLOCK, 0), "socket");
	struct sockaddr_un address;
	socklen_t size = unix_address(&address, new_name("server"), abstract);

	subject_need(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 8),
	             "listen");
	for (unsigned i = 1 + below(3); i-- > 0;) {
		int client = keep(socket(AF_UNIX, type | SOCK_NONBLOCK, 0), "socket");

		subject_need(!connect(client, (struct sockaddr *)&address, size), "connect");
		if (pending)
			continue;
		fill(client);
		keep_or_close(accept4(listener, NULL, NULL, SOCK_NONBLOCK), 90);
	}
	if (!pending && chance(20) && !abstract)
		unlink(address.sun_path);
}

static void make_datagram_server(void)
{
	bool abstract = chance(40), filled = chance(60);
	struct sockaddr_un address, own;
	socklen_t size = unix_address(&address, new_name("datagrams"), abstract);
	int server = keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), "socket");

	subject_need(!bind(server, (struct sockaddr *)&address, size), "bind");
	for (unsigned i = below(3); i-- > 0;) {
		int client = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

		if (chance(50)) {
			socklen_t own_size = unix_address(&own, new_name("client"), chance(50));

			subject_need(!bind(client, (struct sockaddr *)&own, own_size), "bind");
		}
		subject_need(!connect(client, (struct sockaddr *)&address, size), "connect");
		if (filled)
			fill(client);
		keep_or_close(client, 70);
	}
}

/* --- others --- */

static void set_option(void)
{
	static const int options[] = {SO_PASSCRED, SO_KEEPALIVE, SO_OOBINLINE, SO_PRIORITY,
	                              SO_RCVLOWAT, SO_TIMESTAMP, SO_REUSEPORT, SO_MARK};
	struct timeval timeout = {1 + below(100), 0};
	int fd = any_file(), one = 1;

	setsockopt(fd, SOL_SOCKET, options[below(8)], &one, sizeof(one));
	if (chance(30))
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
}

static void make_udp(void)
{
	static const int protocols[] = {0, 136 /* UDP-Lite */};
	int domain = chance(50) ? AF_INET : AF_INET6;
	int fd = socket(domain, SOCK_DGRAM | SOCK_NONBLOCK, protocols[below(2)]);
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr *name = domain == AF_INET ? (void *)&v4 : (void *)&address;
	socklen_t size = domain == AF_INET ? sizeof(v4) : sizeof(address);

	if (fd < 0)
		return;
	keep(fd, "socket");
	if (chance(80))
		bind(fd, name, size);
	v4.sin_port = address.sin6_port = htons((uint16_t)(1000 + below(1000)));
	if (chance(40))
		connect(fd, name, size);
}

static void make_unusual(void)
{
	static const struct {
		int family, type, protocol;
	} kinds[] = {
	        {AF_NETLINK, SOCK_RAW, NETLINK_ROUTE},
	        {AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT},
	        {AF_INET, SOCK_RAW, IPPROTO_ICMP},
	        {AF_INET6, SOCK_RAW, IPPROTO_ICMPV6},
	        {AF_PACKET, SOCK_RAW, 0},
	        {AF_PACKET, SOCK_DGRAM, 0},
	        {AF_UNIX, SOCK_STREAM, 0},
	        {AF_INET6, SOCK_STREAM, 0},
	};
	unsigned kind = below(8);
	int fd = socket(kinds[kind].family, kinds[kind].type | SOCK_NONBLOCK, kinds[kind].protocol);

	if (fd >= 0)
		keep(fd, "socket");
}

const struct step socket_steps[] = {
        {"socketpair", make_socketpair, 5},
        {"in-flight", send_descriptors, 5},
        {"listener", make_listener, 3},
        {"by-name", connect_by_name, 4},
        {"datagrams", make_datagram_server, 3},
        {"inet", make_inet, 3},
        {"connection", make_connection, 3},
        {"udp", make_udp, 3},
        {"unusual", make_unusual, 3},
        {"option", set_option, 4},
        {NULL, NULL, 0},
};
