/* Making a packet that says that it comes from somebody else: see ip_packet.h. */
#include "kinds/ip_packet.h"

#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <string.h>

#define PACKET_MAX 65535

static uint32_t add_words(uint32_t sum, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i += 2) {
		uint8_t word[2] = {0};
		uint16_t number;

		memcpy(word, (const uint8_t *)bytes + i, size - i < 2 ? size - i : 2);
		memcpy(&number, word, sizeof(number));
		sum += number;
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return sum;
}

/* The checksum of TCP and UDP: over both addresses, protocol and length, and the rest (RFC 9293, 3.1). */
static void put_checksum(const struct sp_ip_packet *packet, const void *from, const void *to,
                         size_t address_size)
{
	const uint16_t rest[] = {htons(packet->protocol), htons((uint16_t)packet->size)};
	uint16_t checksum = 0;
	uint32_t sum = add_words(0, from, address_size);

	memcpy((uint8_t *)packet->payload + packet->checksum_place, &checksum, sizeof(checksum));
	sum = add_words(sum, to, address_size);
	sum = add_words(sum, rest, sizeof(rest));
	sum = add_words(sum, packet->payload, packet->size);
	checksum = (uint16_t)~sum;
	if (!checksum)
		checksum = UINT16_MAX; /* the same number; to UDP 0 means that there is none */
	memcpy((uint8_t *)packet->payload + packet->checksum_place, &checksum, sizeof(checksum));
}

/* What the kernel would send from, to reach that address: itself, if it is an address of this machine. */
static bool is_local(int family, const void *address, socklen_t size)
{
	sp_cleanup_close int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union sp_inet_address to = {0}, from = {0};
	socklen_t from_size = sizeof(from);

	memcpy(&to, address, size);
	to.v4.sin_port = htons(1); /* at the same place in both */
	if (fd < 0 || connect(fd, &to.any, size) || getsockname(fd, &from.any, &from_size))
		return false;
	if (family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&from.v6.sin6_addr, &to.v6.sin6_addr);
	return from.v4.sin_addr.s_addr == to.v4.sin_addr.s_addr ||
	       ntohl(to.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static int send_bytes(int family, const struct sp_ip_packet *packet, const void *header,
                      size_t header_size, const void *to, socklen_t to_size, struct sp_error *err)
{
	sp_cleanup_close int raw = socket(family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	struct iovec pieces[] = {{(void *)header, header_size}, {packet->payload, packet->size}};
	struct msghdr message = {
	        .msg_name = (void *)to, .msg_namelen = to_size, .msg_iov = pieces, .msg_iovlen = 2};

	if (!is_local(family, to, to_size))
		return sp_fail(err, EADDRNOTAVAIL,
		               "what it came for is not an address of this machine now");
	if (raw < 0 ||
	    (packet->mark &&
	     setsockopt(raw, SOL_SOCKET, SO_MARK, &packet->mark, sizeof(packet->mark)) < 0) ||
	    sendmsg(raw, &message, 0) < 0)
		return sp_fail_errno(err, errno, "cannot send a packet to ourselves");
	return 0;
}

static int send_v4(const struct sp_ip_packet *packet, struct in_addr from, struct in_addr to,
                   struct sp_error *err)
{
	/* The kernel fills in its length, id and checksum. */
	const struct iphdr header = {.version = 4,
	                             .ihl = sizeof(header) / 4,
	                             .tos = packet->class,
	                             .ttl = packet->hops,
	                             .protocol = packet->protocol,
	                             .saddr = from.s_addr,
	                             .daddr = to.s_addr};
	const struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = to};

	put_checksum(packet, &from, &to, sizeof(from));
	return send_bytes(AF_INET, packet, &header, sizeof(header), &where, sizeof(where), err);
}

static int send_v6(const struct sp_ip_packet *packet, struct sp_error *err)
{
	const struct ip6_hdr header = {
	        .ip6_flow = htonl(6U << 28 | (uint32_t)packet->class << 20),
	        .ip6_plen = htons((uint16_t)packet->size),
	        .ip6_nxt = packet->protocol,
	        .ip6_hlim = packet->hops,
	        .ip6_src = packet->from.v6.sin6_addr,
	        .ip6_dst = packet->to.v6.sin6_addr,
	};
	struct sockaddr_in6 where = packet->to.v6;

	where.sin6_port = 0; /* of a raw socket it is the protocol */
	put_checksum(packet, &header.ip6_src, &header.ip6_dst, sizeof(struct in6_addr));
	return send_bytes(AF_INET6, packet, &header, sizeof(header), &where, sizeof(where), err);
}

static struct in_addr v4_address(const union sp_inet_address *address)
{
	struct in_addr v4 = address->v4.sin_addr;

	if (address->any.sa_family == AF_INET6)
		memcpy(&v4, &address->v6.sin6_addr.s6_addr[12], sizeof(v4));
	return v4;
}

int sp_ip_packet_send(const struct sp_ip_packet *packet, struct sp_error *err)
{
	if (packet->size > PACKET_MAX - sizeof(struct iphdr))
		return sp_fail(err, EMSGSIZE, "a packet of %zu bytes cannot be", packet->size);
	if (sp_inet_address_is_v4(&packet->to))
		return send_v4(packet, v4_address(&packet->from), v4_address(&packet->to), err);
	return send_v6(packet, err);
}
