/*
 * TCP sockets whose connection is over.
 *
 * With nothing to read, a new socket takes that state from shutdown(2) alone: without a connection it fails with
 * ENOTCONN, but the kernel nevertheless shuts both directions, to wake up who waits for them.
 *
 * What waits to be read has to arrive by a connection. It is one on this machine (127.0.0.1, which IPv6 sockets reach by
 * a mapped address), on which the other end sends all, closes, and sees this one do so.
 */
#include "kinds/tcp_closed.h"

#include "kinds/tcp_diag.h"

#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define ARRIVAL_MS 10000

static union sp_inet_address loopback(sa_family_t family, socklen_t *size)
{
	union sp_inet_address address = {.any.sa_family = family};

	if (family == AF_INET) {
		address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		*size = sizeof(address.v4);
		return address;
	}
	memcpy(&address.v6.sin6_addr, &(struct in6_addr){{{[10] = 0xff, 0xff, 127, 0, 0, 1}}},
	       sizeof(address.v6.sin6_addr));
	*size = sizeof(address.v6);
	return address;
}

static void make_room(int fd, int option, size_t bytes)
{
	int size = bytes < INT_MAX / 8 ? (int)bytes * 4 : INT_MAX / 2;

	size += 1 << 16; /* the kernel counts what it needs for itself, too */

	setsockopt(fd, SOL_SOCKET, option, &size, sizeof(size));
}

/* Connects the socket to one that is returned. */
static int connect_locally(int fd, sa_family_t family)
{
	sp_cleanup_close int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t size;
	union sp_inet_address address = loopback(family, &size);
	const int no = 0;

	if (listener < 0)
		return -errno;
	if (family == AF_INET6)
		setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	if (bind(listener, &address.any, size) || listen(listener, 1) ||
	    getsockname(listener, &address.any, &size) || connect(fd, &address.any, size))
		return -errno;
	return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static int deliver(int fd, sa_family_t family, const ProtobufCBinaryData *bytes)
{
	struct pollfd at_its_end = {.fd = fd, .events = POLLRDHUP};
	sp_cleanup_close int other = -1;

	make_room(fd, SO_RCVBUFFORCE, bytes->len);
	other = connect_locally(fd, family);
	if (other < 0)
		return -errno;
	make_room(other, SO_SNDBUFFORCE, bytes->len);
	if (send(other, bytes->data, bytes->len, MSG_NOSIGNAL) != (ssize_t)bytes->len)
		return -ENOBUFS;
	close(sp_steal_fd(&other));
	if (poll(&at_its_end, 1, ARRIVAL_MS) != 1)
		return -ETIMEDOUT;
	return 0;
}

int sp_tcp_closed_make(const Sealpoint__InetSocket *socket, const ProtobufCBinaryData *unread,
                       struct sp_error *err)
{
	Sealpoint__InetSocket bare = *socket;
	sp_cleanup_close int fd = -1;
	int rc;

	bare.n_options = 0;
	bare.filter.len = 0;
	fd = sp_inet_socket_make_unbound(&bare, err);
	if (fd < 0)
		return fd;
	rc = unread->len ? deliver(fd, (sa_family_t)bare.family, unread) : 0;
	if (rc)
		return sp_fail_errno(
		        err, -rc,
		        "cannot hand over the %zu bytes that wait in it by a connection to "
		        "127.0.0.1 (--tcp-close drops them)",
		        unread->len);
	shutdown(fd, SHUT_RDWR); /* "fails" if there was no connection, see above */
	return sp_steal_fd(&fd);
}
