/*
 * Packet sockets: one that hears everything on the loopback interface, through a filter, one that is bound to
 * nothing, one of two that share their packets.
 *
 * subject: except=user (it may not have any)
 */
#include "subject.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>

#define TYPE 0x88b5 /* for local experiments (IEEE 802) */

static int open_socket(int type, int protocol, const char *interface)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
	                              .sll_protocol = htons((uint16_t)protocol),
	                              .sll_ifindex = (int)if_nametoindex(interface)};
	int fd = socket(AF_PACKET, type, 0);

	if (fd < 0)
		subject_skip("no packet sockets here: %s", strerror(errno));
	subject_need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	return fd;
}

static void set(int fd, int name, int value)
{
	subject_need(setsockopt(fd, SOL_PACKET, name, &value, sizeof(value)) == 0, "option %d",
	             name);
}

static int get(int fd, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	getsockopt(fd, SOL_PACKET, name, &value, &size);
	return value;
}

static struct sockaddr_ll address_of(int fd)
{
	struct sockaddr_ll address = {0};
	socklen_t size = sizeof(address);

	getsockname(fd, (struct sockaddr *)&address, &size);
	return address;
}

/* Of those packets that the filter lets pass, what comes first. */
static void check_hears(int fd, const char *text)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET,
	                         .sll_protocol = htons(TYPE),
	                         .sll_ifindex = (int)if_nametoindex("lo"),
	                         .sll_halen = ETH_ALEN};
	int sender = socket(AF_PACKET, SOCK_DGRAM, 0);
	char bytes[64] = "";

	subject_check(sendto(sender, text, strlen(text), 0, (struct sockaddr *)&to, sizeof(to)) ==
	                      (ssize_t)strlen(text),
	              "send: %s", strerror(errno));
	subject_check(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20000) == 1 &&
	                      recv(fd, bytes, sizeof(bytes) - 1, 0) == (ssize_t)strlen(text) &&
	                      !strcmp(bytes, text),
	              "\"%s\" is heard instead of \"%s\"", bytes, text);
	close(sender);
}

/* Whether somebody has made the interface promiscuous. */
static bool hears_everything(int interface)
{
	struct {
		struct nlmsghdr header;
		struct ifinfomsg body;
	} request = {{sizeof(request), RTM_GETLINK, NLM_F_REQUEST, 1, 0}, {.ifi_index = interface}};
	union {
		struct nlmsghdr header;
		char bytes[8192];
	} answer;
	int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	struct rtattr *each;
	uint32_t times = 0;
	ssize_t size;

	subject_need(send(netlink, &request, sizeof(request), 0) > 0, "RTM_GETLINK");
	size = recv(netlink, &answer, sizeof(answer), 0);
	subject_need(size > 0 && answer.header.nlmsg_type == RTM_NEWLINK, "the interface");
	size = (ssize_t)answer.header.nlmsg_len - (ssize_t)NLMSG_LENGTH(sizeof(struct ifinfomsg));
	for (each = IFLA_RTA(NLMSG_DATA(&answer.header)); RTA_OK(each, size);
	     each = RTA_NEXT(each, size))
		if (each->rta_type == IFLA_PROMISCUITY)
			memcpy(&times, RTA_DATA(each), sizeof(times));
	close(netlink);
	return times > 0;
}

int main(void)
{
	struct sock_filter ours[] = {
	        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PROTOCOL)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TYPE, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	        BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = {sizeof(ours) / sizeof(ours[0]), ours};
	struct packet_mreq promiscuous = {.mr_ifindex = (int)if_nametoindex("lo"),
	                                  .mr_type = PACKET_MR_PROMISC};
	int hearing = open_socket(SOCK_DGRAM, ETH_P_ALL, "lo"),
	    idle = socket(AF_PACKET, SOCK_RAW, 0);
	int shared = open_socket(SOCK_RAW, TYPE + 1, "lo"), count = 0;
	socklen_t size = 0;

	subject_need(setsockopt(hearing, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ==
	                     0,
	             "filter");
	set(hearing, PACKET_IGNORE_OUTGOING, 1);
	set(hearing, PACKET_AUXDATA, 1);
	set(idle, PACKET_VERSION, TPACKET_V3);
	set(idle, PACKET_RESERVE, 64);
	set(shared, PACKET_FANOUT, 77 | PACKET_FANOUT_LB << 16);
	for (int i = 0; i < 2; i++)
		subject_need(setsockopt(hearing, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous,
		                        sizeof(promiscuous)) == 0,
		             "membership");
	subject_ready();
	subject_check(address_of(hearing).sll_protocol == htons(ETH_P_ALL) &&
	                      address_of(hearing).sll_ifindex == promiscuous.mr_ifindex,
	              "bound to protocol %#x of interface %d",
	              ntohs(address_of(hearing).sll_protocol), address_of(hearing).sll_ifindex);
	subject_check(!address_of(idle).sll_protocol && !address_of(idle).sll_ifindex,
	              "the idle one is bound");
	subject_check(get(hearing, PACKET_IGNORE_OUTGOING) == 1, "PACKET_IGNORE_OUTGOING");
	subject_check(get(hearing, PACKET_AUXDATA) == 1, "PACKET_AUXDATA");
	subject_check(get(idle, PACKET_VERSION) == TPACKET_V3, "PACKET_VERSION");
	subject_check(get(idle, PACKET_RESERVE) == 64, "PACKET_RESERVE");
	subject_check(get(shared, PACKET_FANOUT) == (77 | PACKET_FANOUT_LB << 16), "fanout %#x",
	              get(shared, PACKET_FANOUT));
	subject_check(getsockopt(hearing, SOL_SOCKET, SO_GET_FILTER, NULL, &size) == 0 && size == 4,
	              "the filter is lost");
	while (count < 10 && hears_everything(promiscuous.mr_ifindex)) {
		setsockopt(hearing, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &promiscuous,
		           sizeof(promiscuous));
		count++;
	}
	subject_check(count == 2, "%d memberships instead of 2", count);
	check_hears(hearing, "first");
	check_hears(hearing, "second");
	return subject_end();
}
