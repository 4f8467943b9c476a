/* The table of socket options, and its two directions. */
#include "kinds/socket_options.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"

#include <linux/icmp.h>
#include <linux/if_packet.h>
#include <linux/if.h>
#include <linux/in6.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum {
	CONGESTION_NAME_MAX = 16, /* TCP_CA_NAME_MAX of the kernel */
	IP_OPTIONS_MAX = 40,
	EXTENSION_MAX = 2048, /* of an IPv6 header */
	OPTION_SIZE_MAX = EXTENSION_MAX,
};

/* Of headers that do not go with the others, or are newer than those of Debian 12. */
#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#define SO_PASSRIGHTS 83
#define SO_INQ 84
#ifndef IP_RECVERR_RFC4884
#define IP_RECVERR_RFC4884 26
#endif
#ifndef IPV6_RECVERR_RFC4884
#define IPV6_RECVERR_RFC4884 31
#endif
#define PACKET_VNET_HDR_SZ 24
#define TCP_RTO_MAX_MS 44
#define TCP_RTO_MIN_US 45
#define TCP_DELACK_MAX_US 46
#define UDPLITE_SEND_CSCOV 10
#define UDPLITE_RECV_CSCOV 11

/* Of which sockets an option can make a difference, among those that have its level. */
enum audience {
	ALL,
	PACKETS, /* not of streams */
	LOCAL,   /* unix and netlink sockets, which know who has sent */
	UNCONNECTED, /* of TCP without a connection; with one it has no effect, or tells another thing */
};

struct option {
	int level;
	int name;
	const char *title;
	unsigned size;
	bool text; /* up to `size` bytes, ends with a NUL byte */
	enum audience audience;
};

#define NUMBER_OF(audience, level, name)                         \
	{                                                        \
		level, name, #name, sizeof(int), false, audience \
	}
#define NUMBER(level, name) NUMBER_OF(ALL, level, name)
#define STRUCTURE_OF(audience, level, name, type)                 \
	{                                                         \
		level, name, #name, sizeof(type), false, audience \
	}
/* Up to so many bytes; none: it is not set. */
#define BYTES(level, name, size)                     \
	{                                            \
		level, name, #name, size, false, ALL \
	}
#define STRUCTURE(level, name, type) STRUCTURE_OF(ALL, level, name, type)
#define TEXT(level, name, size)                     \
	{                                           \
		level, name, #name, size, true, ALL \
	}

/* In the order in which they are set: IP_TOS changes SO_PRIORITY, so it comes before. */
static const struct option options[] = {
        NUMBER(SOL_SOCKET, SO_REUSEADDR),
        NUMBER(SOL_SOCKET, SO_REUSEPORT),
        NUMBER(SOL_SOCKET, SO_KEEPALIVE),
        NUMBER_OF(PACKETS, SOL_SOCKET, SO_BROADCAST),
        NUMBER(SOL_SOCKET, SO_DONTROUTE),
        NUMBER(SOL_SOCKET, SO_OOBINLINE),
        NUMBER_OF(PACKETS, SOL_SOCKET, SO_NO_CHECK),
        NUMBER_OF(LOCAL, SOL_SOCKET, SO_PASSCRED),
        NUMBER_OF(LOCAL, SOL_SOCKET, SO_PASSSEC),
        NUMBER_OF(LOCAL, SOL_SOCKET, SO_PASSPIDFD),
        NUMBER_OF(LOCAL, SOL_SOCKET, SO_PASSRIGHTS),
        NUMBER_OF(LOCAL, SOL_SOCKET, SO_INQ),
        NUMBER(SOL_SOCKET, SO_PEEK_OFF),
        NUMBER(SOL_SOCKET, SO_RCVLOWAT),
        NUMBER(SOL_SOCKET, SO_SNDBUF),
        NUMBER(SOL_SOCKET, SO_RCVBUF),
        NUMBER(SOL_SOCKET, SO_BUF_LOCK), /* to set a size locks it */
        STRUCTURE(SOL_SOCKET, SO_LINGER, struct linger),
        STRUCTURE(SOL_SOCKET, SO_RCVTIMEO, struct timeval),
        STRUCTURE(SOL_SOCKET, SO_SNDTIMEO, struct timeval),
        NUMBER(SOL_SOCKET, SO_TIMESTAMP),
        NUMBER(SOL_SOCKET, SO_TIMESTAMPNS),
        NUMBER(SOL_SOCKET, SO_TIMESTAMP_NEW),
        NUMBER(SOL_SOCKET, SO_TIMESTAMPNS_NEW),
        NUMBER(SOL_SOCKET, SO_TIMESTAMPING),
        NUMBER_OF(PACKETS, SOL_SOCKET, SO_RXQ_OVFL),
        NUMBER(SOL_SOCKET, SO_RCVMARK),
        NUMBER_OF(PACKETS, SOL_SOCKET, SO_WIFI_STATUS),
        NUMBER(SOL_SOCKET, SO_SELECT_ERR_QUEUE),
        NUMBER(SOL_SOCKET, SO_LOCK_FILTER),
        NUMBER(SOL_SOCKET, SO_BUSY_POLL),
        NUMBER(SOL_SOCKET, SO_PREFER_BUSY_POLL),
        NUMBER(SOL_SOCKET, SO_ZEROCOPY),
        STRUCTURE(SOL_SOCKET, SO_MAX_PACING_RATE, uint64_t),
        NUMBER(SOL_SOCKET, SO_RESERVE_MEM),
        NUMBER(SOL_SOCKET, SO_TXREHASH),
        STRUCTURE_OF(PACKETS, SOL_SOCKET, SO_TXTIME, struct sock_txtime),
        NUMBER(SOL_SOCKET, SO_MARK),
        TEXT(SOL_SOCKET, SO_BINDTODEVICE, IFNAMSIZ),
        NUMBER(IPPROTO_IP, IP_TOS),
        NUMBER(IPPROTO_IP, IP_TTL),
        NUMBER(IPPROTO_IP, IP_MINTTL),
        NUMBER(IPPROTO_IP, IP_MTU_DISCOVER),
        NUMBER(IPPROTO_IP, IP_RECVERR),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_RECVERR_RFC4884),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_PASSSEC),
        NUMBER(IPPROTO_IP, IP_RECVTOS),
        NUMBER(IPPROTO_IP, IP_RECVTTL),
        NUMBER(IPPROTO_IP, IP_RECVORIGDSTADDR),
        NUMBER(IPPROTO_IP, IP_PKTINFO),
        NUMBER(IPPROTO_IP, IP_FREEBIND),
        NUMBER(IPPROTO_IP, IP_TRANSPARENT),
        NUMBER(IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT),
        NUMBER(IPPROTO_IP, IP_LOCAL_PORT_RANGE),
        BYTES(IPPROTO_IP, IP_OPTIONS, IP_OPTIONS_MAX),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_MULTICAST_ALL),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_MULTICAST_LOOP),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_MULTICAST_TTL),
        STRUCTURE_OF(PACKETS, IPPROTO_IP, IP_MULTICAST_IF, struct in_addr),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_UNICAST_IF),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_RECVOPTS),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_RETOPTS),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_HDRINCL),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_NODEFRAG),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_CHECKSUM),
        NUMBER_OF(PACKETS, IPPROTO_IP, IP_RECVFRAGSIZE),
        NUMBER(IPPROTO_IPV6, IPV6_V6ONLY),
        NUMBER(IPPROTO_IPV6, IPV6_TCLASS),
        NUMBER(IPPROTO_IPV6, IPV6_UNICAST_HOPS),
        NUMBER(IPPROTO_IPV6, IPV6_MTU_DISCOVER),
        NUMBER(IPPROTO_IPV6, IPV6_DONTFRAG),
        NUMBER(IPPROTO_IPV6, IPV6_RECVERR),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_RECVERR_RFC4884),
        NUMBER(IPPROTO_IPV6, IPV6_MINHOPCOUNT),
        NUMBER(IPPROTO_IPV6, IPV6_ADDR_PREFERENCES),
        NUMBER(IPPROTO_IPV6, IPV6_FLOWINFO),
        NUMBER(IPPROTO_IPV6, IPV6_FLOWINFO_SEND),
        NUMBER(IPPROTO_IPV6, IPV6_RECVPKTINFO),
        NUMBER(IPPROTO_IPV6, IPV6_RECVHOPLIMIT),
        NUMBER(IPPROTO_IPV6, IPV6_RECVTCLASS),
        NUMBER(IPPROTO_IPV6, IPV6_AUTOFLOWLABEL),
        NUMBER(IPPROTO_IPV6, IPV6_FREEBIND),
        NUMBER(IPPROTO_IPV6, IPV6_TRANSPARENT),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_MULTICAST_ALL),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_MULTICAST_LOOP),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_MULTICAST_HOPS),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_MULTICAST_IF),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_UNICAST_IF),
        BYTES(IPPROTO_IPV6, IPV6_HOPOPTS, EXTENSION_MAX),
        BYTES(IPPROTO_IPV6, IPV6_RTHDRDSTOPTS, EXTENSION_MAX),
        BYTES(IPPROTO_IPV6, IPV6_RTHDR, EXTENSION_MAX),
        BYTES(IPPROTO_IPV6, IPV6_DSTOPTS, EXTENSION_MAX),
        NUMBER(IPPROTO_IPV6, IPV6_RECVHOPOPTS),
        NUMBER(IPPROTO_IPV6, IPV6_RECVRTHDR),
        NUMBER(IPPROTO_IPV6, IPV6_RECVDSTOPTS),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_RECVPATHMTU),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_RECVFRAGSIZE),
        NUMBER_OF(PACKETS, IPPROTO_IPV6, IPV6_HDRINCL),
        NUMBER(IPPROTO_TCP, TCP_NODELAY),
        NUMBER(IPPROTO_TCP, TCP_CORK),
        NUMBER_OF(UNCONNECTED, IPPROTO_TCP, TCP_MAXSEG),
        NUMBER(IPPROTO_TCP, TCP_KEEPIDLE),
        NUMBER(IPPROTO_TCP, TCP_KEEPINTVL),
        NUMBER(IPPROTO_TCP, TCP_KEEPCNT),
        NUMBER(IPPROTO_TCP, TCP_SYNCNT),
        NUMBER(IPPROTO_TCP, TCP_LINGER2),
        NUMBER_OF(UNCONNECTED, IPPROTO_TCP, TCP_DEFER_ACCEPT),
        NUMBER(IPPROTO_TCP, TCP_WINDOW_CLAMP),
        NUMBER(IPPROTO_TCP, TCP_USER_TIMEOUT),
        NUMBER_OF(UNCONNECTED, IPPROTO_TCP, TCP_FASTOPEN),
        NUMBER_OF(UNCONNECTED, IPPROTO_TCP, TCP_FASTOPEN_CONNECT),
        NUMBER_OF(UNCONNECTED, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE),
        NUMBER(IPPROTO_TCP, TCP_NOTSENT_LOWAT),
        NUMBER(IPPROTO_TCP, TCP_SAVE_SYN),
        NUMBER(IPPROTO_TCP, TCP_INQ),
        NUMBER(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS),
        NUMBER(IPPROTO_TCP, TCP_TX_DELAY),
        NUMBER(IPPROTO_TCP, TCP_RTO_MAX_MS),
        NUMBER(IPPROTO_TCP, TCP_RTO_MIN_US),
        NUMBER(IPPROTO_TCP, TCP_DELACK_MAX_US),
        TEXT(IPPROTO_TCP, TCP_CONGESTION, CONGESTION_NAME_MAX),
        NUMBER(IPPROTO_UDP, UDP_CORK),
        NUMBER(IPPROTO_UDP, UDP_ENCAP),
        NUMBER(IPPROTO_UDP, UDP_NO_CHECK6_TX),
        NUMBER(IPPROTO_UDP, UDP_NO_CHECK6_RX),
        NUMBER(IPPROTO_UDP, UDP_SEGMENT),
        NUMBER(IPPROTO_UDP, UDP_GRO),
        NUMBER(IPPROTO_UDPLITE, UDPLITE_SEND_CSCOV),
        NUMBER(IPPROTO_UDPLITE, UDPLITE_RECV_CSCOV),
        NUMBER(SOL_RAW, ICMP_FILTER),
        NUMBER(SOL_RAW, IPV6_CHECKSUM),
        STRUCTURE(IPPROTO_ICMPV6, ICMP6_FILTER, struct icmp6_filter),
        NUMBER(SOL_PACKET, PACKET_VERSION),
        NUMBER(SOL_PACKET, PACKET_RESERVE),
        NUMBER(SOL_PACKET, PACKET_COPY_THRESH),
        NUMBER(SOL_PACKET, PACKET_AUXDATA),
        NUMBER(SOL_PACKET, PACKET_ORIGDEV),
        NUMBER(SOL_PACKET, PACKET_VNET_HDR),
        NUMBER(SOL_PACKET, PACKET_VNET_HDR_SZ),
        NUMBER(SOL_PACKET, PACKET_LOSS),
        NUMBER(SOL_PACKET, PACKET_TIMESTAMP),
        NUMBER(SOL_PACKET, PACKET_TX_HAS_OFF),
        NUMBER(SOL_PACKET, PACKET_QDISC_BYPASS),
        NUMBER(SOL_PACKET, PACKET_IGNORE_OUTGOING),
        NUMBER(SOL_NETLINK, NETLINK_PKTINFO),
        NUMBER(SOL_NETLINK, NETLINK_BROADCAST_ERROR),
        NUMBER(SOL_NETLINK, NETLINK_NO_ENOBUFS),
        NUMBER(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID),
        NUMBER(SOL_NETLINK, NETLINK_CAP_ACK),
        NUMBER(SOL_NETLINK, NETLINK_EXT_ACK),
        NUMBER(SOL_NETLINK, NETLINK_GET_STRICT_CHK),
        NUMBER(SOL_SOCKET, SO_PRIORITY),
};

#define OPTIONS SP_COUNT_OF(options)

/* What a socket is, as far as it decides which options it has that make a difference. */
struct sort {
	int domain, type, protocol;
	int chosen_buffers; /* SO_BUF_LOCK: sizes that are not left to the kernel; 1: send, 2: receive */
	bool connected; /* of TCP: it has a connection, or is opening one */
};

static struct sort sort_of(int fd)
{
	struct sort sort = {.domain = sp_socket_number(fd, SO_DOMAIN),
	                    .type = sp_socket_number(fd, SO_TYPE),
	                    .protocol = sp_socket_number(fd, SO_PROTOCOL),
	                    .chosen_buffers = sp_socket_number(fd, SO_BUF_LOCK)};
	unsigned state = sp_tcp_info(fd).tcpi_state;

	if (sort.chosen_buffers < 0)
		sort.chosen_buffers = 0;
	sort.connected = state != TCP_CLOSE && state != TCP_LISTEN;
	return sort;
}

/* Asking for what cannot be there would be most of the work, of unix sockets above all. */
static bool has_level(const struct sort *sort, int level)
{
	bool inet = sort->domain == AF_INET || sort->domain == AF_INET6;

	switch (level) {
	case SOL_SOCKET:
		return true;
	case IPPROTO_IP: /* an IPv6 socket can speak IPv4 */
		return inet;
	case IPPROTO_IPV6:
		return sort->domain == AF_INET6;
	case IPPROTO_TCP:
		return inet && sort->type == SOCK_STREAM;
	case IPPROTO_UDP:
		return inet && sort->type == SOCK_DGRAM &&
		       (sort->protocol == IPPROTO_UDP || sort->protocol == IPPROTO_UDPLITE);
	case IPPROTO_UDPLITE:
		return inet && sort->type == SOCK_DGRAM && sort->protocol == IPPROTO_UDPLITE;
	case SOL_PACKET:
		return sort->domain == AF_PACKET;
	case SOL_NETLINK:
		return sort->domain == AF_NETLINK;
	default:
		return inet && sort->type == SOCK_RAW;
	}
}

static bool has_audience(const struct sort *sort, enum audience audience)
{
	switch (audience) {
	case PACKETS:
		return sort->type != SOCK_STREAM;
	case LOCAL:
		return sort->domain == AF_UNIX || sort->domain == AF_NETLINK;
	case UNCONNECTED:
		return !sort->connected;
	default:
		return true;
	}
}

/* What the kernel tunes itself is left to it. */
static bool is_wanted(const struct sort *sort, const struct option *option)
{
	if (option->level == SOL_SOCKET && option->name == SO_SNDBUF)
		return sort->chosen_buffers & 1;
	if (option->level == SOL_SOCKET && option->name == SO_RCVBUF)
		return sort->chosen_buffers & 2;
	return has_level(sort, option->level) && has_audience(sort, option->audience);
}

static const struct option *find_option(const Sealpoint__SocketOption *saved)
{
	for (size_t i = 0; i < OPTIONS; i++)
		if ((uint32_t)options[i].level == saved->level &&
		    (uint32_t)options[i].name == saved->name)
			return &options[i];
	return NULL;
}

/* --- saving --- */

int sp_socket_number(int fd, int option)
{
	int value;
	socklen_t size = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

struct tcp_info sp_tcp_info(int fd)
{
	struct tcp_info info = {.tcpi_state = TCP_CLOSE};
	socklen_t size = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
	return info;
}

/* The socket's own value, or 0 if it has no such option. */
static unsigned read_option(int fd, const struct option *option, void *value)
{
	socklen_t size = option->size;

	if (getsockopt(fd, option->level, option->name, value, &size) < 0)
		return 0;
	return option->text ? (unsigned)strnlen(value, size) : size;
}

static void save_option(struct sp_socket_options *saved, const struct option *option,
                        const void *value, unsigned size)
{
	Sealpoint__SocketOption *message = sp_alloc(sizeof(*message));

	sealpoint__socket_option__init(message);
	message->level = (uint32_t)option->level;
	message->name = (uint32_t)option->name;
	message->value.data = sp_alloc(size + 1U);
	message->value.len = size;
	memcpy(message->value.data, value, size);
	saved->list[saved->count++] = message;
}

int sp_socket_options_save(int fd, struct sp_socket_options *saved, struct sp_error *err)
{
	uint8_t value[OPTION_SIZE_MAX];
	struct sort sort = sort_of(fd);

	saved->list = sp_alloc_zeroed(OPTIONS, sizeof(*saved->list));
	saved->count = 0;
	for (size_t i = 0; i < OPTIONS; i++) {
		unsigned size =
		        is_wanted(&sort, &options[i]) ? read_option(fd, &options[i], value) : 0;

		if (size)
			save_option(saved, &options[i], value, size);
	}
	return 0;
}

void sp_socket_options_release(struct sp_socket_options *saved)
{
	for (size_t i = 0; i < saved->count; i++) {
		free(saved->list[i]->value.data);
		free(saved->list[i]);
	}
	free(saved->list);
	*saved = (struct sp_socket_options){0};
}

bool sp_socket_options_have(Sealpoint__SocketOption *const *list, size_t count, int level, int name)
{
	for (size_t i = 0; i < count; i++)
		if (list[i]->level == (uint32_t)level && list[i]->name == (uint32_t)name)
			return list[i]->value.len && list[i]->value.data[0];
	return false;
}

/* --- setting --- */

/* The kernel doubles what it is given, and has a limit that CAP_NET_ADMIN passes by. */
static int set_buffer_size(int fd, int name, const void *value)
{
	int size;

	memcpy(&size, value, sizeof(size));
	size /= 2;
	if (!setsockopt(fd, SOL_SOCKET, name == SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &size,
	                sizeof(size)))
		return 0;
	return setsockopt(fd, SOL_SOCKET, name, &size, sizeof(size));
}

static int set_option(int fd, const struct option *option, const ProtobufCBinaryData *value)
{
	if (option->level == SOL_SOCKET && (option->name == SO_SNDBUF || option->name == SO_RCVBUF))
		return set_buffer_size(fd, option->name, value->data);
	return setsockopt(fd, option->level, option->name, value->data, (socklen_t)value->len);
}

int sp_socket_options_apply(int fd, Sealpoint__SocketOption *const *list, size_t count,
                            struct sp_error *err)
{
	uint8_t now[OPTION_SIZE_MAX];

	for (size_t i = 0; i < count; i++) {
		const struct option *option = find_option(list[i]);
		const ProtobufCBinaryData *value = &list[i]->value;

		if (!option)
			return sp_fail_damaged(err, "an unknown socket option");
		if (read_option(fd, option, now) == value->len &&
		    !memcmp(now, value->data, value->len))
			continue;
		if (set_option(fd, option, value) < 0)
			return sp_fail_errno(err, errno, "cannot set %s", option->title);
	}
	return 0;
}

int sp_socket_options_check(Sealpoint__SocketOption *const *list, size_t count,
                            struct sp_error *err)
{
	for (size_t i = 0; i < count; i++) {
		const struct option *option = find_option(list[i]);

		if (!option)
			return sp_fail_damaged(err, "an unknown socket option (level %u, name %u)",
			                       list[i]->level, list[i]->name);
		if (option->text ? list[i]->value.len >= option->size
		                 : list[i]->value.len > option->size || !list[i]->value.len)
			return sp_fail_damaged(err, "an impossible value of %s", option->title);
	}
	return 0;
}
