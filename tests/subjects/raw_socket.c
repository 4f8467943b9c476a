/*
 * Raw sockets: protocol, address, options, a filter of messages; one that sends whole packets. And a ping socket.
 *
 * subject: except=user (it may not have any)
 */
#include "subject.h"

#include <linux/icmp.h>
#include <netinet/in.h>
#include <sys/socket.h>

static struct sockaddr_in loopback(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* One that anybody may have in the groups that are named there; of this network namespace. */
static int make_ping(void)
{
	struct sockaddr_in address = loopback();
	FILE *range = fopen("/proc/sys/net/ipv4/ping_group_range", "w");
	int fd;

	subject_need(range && fputs("0 65535", range) >= 0 && !fclose(range), "ping_group_range");
	fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	subject_need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	                     connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0,
	             "ping socket");
	return fd;
}

int main(void)
{
	struct sockaddr_in ping_before = {0}, ping_after = {0};
	int ping = -1;
	struct sockaddr_in address = loopback(), after = {0};
	struct icmp_filter filter = {.data = ~(1U << ICMP_ECHOREPLY)}, filter_after = {0};
	struct icmphdr echo = {.type = ICMP_ECHO, .checksum = htons(0xf7ff)};
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	int whole = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	struct timeval limit = {.tv_sec = 20};
	socklen_t size = sizeof(after);
	int headers = 0;
	char packet[64];

	if (raw < 0)
		subject_skip("no raw sockets here: %s", strerror(errno));
	subject_need(setsockopt(raw, SOL_RAW, ICMP_FILTER, &filter, sizeof(filter)) == 0, "filter");
	subject_need(bind(raw, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	subject_need(connect(raw, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
	subject_need(setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0,
	             "SO_RCVTIMEO");
	ping = make_ping();
	size = sizeof(ping_before);
	getsockname(ping, (struct sockaddr *)&ping_before, &size);
	subject_ready();
	size = sizeof(after);
	subject_check(getsockname(raw, (struct sockaddr *)&after, &size) == 0 &&
	                      after.sin_addr.s_addr == address.sin_addr.s_addr,
	              "another address");
	size = sizeof(filter_after);
	subject_check(getsockopt(raw, SOL_RAW, ICMP_FILTER, &filter_after, &size) == 0 &&
	                      filter_after.data == filter.data,
	              "the filter is %#x", filter_after.data);
	size = sizeof(headers);
	subject_check(getsockopt(whole, IPPROTO_IP, IP_HDRINCL, &headers, &size) == 0 &&
	                      headers == 1,
	              "IP_HDRINCL is %d", headers);
	subject_check(send(raw, &echo, sizeof(echo), 0) == sizeof(echo), "send: %s",
	              strerror(errno));
	subject_check(recv(raw, packet, sizeof(packet), 0) == 20 + sizeof(echo) &&
	                      packet[20] == ICMP_ECHOREPLY,
	              "the echo does not come");
	size = sizeof(ping_after);
	subject_check(getsockname(ping, (struct sockaddr *)&ping_after, &size) == 0 &&
	                      ping_after.sin_port == ping_before.sin_port,
	              "the ping socket has another id");
	echo.checksum = 0; /* the kernel fills in id and checksum */
	subject_check(send(ping, &echo, sizeof(echo), 0) == sizeof(echo) &&
	                      recv(ping, packet, sizeof(packet), 0) == sizeof(echo),
	              "the ping socket does not reach its peer");
	return subject_end();
}
