/* The queues of UDP sockets, looked at and filled: see udp_queue.h. */
#include "kinds/udp_queue.h"

#include "base/array.h"
#include "kinds/ip_packet.h"

#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define DATAGRAM_MAX 65535
#define HOPS 64          /* where the socket does not have it told */
#define PATIENCE_MS 2000 /* a busy machine may take its time to deliver */

/* --- looking --- */

static ProtobufCBinaryData copy(const void *bytes, size_t size)
{
	ProtobufCBinaryData data = {.len = size, .data = sp_alloc(size + 1)};

	memcpy(data.data, bytes, size);
	return data;
}

static uint32_t small_number(const struct cmsghdr *control)
{
	int number = 0;

	if (control->cmsg_len >= CMSG_LEN(sizeof(number)))
		memcpy(&number, CMSG_DATA(control), sizeof(number));
	else if (control->cmsg_len > CMSG_LEN(0))
		number = *(const uint8_t *)CMSG_DATA(control);
	return (uint8_t)number;
}

/* What the program has asked to be told along with each datagram; `segment`: of how many bytes each, if it is several. */
static void read_control(const struct cmsghdr *control, Sealpoint__UdpDatagram *datagram,
                         size_t *segment)
{
	const uint8_t *data = CMSG_DATA(control);
	int number = 0;

	if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_PKTINFO &&
	    !datagram->to.len)
		datagram->to =
		        copy(data + offsetof(struct in_pktinfo, ipi_addr), sizeof(struct in_addr));
	if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_PKTINFO &&
	    !datagram->to.len)
		datagram->to = copy(data + offsetof(struct in6_pktinfo, ipi6_addr),
		                    sizeof(struct in6_addr));
	if ((control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TTL) ||
	    (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_HOPLIMIT))
		datagram->hops = small_number(control);
	if ((control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TOS) ||
	    (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_TCLASS))
		datagram->class_ = small_number(control);
	if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
		memcpy(&number, data, sizeof(number));
		*segment = number > 0 ? (size_t)number : 0;
	}
}

static Sealpoint__UdpDatagram *add_datagram(struct sp_array *datagrams, const void *bytes,
                                            size_t size, const union sp_inet_address *from)
{
	Sealpoint__UdpDatagram *datagram = sp_alloc(sizeof(*datagram));
	union sp_inet_address name = *from;
	ProtobufCBinaryData address = sp_inet_address_bytes(&name);

	sealpoint__udp_datagram__init(datagram);
	datagram->data = copy(bytes, size);
	datagram->from = copy(address.data, address.len);
	sp_array_append(datagrams, &datagram);
	return datagram;
}

/* The kernel may have put several datagrams of one sender together (UDP_GRO). They are apart again in the image. */
static void add_segments(struct sp_array *datagrams, const uint8_t *bytes, size_t size,
                         struct msghdr *header)
{
	Sealpoint__UdpDatagram common = SEALPOINT__UDP_DATAGRAM__INIT;
	size_t segment = 0;

	for (struct cmsghdr *each = CMSG_FIRSTHDR(header); each; each = CMSG_NXTHDR(header, each))
		read_control(each, &common, &segment);
	if (!segment)
		segment = size;
	for (size_t done = 0; !done || done < size; done += segment) {
		size_t length = size - done < segment ? size - done : segment;
		Sealpoint__UdpDatagram *datagram =
		        add_datagram(datagrams, bytes + done, length, header->msg_name);

		if (common.to.len)
			datagram->to = copy(common.to.data, common.to.len);
		datagram->hops = common.hops;
		datagram->class_ = common.class_;
		if (!size)
			break;
	}
	free(common.to.data);
}

/* Looks at what is at the peek offset. 1: there is nothing, or, behind a first one, only what has no content. */
static int look_once(int fd, uint8_t *buffer, bool only_empty, struct sp_array *datagrams,
                     struct sp_error *err)
{
	union {
		struct cmsghdr aligned;
		char bytes[2048];
	} control;
	union sp_inet_address from = {0};
	struct iovec vector = {.iov_base = buffer, .iov_len = DATAGRAM_MAX};
	struct msghdr header = {.msg_name = &from,
	                        .msg_namelen = sizeof(from),
	                        .msg_iov = &vector,
	                        .msg_iovlen = 1,
	                        .msg_control = &control,
	                        .msg_controllen = sizeof(control)};
	ssize_t size = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT);

	if (size < 0 && errno == EAGAIN)
		return 1;
	if (size < 0)
		return sp_fail_errno(err, errno, "cannot look at what waits to be read");
	if (from.any.sa_family && (!only_empty || !size))
		add_segments(datagrams, buffer, (size_t)size, &header);
	return 0;
}

static int set_peek_offset(int fd, int offset, struct sp_error *err)
{
	if (sp_socket_number(fd, SO_PEEK_OFF) == offset ||
	    !setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)))
		return 0;
	return sp_fail_errno(err, errno, "cannot set its peek offset");
}

/* One without content that somebody has looked at is passed over by the offset, so the first is looked at without. */
int sp_udp_queue_read(int fd, struct sp_array *datagrams, struct sp_error *err)
{
	sp_cleanup_free uint8_t *buffer = sp_alloc(DATAGRAM_MAX);
	int before = sp_socket_number(fd, SO_PEEK_OFF);
	int rc = set_peek_offset(fd, -1, err);

	if (!rc)
		rc = look_once(fd, buffer, true, datagrams, err);
	if (!rc)
		rc = set_peek_offset(fd, 0, err);
	while (!rc)
		rc = look_once(fd, buffer, false, datagrams, err);
	if (set_peek_offset(fd, before, rc < 0 ? NULL : err))
		return -EIO;
	return rc < 0 ? rc : 0;
}

void sp_udp_queue_release(struct sp_array *datagrams)
{
	for (size_t i = 0; i < datagrams->count; i++)
		protobuf_c_message_free_unpacked(sp_array_pointer(datagrams, i), NULL);
	sp_array_release(datagrams);
}

/* --- filling --- */

/* Where the packet goes: to the address that the datagram came for, or the socket's own, or any that is ours. */
static void set_destination(const Sealpoint__UdpDatagram *datagram,
                            const union sp_inet_address *bound, struct sp_ip_packet *packet)
{
	bool v4 = sp_inet_address_is_v4(&packet->from);

	packet->to = *bound;
	if (bound->any.sa_family == AF_INET) {
		if (datagram->to.len == sizeof(struct in_addr))
			memcpy(&packet->to.v4.sin_addr, datagram->to.data, datagram->to.len);
		else if (!bound->v4.sin_addr.s_addr)
			packet->to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return;
	}
	packet->to.v6.sin6_scope_id = packet->from.v6.sin6_scope_id;
	if (datagram->to.len == sizeof(struct in6_addr)) {
		memcpy(&packet->to.v6.sin6_addr, datagram->to.data, datagram->to.len);
	} else if (v4 && !IN6_IS_ADDR_V4MAPPED(&bound->v6.sin6_addr)) {
		packet->to.v6.sin6_addr = (struct in6_addr){
		        .s6_addr = {[10] = 0xff, [11] = 0xff, [12] = IN_LOOPBACKNET, [15] = 1}};
	} else if (IN6_IS_ADDR_UNSPECIFIED(&bound->v6.sin6_addr)) {
		packet->to.v6.sin6_addr = in6addr_loopback;
	}
}

static int send_datagram(const Sealpoint__UdpDatagram *datagram, const union sp_inet_address *bound,
                         uint8_t protocol, struct sp_error *err)
{
	struct udphdr header = {.uh_dport = bound->v4.sin_port};
	struct sp_ip_packet packet = {
	        .protocol = protocol,
	        .hops = datagram->hops ? (uint8_t)datagram->hops : HOPS,
	        .class = (uint8_t)datagram->class_,
	        .size = sizeof(header) + datagram->data.len,
	        .checksum_place = offsetof(struct udphdr, uh_sum),
	};
	sp_cleanup_free uint8_t *payload = sp_alloc(packet.size);

	memcpy(&packet.from, datagram->from.data, datagram->from.len);
	set_destination(datagram, bound, &packet);
	header.uh_sport = packet.from.v4.sin_port; /* at the same place in both */
	/* In UDP-Lite it is how much the checksum covers: all. */
	header.uh_ulen = htons((uint16_t)packet.size);
	memcpy(payload, &header, sizeof(header));
	if (datagram->data.len)
		memcpy(payload + sizeof(header), datagram->data.data, datagram->data.len);
	packet.payload = payload;
	return sp_ip_packet_send(&packet, err);
}

/* How much memory the queue takes, which grows with all that comes. */
static uint32_t queue_memory(int fd)
{
	uint32_t memory[SK_MEMINFO_VARS] = {0};
	socklen_t size = sizeof(memory);

	getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size);
	return memory[SK_MEMINFO_RMEM_ALLOC];
}

static bool has_come(int fd, uint32_t before)
{
	for (int i = 0; i < PATIENCE_MS && queue_memory(fd) == before; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return queue_memory(fd) != before;
}

int sp_udp_queue_fill(int fd, const Sealpoint__Udp *message, struct sp_error *err)
{
	union sp_inet_address bound = {0};
	socklen_t size = sizeof(bound);
	int count = 0;

	if (getsockname(fd, &bound.any, &size))
		return sp_fail_errno(err, errno, "cannot read its address");
	for (size_t i = 0; i < message->n_datagrams; i++) {
		uint32_t before = queue_memory(fd);

		if (send_datagram(message->datagrams[i], &bound, (uint8_t)message->socket->protocol,
		                  NULL))
			continue;
		if (!has_come(fd, before))
			break; /* something keeps them away, and would the others */
		count++;
	}
	return count;
}

int sp_udp_queue_check(const Sealpoint__Udp *message, struct sp_error *err)
{
	for (size_t i = 0; i < message->n_datagrams; i++) {
		const Sealpoint__UdpDatagram *datagram = message->datagrams[i];

		if (!sp_inet_address_valid(&datagram->from, message->socket->family) ||
		    datagram->data.len > DATAGRAM_MAX || datagram->hops > UINT8_MAX ||
		    datagram->class_ > UINT8_MAX)
			return sp_fail_damaged(err, "an impossible datagram");
	}
	return 0;
}
