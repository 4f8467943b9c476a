/* Making a segment that says that it comes from somebody else: see tcp_segment.h. */
#include "kinds/tcp_segment.h"

#include "kinds/connection_lock.h"

#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <string.h>

#define HOPS 64

static uint32_t add_words(uint32_t sum, const void *bytes, size_t size)
{
	for (size_t i = 0; i + 1 < size; i += 2) {
		uint16_t word;

		memcpy(&word, (const uint8_t *)bytes + i, sizeof(word));
		sum += word;
	}
	return sum;
}

/* The checksum of TCP: over both addresses, protocol and length, and the segment (RFC 9293, 3.1). */
static uint16_t checksum(const void *from, const void *to, size_t address_size,
                         const struct tcphdr *header)
{
	const uint16_t rest[] = {htons(IPPROTO_TCP), htons(sizeof(*header))};
	uint32_t sum = add_words(0, from, address_size);

	sum = add_words(sum, to, address_size);
	sum = add_words(sum, rest, sizeof(rest));
	sum = add_words(sum, header, sizeof(*header));
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static struct tcphdr make_header(const struct sp_tcp_segment *segment)
{
	return (struct tcphdr){
	        .source = segment->from.v4.sin_port, /* at the same place in both */
	        .dest = segment->to.v4.sin_port,
	        .seq = htonl(segment->sequence),
	        .ack_seq = htonl(segment->acknowledged),
	        .doff = sizeof(struct tcphdr) / 4,
	        .ack = 1,
	        .fin = segment->fin,
	        .window = htons(segment->window),
	};
}

static int send_packet(int family, const void *packet, size_t size, const void *to,
                       socklen_t to_size, struct sp_error *err)
{
	sp_cleanup_close int raw = socket(family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	const int mark = SP_CONNECTION_MARK;

	if (raw < 0 || setsockopt(raw, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) < 0 ||
	    sendto(raw, packet, size, 0, to, to_size) < 0)
		return sp_fail_errno(err, errno, "cannot send a segment to ourselves");
	return 0;
}

static int send_v4(const struct sp_tcp_segment *segment, struct in_addr from, struct in_addr to,
                   struct sp_error *err)
{
	/* The kernel fills in its length, id and checksum. */
	struct {
		struct iphdr ip;
		struct tcphdr tcp;
	} packet = {
	        .ip = {.version = 4,
	               .ihl = sizeof(struct iphdr) / 4,
	               .ttl = HOPS,
	               .protocol = IPPROTO_TCP,
	               .saddr = from.s_addr,
	               .daddr = to.s_addr},
	        .tcp = make_header(segment),
	};
	struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = to};

	packet.tcp.check = checksum(&from, &to, sizeof(from), &packet.tcp);
	return send_packet(AF_INET, &packet, sizeof(packet), &where, sizeof(where), err);
}

static int send_v6(const struct sp_tcp_segment *segment, struct sp_error *err)
{
	struct {
		struct ip6_hdr ip;
		struct tcphdr tcp;
	} packet = {
	        .ip = {.ip6_flow = htonl(6U << 28),
	               .ip6_plen = htons(sizeof(struct tcphdr)),
	               .ip6_nxt = IPPROTO_TCP,
	               .ip6_hlim = HOPS,
	               .ip6_src = segment->from.v6.sin6_addr,
	               .ip6_dst = segment->to.v6.sin6_addr},
	        .tcp = make_header(segment),
	};
	struct sockaddr_in6 where = segment->to.v6;

	where.sin6_port = 0; /* of a raw socket it is the protocol */
	packet.tcp.check = checksum(&packet.ip.ip6_src, &packet.ip.ip6_dst, sizeof(struct in6_addr),
	                            &packet.tcp);
	return send_packet(AF_INET6, &packet, sizeof(packet), &where, sizeof(where), err);
}

static struct in_addr v4_address(const union sp_inet_address *address)
{
	struct in_addr v4 = address->v4.sin_addr;

	if (address->any.sa_family == AF_INET6)
		memcpy(&v4, &address->v6.sin6_addr.s6_addr[12], sizeof(v4));
	return v4;
}

int sp_tcp_segment_send(const struct sp_tcp_segment *segment, struct sp_error *err)
{
	if (sp_inet_address_is_v4(&segment->to))
		return send_v4(segment, v4_address(&segment->from), v4_address(&segment->to), err);
	return send_v6(segment, err);
}
