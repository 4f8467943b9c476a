/*
 * Every option that a socket tells is as it was: each is set to something that is not the default where the kernel
 * takes it, and asked for by its number, so that one that nobody has thought of is noticed, too.
 *
 * subject: dump=--tcp-established restore=--tcp-established
 */
#include "tcp_pair.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <sys/un.h>

#define NAMES 128
#define SIZE_MAX_ASKED 64

enum { SOCKET, IP, IPV6, TCP, UDP, NETLINK, LEVELS };

static const struct {
	int number;
	const char *name;
} levels[LEVELS] = {[SOCKET] = {SOL_SOCKET, "SOL_SOCKET"},   [IP] = {IPPROTO_IP, "IPPROTO_IP"},
                    [IPV6] = {IPPROTO_IPV6, "IPPROTO_IPV6"}, [TCP] = {IPPROTO_TCP, "IPPROTO_TCP"},
                    [UDP] = {IPPROTO_UDP, "IPPROTO_UDP"},    [NETLINK] = {270, "SOL_NETLINK"}};

struct answer {
	socklen_t size; /* 0: there is no such option */
	unsigned char value[SIZE_MAX_ASKED];
};

struct socket {
	const char *name;
	int fd;
	bool stream;
	struct answer before[LEVELS][NAMES];
};

/* What tells of the moment, of the machine, or of something that is not an option. */
static bool is_volatile(int level, int name)
{
	static const int list[][2] = {
	        {SOCKET, 4 /* SO_ERROR */},
	        {SOCKET, 7 /* SO_SNDBUF: left to the kernel, unless it is locked */},
	        {SOCKET, 8 /* SO_RCVBUF */},
	        {SOCKET, 49 /* SO_INCOMING_CPU: the last one */},
	        {SOCKET, 55 /* SO_MEMINFO */},
	        {SOCKET, 56 /* SO_INCOMING_NAPI_ID */},
	        {SOCKET, 57 /* SO_COOKIE */},
	        {SOCKET, 77 /* SO_PEERPIDFD */},
	        {IP, 14 /* IP_MTU */},
	        {IP, 9 /* IP_PKTOPTIONS: of a packet that came */},
	        {IPV6, 6 /* IPV6_2292PKTOPTIONS */},
	        {IPV6, 24 /* IPV6_MTU */},
	        {IPV6, 61 /* IPV6_PATHMTU */},
	        {TCP, 10 /* TCP_WINDOW_CLAMP: follows SO_RCVBUF */},
	        {TCP, 11 /* TCP_INFO */},
	        {TCP, 12 /* TCP_QUICKACK: how things stand */},
	        {TCP, 21 /* TCP_QUEUE_SEQ: of the queue that TCP repair has looked at last */},
	        {TCP, 24 /* TCP_TIMESTAMP */},
	        {TCP, 26 /* TCP_CC_INFO */},
	        {TCP, 35 /* TCP_ZEROCOPY_RECEIVE */}};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (list[i][0] == level && list[i][1] == name)
			return true;
	return false;
}

static void ask(const struct socket *socket, int level, int name, struct answer *answer)
{
	*answer = (struct answer){.size = sizeof(answer->value)};
	/* Each of these is an act: a descriptor is made, something is read. */
	if ((level == SOCKET && name == 77) || (level == TCP && name == 35) ||
	    getsockopt(socket->fd, levels[level].number, name, answer->value, &answer->size))
		answer->size = 0;
}

static void ask_all(struct socket *socket)
{
	for (int level = 0; level < LEVELS; level++)
		for (int name = 0; name < NAMES; name++)
			ask(socket, level, name, &socket->before[level][name]);
}

/* Of a connection these tell how it was opened, or make no difference any more. */
static bool is_of_opening(int level, int name)
{
	return (level == TCP && (name == TCP_MAXSEG || name == TCP_FASTOPEN_CONNECT)) ||
	       (level == IP && name == IP_MULTICAST_TTL) ||
	       (level == IPV6 &&
	        (name == IPV6_MULTICAST_HOPS || name == IPV6_MULTICAST_IF ||
	         name == IPV6_V6ONLY /* bind(2) sets it, which a restore calls */));
}

static bool is_connected(const struct socket *socket)
{
	struct sockaddr_in6 peer;
	socklen_t size = sizeof(peer);

	return socket->stream && !getpeername(socket->fd, (struct sockaddr *)&peer, &size);
}

static void compare(const struct socket *socket)
{
	for (int level = 0; level < LEVELS; level++) {
		for (int name = 0; name < NAMES; name++) {
			const struct answer *before = &socket->before[level][name];
			struct answer now;

			if (is_volatile(level, name) ||
			    (is_connected(socket) && is_of_opening(level, name)))
				continue;
			ask(socket, level, name, &now);
			subject_check(now.size == before->size &&
			                      !memcmp(now.value, before->value, now.size),
			              "%s: %s, option %d is %d (%u bytes), was %d (%u bytes)",
			              socket->name, levels[level].name, name,
			              *(const int *)(const void *)now.value, now.size,
			              *(const int *)(const void *)before->value, before->size);
		}
	}
}

static void set(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value)); /* not every socket has it */
}

/* Those that would make the socket deaf, or need something else to be there, are left out. */
static void set_all(int fd, bool stream)
{
	static const int flags[] = {2 /* SO_REUSEADDR */,    5 /* SO_DONTROUTE */,
	                            9 /* SO_KEEPALIVE */,    10 /* SO_OOBINLINE */,
	                            15 /* SO_REUSEPORT */,   16 /* SO_PASSCRED */,
	                            34 /* SO_PASSSEC */,     45 /* SO_SELECT_ERR_QUEUE */,
	                            60 /* SO_ZEROCOPY */,    69 /* SO_PREFER_BUSY_POLL */,
	                            75 /* SO_RCVMARK */,     76 /* SO_PASSPIDFD */,
	                            35 /* SO_TIMESTAMPNS */, 84 /* SO_INQ */};
	static const int ip_flags[] = {8 /* IP_PKTINFO */,
	                               11 /* IP_RECVERR */,
	                               12 /* IP_RECVTTL */,
	                               13 /* IP_RECVTOS */,
	                               15 /* IP_FREEBIND */,
	                               20 /* IP_RECVORIGDSTADDR */,
	                               24 /* IP_BIND_ADDRESS_NO_PORT */};
	static const int ipv6_flags[] = {
	        25 /* IPV6_RECVERR */,     49 /* IPV6_RECVPKTINFO */,   51 /* IPV6_RECVHOPLIMIT */,
	        53 /* IPV6_RECVHOPOPTS */, 56 /* IPV6_RECVRTHDR */,     58 /* IPV6_RECVDSTOPTS */,
	        62 /* IPV6_DONTFRAG */,    66 /* IPV6_RECVTCLASS */,    70 /* IPV6_AUTOFLOWLABEL */,
	        78 /* IPV6_FREEBIND */,    33 /* IPV6_FLOWINFO_SEND */, 11 /* IPV6_FLOWINFO */};
	static const int tcp_values[][2] = {{TCP_NODELAY, 1},
	                                    {TCP_KEEPIDLE, 71},
	                                    {TCP_KEEPINTVL, 13},
	                                    {TCP_KEEPCNT, 4},
	                                    {TCP_SYNCNT, 3},
	                                    {TCP_LINGER2, 17},
	                                    {TCP_USER_TIMEOUT, 98000},
	                                    {TCP_NOTSENT_LOWAT, 30000},
	                                    {TCP_SAVE_SYN, 1},
	                                    {TCP_INQ, 1},
	                                    {16 /* TCP_THIN_LINEAR_TIMEOUTS */, 1},
	                                    {37 /* TCP_TX_DELAY */, 1},
	                                    {44 /* TCP_RTO_MAX_MS */, 30000},
	                                    {45 /* TCP_RTO_MIN_US */, 150000},
	                                    {46 /* TCP_DELACK_MAX_US */, 30000}};
	/* They make no difference to a stream. */
	static const int of_packets[][2] = {{SOL_SOCKET, 6 /* SO_BROADCAST */},
	                                    {SOL_SOCKET, 40 /* SO_RXQ_OVFL */},
	                                    {IPPROTO_IP, 22 /* IP_NODEFRAG */},
	                                    {IPPROTO_IP, 25 /* IP_RECVFRAGSIZE */},
	                                    {IPPROTO_IP, 26 /* IP_RECVERR_RFC4884 */},
	                                    {IPPROTO_IP, 6 /* IP_RECVOPTS */},
	                                    {IPPROTO_IP, 7 /* IP_RETOPTS */},
	                                    {IPPROTO_IP, 23 /* IP_CHECKSUM */},
	                                    {IPPROTO_IP, 18 /* IP_PASSSEC */},
	                                    {IPPROTO_IPV6, 60 /* IPV6_RECVPATHMTU */},
	                                    {IPPROTO_IPV6, 74 /* IPV6_ORIGDSTADDR */},
	                                    {IPPROTO_IPV6, 77 /* IPV6_RECVFRAGSIZE */},
	                                    {IPPROTO_IPV6, 31 /* IPV6_RECVERR_RFC4884 */}};
	const struct linger linger = {.l_onoff = 1, .l_linger = 21};
	const struct timeval timeout = {.tv_sec = 3, .tv_usec = 8000};
	const uint64_t rate = 123456789;
	const uint8_t nothing[] = {1, 1, 1, 0};             /* of IPv4 */
	const uint8_t padding[] = {0, 0, 1, 4, 0, 0, 0, 0}; /* of IPv6 */

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		set(fd, SOL_SOCKET, flags[i], 1);
	for (size_t i = 0; i < sizeof(ip_flags) / sizeof(ip_flags[0]); i++)
		set(fd, IPPROTO_IP, ip_flags[i], 1);
	for (size_t i = 0; i < sizeof(ipv6_flags) / sizeof(ipv6_flags[0]); i++)
		set(fd, IPPROTO_IPV6, ipv6_flags[i], 1);
	for (size_t i = 0; i < sizeof(tcp_values) / sizeof(tcp_values[0]); i++)
		set(fd, IPPROTO_TCP, tcp_values[i][0], tcp_values[i][1]);
	set(fd, IPPROTO_IP, IP_TOS, 0x10);
	set(fd, IPPROTO_IP, IP_TTL, 77);
	set(fd, IPPROTO_IP, 21 /* IP_MINTTL */, 1);
	set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT);
	set(fd, IPPROTO_IP, 51 /* IP_LOCAL_PORT_RANGE */, 40000 | 41000 << 16);
	set(fd, IPPROTO_IPV6, IPV6_TCLASS, 0x20);
	set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 66);
	set(fd, IPPROTO_IPV6, 73 /* IPV6_MINHOPCOUNT */, 1);
	set(fd, IPPROTO_IPV6, 72 /* IPV6_ADDR_PREFERENCES */, 2);
	set(fd, SOL_SOCKET, SO_PRIORITY, 5);
	set(fd, SOL_SOCKET, SO_MARK, 0x77);
	set(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
	set(fd, SOL_SOCKET, SO_BUSY_POLL, 50);
	set(fd, SOL_SOCKET, 74 /* SO_TXREHASH */, 0);
	set(fd, SOL_SOCKET, 72 /* SO_BUF_LOCK */, 3);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	setsockopt(fd, IPPROTO_IP, IP_OPTIONS, nothing, sizeof(nothing));
	setsockopt(fd, IPPROTO_IPV6, IPV6_HOPOPTS, padding, sizeof(padding));
	setsockopt(fd, IPPROTO_IPV6, IPV6_DSTOPTS, padding, sizeof(padding));
	for (size_t i = 0; i < sizeof(of_packets) / sizeof(of_packets[0]) && !stream; i++)
		set(fd, of_packets[i][0], of_packets[i][1], 1);
	if (!stream) {
		set(fd, IPPROTO_IP, IP_MULTICAST_TTL, 9);
		set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 0);
		set(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 9);
		set(fd, SOL_SOCKET, SO_NO_CHECK, 1);
	}
}

static struct socket sockets[16];
static size_t count;

static void add(const char *name, int fd, bool stream)
{
	subject_need(fd >= 0, "%s", name);
	sockets[count++] = (struct socket){.name = name, .fd = fd, .stream = stream};
	set_all(fd, stream);
}

int main(void)
{
	const struct sockaddr_in loopback = {.sin_family = AF_INET,
	                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 v4 = {0},
	                    v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct pair pair, pair_v6;
	int udp, pipes[2];

	memcpy(&v4, &loopback, sizeof(loopback));
	pair = make_pair_at(AF_INET, v4);
	pair_v6 = make_pair_at(AF_INET6, v6);
	add("listener", pair.listener, true);
	add("client", pair.client, true);
	add("server", pair.server, true);
	add("client of IPv6", pair_v6.client, true);
	add("server of IPv6", pair_v6.server, true);
	add("TCP, unconnected", socket(AF_INET, SOCK_STREAM, 0), true);
	add("TCP of IPv6, unconnected", socket(AF_INET6, SOCK_STREAM, 0), true);
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	subject_need(!bind(udp, (const struct sockaddr *)&loopback, sizeof(loopback)), "bind");
	add("UDP", udp, false);
	add("UDP of IPv6", socket(AF_INET6, SOCK_DGRAM, 0), false);
	subject_need(!socketpair(AF_UNIX, SOCK_STREAM, 0, pipes), "socketpair");
	add("unix stream", pipes[0], true);
	add("unix datagram", socket(AF_UNIX, SOCK_DGRAM, 0), false);
	add("netlink", socket(AF_NETLINK, SOCK_RAW, 0), false);
	for (size_t i = 0; i < count; i++)
		ask_all(&sockets[i]);
	subject_ready();
	for (size_t i = 0; i < count; i++)
		compare(&sockets[i]);
	return subject_end();
}
