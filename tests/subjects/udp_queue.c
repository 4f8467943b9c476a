/*
 * Datagrams that wait in UDP and UDP-Lite sockets, over IPv4, IPv6 and both: each is there again, once, in its order,
 * with its sender, also where that is connected to by now or has gone, and with what the socket has told along.
 */
#include "subject.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif

#define LARGE 60000

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static union address make_address(const char *host)
{
	union address address = {.v4.sin_family = AF_INET};

	if (inet_pton(AF_INET, host, &address.v4.sin_addr) != 1) {
		address.any.sa_family = AF_INET6;
		inet_pton(AF_INET6, host, &address.v6.sin6_addr);
	}
	return address;
}

static socklen_t size_of(const union address *address)
{
	return address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
}

static union address own_address(int fd)
{
	union address address = {0};
	socklen_t size = sizeof(address);

	subject_need(getsockname(fd, &address.any, &size) == 0, "getsockname");
	return address;
}

static int bound(int protocol, const char *host)
{
	union address address = make_address(host);
	int fd = socket(address.any.sa_family, SOCK_DGRAM, protocol);

	subject_need(fd >= 0 && bind(fd, &address.any, size_of(&address)) == 0, "bind");
	return fd;
}

static void set(int fd, int level, int name, int value)
{
	subject_need(setsockopt(fd, level, name, &value, sizeof(value)) == 0, "setsockopt");
}

static void send_to(int from, int to, const char *host, const void *bytes, size_t size)
{
	union address address = make_address(host);

	address.v4.sin_port = own_address(to).v4.sin_port;
	subject_need(sendto(from, bytes, size, 0, &address.any, size_of(&address)) == (ssize_t)size,
	             "sendto");
}

/* What the socket tells along: where it was sent to (IPv4), how many hops are left, the class. */
struct told {
	struct in_addr to;
	int hops, class;
};

static struct told read_control(struct msghdr *header)
{
	struct told told = {.hops = -1, .class = -1};

	for (struct cmsghdr *each = CMSG_FIRSTHDR(header); each; each = CMSG_NXTHDR(header, each)) {
		struct in_pktinfo info;

		if (each->cmsg_level != IPPROTO_IP)
			continue;
		if (each->cmsg_type == IP_PKTINFO) {
			memcpy(&info, CMSG_DATA(each), sizeof(info));
			told.to = info.ipi_addr;
		} else if (each->cmsg_type == IP_TTL) {
			memcpy(&told.hops, CMSG_DATA(each), sizeof(int));
		} else if (each->cmsg_type == IP_TOS) {
			told.class = *CMSG_DATA(each);
		}
	}
	return told;
}

static struct told expect(int fd, const union address *from, const void *bytes, size_t size,
                          const char *what)
{
	static char got[LARGE + 1];
	char control[256];
	union address sender = {0};
	struct iovec vector = {got, sizeof(got)};
	struct msghdr header = {.msg_name = &sender,
	                        .msg_namelen = sizeof(sender),
	                        .msg_iov = &vector,
	                        .msg_iovlen = 1,
	                        .msg_control = control,
	                        .msg_controllen = sizeof(control)};
	ssize_t count = recvmsg(fd, &header, MSG_DONTWAIT);
	char text[INET6_ADDRSTRLEN] = "";

	inet_ntop(sender.any.sa_family,
	          sender.any.sa_family == AF_INET ? (void *)&sender.v4.sin_addr
	                                          : (void *)&sender.v6.sin6_addr,
	          text, sizeof(text));
	subject_check(count == (ssize_t)size && !memcmp(got, bytes, size),
	              "%s: %zd bytes came instead of %zu (%s)", what, count, size, strerror(errno));
	subject_check(!memcmp(&sender, from, size_of(from)), "%s: from %s, port %u", what, text,
	              ntohs(sender.v4.sin_port));
	return read_control(&header);
}

static void expect_nothing(int fd, const char *what)
{
	char byte;

	subject_check(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "%s: one more",
	              what);
}

int main(void)
{
	static char large[LARGE];
	int plain = bound(0, "0.0.0.0"), exact = bound(0, "127.0.0.2"), six = bound(0, "::1");
	int both = bound(0, "::"), lite = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE);
	int one = bound(0, "127.0.0.1"), other = bound(0, "127.0.0.3"), third = bound(0, "::1");
	int lite_sender = -1;
	union address at_one = own_address(one), at_other = own_address(other);
	union address at_third = own_address(third), at_lite, mapped = {0};
	struct told told;

	memset(large, 'L', sizeof(large));
	set(plain, IPPROTO_IP, IP_PKTINFO, 1);
	set(plain, IPPROTO_IP, IP_RECVTTL, 1);
	set(plain, IPPROTO_IP, IP_RECVTOS, 1);
	set(one, IPPROTO_IP, IP_TTL, 33);
	set(one, IPPROTO_IP, IP_TOS, 0x28);
	send_to(one, plain, "127.0.0.9", "first", 5);
	send_to(other, plain, "127.0.0.1", "second", 6);
	send_to(one, exact, "127.0.0.2", "", 0);
	send_to(one, exact, "127.0.0.2", large, sizeof(large));
	send_to(other, exact, "127.0.0.2", "behind", 6);
	subject_need(connect(exact, &at_one.any, sizeof(at_one.v4)) == 0, "connect");
	send_to(third, six, "::1", "of IPv6", 7);
	send_to(third, both, "::1", "six", 3);
	send_to(one, both, "127.0.0.1", "four", 4);
	mapped.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = at_one.v4.sin_port};
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.v6.sin6_addr);
	if (lite >= 0) { /* newer kernels have it no more */
		close(lite);
		lite = bound(IPPROTO_UDPLITE, "127.0.0.1");
		lite_sender = bound(IPPROTO_UDPLITE, "127.0.0.1");
		at_lite = own_address(lite_sender);
		send_to(lite_sender, lite, "127.0.0.1", "light", 5);
	}
	set(six, SOL_SOCKET, SO_PEEK_OFF, 3);
	close(other);

	subject_ready();

	told = expect(plain, &at_one, "first", 5, "the first");
	subject_check(told.to.s_addr == inet_addr("127.0.0.9"), "sent to another address");
	subject_check(told.hops == 33 && told.class == 0x28, "hops %d, class %#x", told.hops,
	              told.class);
	expect(plain, &at_other, "second", 6, "from one that is closed");
	expect(exact, &at_one, "", 0, "without content");
	expect(exact, &at_one, large, sizeof(large), "a large one");
	expect(exact, &at_other, "behind", 6, "from somebody else than the peer");
	expect_nothing(exact, "connected");
	expect(six, &at_third, "of IPv6", 7, "of IPv6");
	expect(both, &at_third, "six", 3, "of IPv6, a socket for both");
	expect(both, &mapped, "four", 4, "of IPv4, a socket for both");
	expect_nothing(both, "a socket for both");
	if (lite >= 0)
		expect(lite, &at_lite, "light", 5, "UDP-Lite");
	expect_nothing(plain, "plain");
	send_to(one, plain, "127.0.0.1", "now", 3);
	expect(plain, &at_one, "now", 3, "sent after the restore");
	return subject_end();
}
