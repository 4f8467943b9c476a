/* The table of socket options, and its two directions. */
#include "kinds/socket_options.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"

#include <linux/in6.h>
#include <linux/if.h>
#include <netinet/tcp.h>
#include <netinet/ip.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum {
	CONGESTION_NAME_MAX = 16, /* TCP_CA_NAME_MAX of the kernel */
	OPTION_SIZE_MAX = 16,
};

struct option {
	int level;
	int name;
	const char *title;
	unsigned size;
	bool text; /* up to `size` bytes, ends with a NUL byte */
};

#define NUMBER(level, name)                            \
	{                                              \
		level, name, #name, sizeof(int), false \
	}
#define STRUCTURE(level, name, type)                    \
	{                                               \
		level, name, #name, sizeof(type), false \
	}
#define TEXT(level, name, size)                \
	{                                      \
		level, name, #name, size, true \
	}

/* In the order in which they are set: IP_TOS changes SO_PRIORITY, so it comes before. */
static const struct option options[] = {
        NUMBER(SOL_SOCKET, SO_REUSEADDR),
        NUMBER(SOL_SOCKET, SO_REUSEPORT),
        NUMBER(SOL_SOCKET, SO_KEEPALIVE),
        NUMBER(SOL_SOCKET, SO_BROADCAST),
        NUMBER(SOL_SOCKET, SO_DONTROUTE),
        NUMBER(SOL_SOCKET, SO_OOBINLINE),
        NUMBER(SOL_SOCKET, SO_NO_CHECK),
        NUMBER(SOL_SOCKET, SO_PASSCRED),
        NUMBER(SOL_SOCKET, SO_PASSSEC),
        NUMBER(SOL_SOCKET, SO_RCVLOWAT),
        NUMBER(SOL_SOCKET, SO_SNDBUF),
        NUMBER(SOL_SOCKET, SO_RCVBUF),
        STRUCTURE(SOL_SOCKET, SO_LINGER, struct linger),
        STRUCTURE(SOL_SOCKET, SO_RCVTIMEO, struct timeval),
        STRUCTURE(SOL_SOCKET, SO_SNDTIMEO, struct timeval),
        NUMBER(SOL_SOCKET, SO_TIMESTAMP),
        NUMBER(SOL_SOCKET, SO_TIMESTAMPNS),
        NUMBER(SOL_SOCKET, SO_TIMESTAMP_NEW),
        NUMBER(SOL_SOCKET, SO_TIMESTAMPNS_NEW),
        NUMBER(SOL_SOCKET, SO_TIMESTAMPING),
        NUMBER(SOL_SOCKET, SO_RXQ_OVFL),
        NUMBER(SOL_SOCKET, SO_WIFI_STATUS),
        NUMBER(SOL_SOCKET, SO_SELECT_ERR_QUEUE),
        NUMBER(SOL_SOCKET, SO_LOCK_FILTER),
        NUMBER(SOL_SOCKET, SO_BUSY_POLL),
        NUMBER(SOL_SOCKET, SO_PREFER_BUSY_POLL),
        NUMBER(SOL_SOCKET, SO_ZEROCOPY),
        STRUCTURE(SOL_SOCKET, SO_MAX_PACING_RATE, uint64_t),
        NUMBER(SOL_SOCKET, SO_MARK),
        TEXT(SOL_SOCKET, SO_BINDTODEVICE, IFNAMSIZ),
        NUMBER(IPPROTO_IP, IP_TOS),
        NUMBER(IPPROTO_IP, IP_TTL),
        NUMBER(IPPROTO_IP, IP_MINTTL),
        NUMBER(IPPROTO_IP, IP_MTU_DISCOVER),
        NUMBER(IPPROTO_IP, IP_RECVERR),
        NUMBER(IPPROTO_IP, IP_RECVTOS),
        NUMBER(IPPROTO_IP, IP_RECVTTL),
        NUMBER(IPPROTO_IP, IP_RECVORIGDSTADDR),
        NUMBER(IPPROTO_IP, IP_PKTINFO),
        NUMBER(IPPROTO_IP, IP_FREEBIND),
        NUMBER(IPPROTO_IP, IP_TRANSPARENT),
        NUMBER(IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT),
        NUMBER(IPPROTO_IP, IP_LOCAL_PORT_RANGE),
        NUMBER(IPPROTO_IP, IP_MULTICAST_ALL),
        NUMBER(IPPROTO_IP, IP_MULTICAST_LOOP),
        NUMBER(IPPROTO_IP, IP_MULTICAST_TTL),
        NUMBER(IPPROTO_IPV6, IPV6_V6ONLY),
        NUMBER(IPPROTO_IPV6, IPV6_TCLASS),
        NUMBER(IPPROTO_IPV6, IPV6_UNICAST_HOPS),
        NUMBER(IPPROTO_IPV6, IPV6_MTU_DISCOVER),
        NUMBER(IPPROTO_IPV6, IPV6_DONTFRAG),
        NUMBER(IPPROTO_IPV6, IPV6_RECVERR),
        NUMBER(IPPROTO_IPV6, IPV6_RECVPKTINFO),
        NUMBER(IPPROTO_IPV6, IPV6_RECVHOPLIMIT),
        NUMBER(IPPROTO_IPV6, IPV6_RECVTCLASS),
        NUMBER(IPPROTO_IPV6, IPV6_AUTOFLOWLABEL),
        NUMBER(IPPROTO_IPV6, IPV6_FREEBIND),
        NUMBER(IPPROTO_IPV6, IPV6_TRANSPARENT),
        NUMBER(IPPROTO_IPV6, IPV6_MULTICAST_ALL),
        NUMBER(IPPROTO_IPV6, IPV6_MULTICAST_LOOP),
        NUMBER(IPPROTO_IPV6, IPV6_MULTICAST_HOPS),
        NUMBER(IPPROTO_TCP, TCP_NODELAY),
        NUMBER(IPPROTO_TCP, TCP_CORK),
        NUMBER(IPPROTO_TCP, TCP_MAXSEG),
        NUMBER(IPPROTO_TCP, TCP_KEEPIDLE),
        NUMBER(IPPROTO_TCP, TCP_KEEPINTVL),
        NUMBER(IPPROTO_TCP, TCP_KEEPCNT),
        NUMBER(IPPROTO_TCP, TCP_SYNCNT),
        NUMBER(IPPROTO_TCP, TCP_LINGER2),
        NUMBER(IPPROTO_TCP, TCP_DEFER_ACCEPT),
        NUMBER(IPPROTO_TCP, TCP_WINDOW_CLAMP),
        NUMBER(IPPROTO_TCP, TCP_USER_TIMEOUT),
        NUMBER(IPPROTO_TCP, TCP_FASTOPEN),
        NUMBER(IPPROTO_TCP, TCP_FASTOPEN_CONNECT),
        NUMBER(IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE),
        NUMBER(IPPROTO_TCP, TCP_NOTSENT_LOWAT),
        NUMBER(IPPROTO_TCP, TCP_SAVE_SYN),
        NUMBER(IPPROTO_TCP, TCP_INQ),
        TEXT(IPPROTO_TCP, TCP_CONGESTION, CONGESTION_NAME_MAX),
        NUMBER(SOL_SOCKET, SO_PRIORITY),
};

#define OPTIONS SP_COUNT_OF(options)

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

/* A buffer size that the program has chosen; what the kernel tunes itself is left to it. */
static bool is_tuned_by_kernel(int fd, const struct option *option)
{
	int lock;

	if (option->level != SOL_SOCKET || (option->name != SO_SNDBUF && option->name != SO_RCVBUF))
		return false;
	lock = sp_socket_number(fd, SO_BUF_LOCK);
	return lock < 0 ||
	       !(lock & (option->name == SO_SNDBUF ? 1 : 2)); /* SOCK_{SND,RCV}BUF_LOCK */
}

/*
 * What tells something of an established connection, and can not be set, or not to that effect: the segment
 * size in use, how it was opened, the hops of the packet that opened it.
 */
static bool belongs_to_connection(int fd, const struct option *option)
{
	unsigned state;

	if ((option->level == IPPROTO_IP && option->name == IP_MULTICAST_TTL) ||
	    (option->level == IPPROTO_IPV6 && option->name == IPV6_MULTICAST_HOPS))
		return sp_socket_number(fd, SO_TYPE) == SOCK_STREAM;
	if (option->level != IPPROTO_TCP ||
	    (option->name != TCP_MAXSEG && option->name != TCP_FASTOPEN_CONNECT))
		return false;
	state = sp_tcp_info(fd).tcpi_state;
	return state != TCP_CLOSE && state != TCP_LISTEN;
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

	saved->list = sp_alloc_zeroed(OPTIONS, sizeof(*saved->list));
	saved->count = 0;
	for (size_t i = 0; i < OPTIONS; i++) {
		unsigned size = read_option(fd, &options[i], value);

		if (size && !is_tuned_by_kernel(fd, &options[i]) &&
		    !belongs_to_connection(fd, &options[i]))
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
			return sp_fail(err, EBADMSG, "the image has an unknown socket option");
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
			return sp_fail(err, EBADMSG,
			               "the image has a socket option that sealpoint does not know "
			               "(level %u, name %u)",
			               list[i]->level, list[i]->name);
		if (option->text ? list[i]->value.len >= option->size
		                 : list[i]->value.len > option->size || !list[i]->value.len)
			return sp_fail(err, EBADMSG, "the image has an impossible value for %s",
			               option->title);
	}
	return 0;
}
