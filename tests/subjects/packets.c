/*
 * Sockets that send and receive packets: UDP over IPv4, IPv6 and both, UDP-Lite, multicast groups with their sources,
 * netlink sockets. With their addresses, options and filters, and owned by the same user.
 */
#include "subject.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif

static int number(int fd, int level, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	getsockopt(fd, level, name, &value, &size);
	return value;
}

static void set(int fd, int level, int name, int value)
{
	subject_need(setsockopt(fd, level, name, &value, sizeof(value)) == 0, "setsockopt");
}

/* Binds to a port of the loopback address that is free. */
static int bind_v4(int fd)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	subject_need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	return fd;
}

static in_port_t port_of(int fd)
{
	struct sockaddr_in6 address = {0}; /* the port is at the same place in both */
	socklen_t size = sizeof(address);

	getsockname(fd, (struct sockaddr *)&address, &size);
	return address.sin6_port;
}

static void check_arrives(int from, int to, const char *what)
{
	char bytes[8] = "";
	struct timeval limit = {.tv_sec = 20};

	setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	subject_check(send(from, "hello", 5, 0) == 5, "%s: send: %s", what, strerror(errno));
	subject_check(recv(to, bytes, sizeof(bytes), 0) == 5 && !strcmp(bytes, "hello"),
	              "%s: what was sent does not come", what);
}

/* --- a pair that talks, over IPv4 in an IPv6 socket --- */

static int mapped, plain;

static void make_mapped(void)
{
	struct sockaddr_in6 to = {.sin6_family = AF_INET6};

	plain = bind_v4(socket(AF_INET, SOCK_DGRAM, 0));
	mapped = socket(AF_INET6, SOCK_DGRAM, 0);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
	to.sin6_port = port_of(plain);
	set(plain, SOL_SOCKET, SO_BROADCAST, 1);
	set(plain, IPPROTO_UDP, UDP_GRO, 1);
	set(mapped, IPPROTO_UDP, UDP_CORK, 1);
	subject_need(connect(mapped, (struct sockaddr *)&to, sizeof(to)) == 0, "connect");
}

static void check_mapped(void)
{
	subject_check(number(plain, SOL_SOCKET, SO_BROADCAST) == 1, "SO_BROADCAST");
	subject_check(number(plain, IPPROTO_UDP, UDP_GRO) == 1, "UDP_GRO");
	subject_check(number(mapped, IPPROTO_UDP, UDP_CORK) == 1, "UDP_CORK");
	set(mapped, IPPROTO_UDP, UDP_CORK, 0);
	check_arrives(mapped, plain, "mapped");
}

/* --- UDP-Lite with a partial checksum --- */

static int lite = -1;

static void make_lite(void)
{
	lite = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE);
	if (lite >= 0) /* newer kernels have it no more */
		set(bind_v4(lite), IPPROTO_UDPLITE, 10 /* UDPLITE_SEND_CSCOV */, 20);
}

static void check_lite(void)
{
	if (lite >= 0)
		subject_check(number(lite, IPPROTO_UDPLITE, 10) == 20, "UDPLITE_SEND_CSCOV");
}

/* --- multicast: a whole group, one with a source, one of IPv6 --- */

static int group_v4, group_v6;
static struct group_source_req one_source;

static void make_groups(void)
{
	struct ip_mreqn request = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3"),
	                           .imr_ifindex = (int)if_nametoindex("lo")};
	struct ipv6_mreq request_v6 = {.ipv6mr_interface = if_nametoindex("lo")};
	struct sockaddr_in *group = (struct sockaddr_in *)&one_source.gsr_group;
	struct sockaddr_in *source = (struct sockaddr_in *)&one_source.gsr_source;

	group_v4 = bind_v4(socket(AF_INET, SOCK_DGRAM, 0));
	subject_need(
	        setsockopt(group_v4, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request)) == 0,
	        "join");
	one_source.gsr_interface = if_nametoindex("lo");
	*group = (struct sockaddr_in){.sin_family = AF_INET,
	                              .sin_addr.s_addr = inet_addr("239.4.5.6")};
	*source = (struct sockaddr_in){.sin_family = AF_INET,
	                               .sin_addr.s_addr = inet_addr("10.9.8.7")};
	subject_need(setsockopt(group_v4, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, &one_source,
	                        sizeof(one_source)) == 0,
	             "join a source");
	group_v6 = socket(AF_INET6, SOCK_DGRAM, 0);
	inet_pton(AF_INET6, "ff02::1234", &request_v6.ipv6mr_multiaddr);
	if (setsockopt(group_v6, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request_v6, sizeof(request_v6)))
		group_v6 = -1; /* no IPv6 here */
}

static void check_groups(void)
{
	struct ip_mreqn request = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3"),
	                           .imr_ifindex = (int)if_nametoindex("lo")};
	struct ipv6_mreq request_v6 = {.ipv6mr_interface = if_nametoindex("lo")};

	/* Who can leave was a member. */
	subject_check(setsockopt(group_v4, IPPROTO_IP, IP_DROP_MEMBERSHIP, &request,
	                         sizeof(request)) == 0,
	              "not in the group: %s", strerror(errno));
	subject_check(setsockopt(group_v4, IPPROTO_IP, MCAST_LEAVE_SOURCE_GROUP, &one_source,
	                         sizeof(one_source)) == 0,
	              "the source of the group is lost: %s", strerror(errno));
	inet_pton(AF_INET6, "ff02::1234", &request_v6.ipv6mr_multiaddr);
	if (group_v6 >= 0)
		subject_check(setsockopt(group_v6, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &request_v6,
		                         sizeof(request_v6)) == 0,
		              "not in the group of IPv6: %s", strerror(errno));
}

/* --- one port for two sockets of one user, and a filter --- */

static int shared;

static void make_shared(void)
{
	struct sock_filter all[] = {{BPF_RET | BPF_K, 0, 0, 0xffff}};
	struct sock_fprog program = {1, all};

	shared = socket(AF_INET, SOCK_DGRAM, 0);
	set(shared, SOL_SOCKET, SO_REUSEPORT, 1);
	bind_v4(shared);
	subject_need(setsockopt(shared, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ==
	                     0,
	             "filter");
}

static void check_shared(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	                              .sin_port = port_of(shared)};
	int second = socket(AF_INET, SOCK_DGRAM, 0);
	struct stat stat;
	socklen_t count = 0;

	set(second, SOL_SOCKET, SO_REUSEPORT, 1);
	subject_check(bind(second, (struct sockaddr *)&address, sizeof(address)) == 0,
	              "another socket of the user cannot share the port: %s", strerror(errno));
	subject_check(fstat(shared, &stat) == 0 && stat.st_uid == getuid(),
	              "the socket is user %u's", stat.st_uid);
	subject_check(getsockopt(shared, SOL_SOCKET, SO_GET_FILTER, NULL, &count) == 0 &&
	                      count == 1,
	              "the filter is lost");
}

/* --- netlink: a member of two groups, and one that asks --- */

static int monitor, asking;
static uint32_t monitor_port;

static uint32_t netlink_port(int fd)
{
	struct sockaddr_nl address = {0};
	socklen_t size = sizeof(address);

	getsockname(fd, (struct sockaddr *)&address, &size);
	return address.nl_pid;
}

static void make_netlink(void)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	struct sockaddr_nl any = {.nl_family = AF_NETLINK};

	monitor = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	asking = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);
	subject_need(bind(monitor, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	set(monitor, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, RTNLGRP_IPV6_PREFIX);
	set(monitor, SOL_NETLINK, NETLINK_NO_ENOBUFS, 1);
	subject_need(bind(asking, (struct sockaddr *)&any, sizeof(any)) == 0, "bind");
	monitor_port = netlink_port(monitor);
}

static void check_netlink(void)
{
	struct {
		struct nlmsghdr header;
		struct rtgenmsg message;
	} request = {{sizeof(request), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {AF_UNSPEC}};
	uint32_t groups[4] = {0};
	socklen_t size = sizeof(groups);
	char answer[8192];

	subject_check(netlink_port(monitor) == monitor_port, "another port");
	subject_check(
	        getsockopt(monitor, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, &size) == 0 &&
	                groups[0] == (1U << (RTNLGRP_LINK - 1) | 1U << (RTNLGRP_IPV6_PREFIX - 1)),
	        "groups %#x", groups[0]);
	subject_check(number(monitor, SOL_NETLINK, NETLINK_NO_ENOBUFS) == 1, "NETLINK_NO_ENOBUFS");
	subject_check(send(asking, &request, sizeof(request), 0) == sizeof(request) &&
	                      recv(asking, answer, sizeof(answer), 0) > 0,
	              "the kernel does not answer");
}

int main(void)
{
	make_mapped();
	make_lite();
	make_groups();
	make_shared();
	make_netlink();
	subject_ready();
	check_mapped();
	check_lite();
	check_groups();
	check_shared();
	check_netlink();
	return subject_end();
}
