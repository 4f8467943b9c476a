/*
 * Making a connection again: the other half of tcp_repair.h.
 *
 * What was on its way when the connection was saved counts as sent: it stands in the queue for
 * retransmission, with its timer running. What had not been sent is written as the program has written
 * it, with the lock in the way, and goes out when the other end answers the first packet.
 */
#include "kinds/tcp_repair.h"

#include "base/array.h"

#include <limits.h>
#include <netinet/tcp.h>
#include <string.h>

#define SCALE_MAX 14

static int set_number(int fd, int option, int value, const char *what, struct sp_error *err)
{
	if (!setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)))
		return 0;
	return sp_fail_errno(err, errno, "TCP repair: cannot %s", what);
}

/* --- connecting --- */

static int set_sequence(int fd, int queue, uint32_t number, struct sp_error *err)
{
	int rc = set_number(fd, TCP_REPAIR_QUEUE, queue, "choose a queue", err);

	return rc ? rc : set_number(fd, TCP_QUEUE_SEQ, (int)number, "set a sequence number", err);
}

static int connect_silently(int fd, const Sealpoint__InetSocket *socket,
                            const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	char here[SP_INET_TEXT], there[SP_INET_TEXT];

	if (!connect(fd, (void *)connection->peer.data, (socklen_t)connection->peer.len))
		return 0;
	sp_inet_address_text(socket->local.data, here);
	sp_inet_address_text(connection->peer.data, there);
	if (errno == EADDRNOTAVAIL)
		return sp_fail(
		        err, EADDRNOTAVAIL,
		        "the connection from %s to %s exists here, or did until a moment ago: "
		        "end the program that has it, and try again in a minute",
		        here, there);
	return sp_fail_errno(err, errno, "cannot connect %s to %s", here, there);
}

static int set_negotiated(int fd, const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	struct tcp_repair_opt list[4];
	unsigned count = 0;

	list[count++] = (struct tcp_repair_opt){TCPOPT_MAXSEG, connection->mss};
	if (connection->window_scaling)
		list[count++] = (struct tcp_repair_opt){
		        TCPOPT_WINDOW, connection->send_scale | connection->receive_scale << 16};
	if (connection->selective_acks)
		list[count++] = (struct tcp_repair_opt){TCPOPT_SACK_PERMITTED, 0};
	if (connection->timestamps)
		list[count++] = (struct tcp_repair_opt){TCPOPT_TIMESTAMP, 0};
	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, list, count * sizeof(list[0])) < 0)
		return sp_fail_errno(err, errno, "TCP repair: cannot set what was negotiated");
	return set_number(fd, TCP_TIMESTAMP, (int)connection->timestamp, "set the timestamp", err);
}

static int set_window(int fd, const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	struct tcp_repair_window window = {
	        .snd_wl1 = connection->snd_wl1,
	        .snd_wnd = connection->snd_wnd,
	        .max_window = connection->max_window,
	        .rcv_wnd = connection->rcv_wnd,
	        .rcv_wup = connection->rcv_wup,
	};

	if (!setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &window, sizeof(window)))
		return 0;
	return sp_fail_errno(err, errno, "TCP repair: cannot set the window");
}

/*
 * Repair sets limits of the segment size, and does not look at them: without this the connection would
 * keep the smallest size there is. It is computed anew when the options of the IP header change, and
 * when they are set to none as well.
 */
static void compute_segment_size(int fd, const Sealpoint__InetSocket *socket)
{
	if (socket->family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_HOPOPTS, NULL, 0);
	setsockopt(fd, IPPROTO_IP, IP_OPTIONS, NULL, 0);
}

/* --- queues --- */

static int send_all(int fd, const uint8_t *bytes, size_t size, struct sp_error *err)
{
	while (size) {
		ssize_t sent = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0)
			return sp_fail_errno(err, errno, "TCP repair: cannot fill a queue");
		bytes += sent;
		size -= (size_t)sent;
	}
	return 0;
}

static int fill_queue(int fd, int queue, const uint8_t *bytes, size_t size, struct sp_error *err)
{
	int rc = set_number(fd, TCP_REPAIR_QUEUE, queue, "choose a queue", err);

	return rc ? rc : send_all(fd, bytes, size, err);
}

static void set_buffers(int fd, int send_size, int receive_size)
{
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_size, sizeof(send_size));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &receive_size, sizeof(receive_size));
}

/* The same bytes in other pieces may take more of a buffer than they did. */
static int fill_queues(int fd, const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	const int plenty = 256 << 20, lock = (int)connection->buffer_lock;
	size_t sent = connection->sending.len - connection->unsent;
	int rc;

	set_buffers(fd, plenty, plenty);
	rc = fill_queue(fd, TCP_RECV_QUEUE, connection->received.data, connection->received.len,
	                err);
	if (!rc)
		rc = fill_queue(fd, TCP_SEND_QUEUE, connection->sending.data, sent, err);
	if (!rc)
		rc = set_window(fd, connection, err);
	if (!rc && connection->unsent) {
		rc = set_number(fd, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP, "pause it", err);
		if (!rc)
			rc = send_all(fd, connection->sending.data + sent, connection->unsent, err);
		set_number(fd, TCP_REPAIR, TCP_REPAIR_ON, "go on with it", NULL);
	}
	/* The kernel doubles what it is given. */
	set_buffers(fd, (int)connection->send_buffer / 2, (int)connection->receive_buffer / 2);
	setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &lock, sizeof(lock));
	return rc;
}

/* --- the whole --- */

int sp_tcp_connection_restore(int fd, const Sealpoint__InetSocket *socket,
                              const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	uint32_t received = connection->receive_next - (uint32_t)connection->received.len;
	uint32_t confirmed = connection->send_next - (uint32_t)connection->sending.len;
	int rc = set_number(fd, TCP_REPAIR, TCP_REPAIR_ON, "begin it (CAP_NET_ADMIN)", err);

	if (!rc)
		rc = set_sequence(fd, TCP_RECV_QUEUE, received, err);
	if (!rc)
		rc = set_sequence(fd, TCP_SEND_QUEUE, confirmed, err);
	if (!rc)
		rc = sp_inet_socket_bind(fd, socket, err);
	if (!rc)
		rc = connect_silently(fd, socket, connection, err);
	if (!rc)
		rc = set_negotiated(fd, connection, err);
	if (!rc)
		rc = fill_queues(fd, connection, err);
	if (!rc)
		compute_segment_size(fd, socket);
	return rc;
}

int sp_tcp_connection_resume(int fd, const Sealpoint__InetSocket *socket, struct sp_error *err)
{
	int reuse = sp_socket_options_have(socket->options, socket->n_options, SOL_SOCKET,
	                                   SO_REUSEADDR);
	int rc = set_number(fd, TCP_REPAIR, TCP_REPAIR_OFF, "end it", err);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
	return rc;
}

int sp_tcp_connection_check(const Sealpoint__InetSocket *socket,
                            const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	if (!sp_inet_address_valid(&connection->peer, socket->family) ||
	    connection->unsent > connection->sending.len || connection->send_scale > SCALE_MAX ||
	    connection->receive_scale > SCALE_MAX || connection->send_buffer > INT_MAX ||
	    connection->receive_buffer > INT_MAX || !connection->mss ||
	    connection->mss > UINT16_MAX || !sp_tcp_state_is_known(connection->state))
		return sp_fail(err, EBADMSG, "the image gives an impossible TCP connection");
	return 0;
}
