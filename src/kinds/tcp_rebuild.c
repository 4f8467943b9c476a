/*
 * Making a connection again: the other half of tcp_repair.h.
 *
 * What was on its way when the connection was saved counts as sent: it stands in the queue for
 * retransmission, with its timer running. What had not been sent is written as the program has written
 * it, with the lock in the way, and goes out when the other end answers the first packet.
 */
#include "kinds/tcp_repair.h"

#include "kinds/tcp_diag.h"
#include "kinds/tcp_segment.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <string.h>
#include <time.h>

#define SCALE_MAX 14
#define STATE_ROUNDS 10000 /* 2 s and more */

/* --- connecting --- */

static int set_sequence(int fd, int queue, uint32_t number, struct sp_error *err)
{
	int rc = sp_tcp_repair_set(fd, TCP_REPAIR_QUEUE, queue, "choose a queue", err);

	return rc ? rc
	          : sp_tcp_repair_set(fd, TCP_QUEUE_SEQ, (int)number, "set a sequence number", err);
}

static int connect_silently(int fd, const Sealpoint__InetSocket *socket,
                            const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	char here[SP_INET_TEXT], there[SP_INET_TEXT];
	union sp_inet_address local = {0}, peer = {0};
	int rc;

	memcpy(&local, socket->local.data, socket->local.len);
	memcpy(&peer, connection->peer.data, connection->peer.len);
	rc = sp_tcp_make_way(&local, &peer, err);
	if (rc || !connect(fd, &peer.any, (socklen_t)connection->peer.len))
		return rc;
	sp_inet_address_text(&local, here);
	sp_inet_address_text(&peer, there);
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
	return sp_tcp_repair_set(fd, TCP_TIMESTAMP, (int)connection->timestamp, "set the timestamp",
	                         err);
}

/* Where what has arrived ends, without the end itself: that arrives later (hear_end). */
static uint32_t received_end(const Sealpoint__TcpConnection *connection)
{
	return connection->receive_next - sp_tcp_has_heard_end(connection->state);
}

static uint32_t confirmed_end(const Sealpoint__TcpConnection *connection)
{
	return connection->send_next - sp_tcp_has_said_end(connection->state) -
	       (uint32_t)connection->sending.len;
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

	/* The same edge of the window, seen from before the end. */
	if (window.rcv_wup == connection->receive_next) {
		window.rcv_wup = received_end(connection);
		window.rcv_wnd += connection->receive_next - window.rcv_wup;
	}
	if (!setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &window, sizeof(window)))
		return 0;
	return sp_fail_errno(err, errno, "TCP repair: cannot set the window");
}

/* Sets an option that consists of bytes once more, as the socket has it: to none, if it has none. */
static void renew_option(int fd, const Sealpoint__InetSocket *socket, int level, int name)
{
	const ProtobufCBinaryData *value = NULL;

	for (size_t i = 0; i < socket->n_options && !value; i++)
		if (socket->options[i]->level == (uint32_t)level &&
		    socket->options[i]->name == (uint32_t)name)
			value = &socket->options[i]->value;
	setsockopt(fd, level, name, value ? value->data : NULL, value ? (socklen_t)value->len : 0);
}

/*
 * Repair sets limits of the segment size, and does not look at them: without this the connection would
 * keep the smallest size there is. It is computed anew when the options of the IP header change, and
 * when they stay as they are as well.
 */
static void compute_segment_size(int fd, const Sealpoint__InetSocket *socket)
{
	if (socket->family == AF_INET6)
		renew_option(fd, socket, IPPROTO_IPV6, IPV6_HOPOPTS);
	renew_option(fd, socket, IPPROTO_IP, IP_OPTIONS);
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
	int rc = sp_tcp_repair_set(fd, TCP_REPAIR_QUEUE, queue, "choose a queue", err);

	return rc ? rc : send_all(fd, bytes, size, err);
}

static void set_buffers(int fd, int send_size, int receive_size)
{
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_size, sizeof(send_size));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &receive_size, sizeof(receive_size));
}

static int fill_queues(int fd, const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	size_t sent = connection->sending.len - connection->unsent;
	int rc = fill_queue(fd, TCP_RECV_QUEUE, connection->received.data, connection->received.len,
	                    err);

	if (!rc)
		rc = fill_queue(fd, TCP_SEND_QUEUE, connection->sending.data, sent, err);
	return rc ? rc : set_window(fd, connection, err);
}

/* --- the ends of both directions --- */

static int wait_for_state(int fd, unsigned state, struct sp_error *err)
{
	const struct timespec pause = {.tv_nsec = 200000};
	unsigned now = state;

	for (unsigned round = 0; round < STATE_ROUNDS; round++) {
		now = sp_tcp_info(fd).tcpi_state;
		if (now == state)
			return 0;
		nanosleep(&pause, NULL);
	}
	return sp_fail(err, EIO,
	               "its connection is %s, and does not become %s (does a filter drop packets "
	               "that come from here?)",
	               sp_tcp_state_name(now), sp_tcp_state_name(state));
}

/* What the other end has said last, once more: that it sends no more, or that it knows we do not. */
static int hear(int fd, const Sealpoint__InetSocket *socket,
                const Sealpoint__TcpConnection *connection, bool end, unsigned state,
                struct sp_error *err)
{
	struct sp_tcp_segment segment = {
	        .sequence = connection->receive_next - end,
	        .acknowledged = end ? confirmed_end(connection) : connection->send_next,
	        .window = connection->snd_wnd >> connection->send_scale < UINT16_MAX
	                          ? (uint16_t)(connection->snd_wnd >> connection->send_scale)
	                          : UINT16_MAX,
	        .fin = end,
	};
	int rc;

	memcpy(&segment.from, connection->peer.data, connection->peer.len);
	memcpy(&segment.to, socket->local.data, socket->local.len);
	rc = sp_tcp_segment_send(&segment, err);
	return rc ? rc : wait_for_state(fd, state, err);
}

/*
 * What was never sent is written as the program has written it, outside of repair mode; an end that is not
 * behind it counts as sent.
 */
static int write_unsent(int fd, const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	size_t sent = connection->sending.len - connection->unsent;
	bool paused = connection->unsent;
	int rc = 0;

	if (paused)
		rc = sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP, "pause it", err);
	if (!rc && paused)
		rc = send_all(fd, connection->sending.data + sent, connection->unsent, err);
	if (!rc && sp_tcp_has_said_end(connection->state) && shutdown(fd, SHUT_WR) < 0)
		rc = sp_fail_errno(err, errno, "cannot shut its writing direction");
	if (paused &&
	    sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_ON, "go on with it", rc ? NULL : err))
		return -EIO;
	return rc;
}

static int write_ends(int fd, const Sealpoint__InetSocket *socket,
                      const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	unsigned state = connection->state;
	int rc = 0;

	if (state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK)
		rc = hear(fd, socket, connection, true, TCP_CLOSE_WAIT, err);
	if (!rc)
		rc = write_unsent(fd, connection, err);
	if (!rc && state == TCP_CLOSING)
		rc = hear(fd, socket, connection, true, TCP_CLOSING, err);
	if (!rc && state == TCP_FIN_WAIT2)
		rc = hear(fd, socket, connection, false, TCP_FIN_WAIT2, err);
	if (!rc && connection->reading_shut && shutdown(fd, SHUT_RD) < 0)
		rc = sp_fail_errno(err, errno, "cannot shut its reading direction");
	return rc;
}

/* --- the whole --- */

static int connect_again(int fd, const Sealpoint__InetSocket *socket,
                         const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	uint32_t received = received_end(connection) - (uint32_t)connection->received.len;
	int rc = sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_ON, "begin it (CAP_NET_ADMIN)", err);

	if (!rc)
		rc = set_sequence(fd, TCP_RECV_QUEUE, received, err);
	if (!rc)
		rc = set_sequence(fd, TCP_SEND_QUEUE, confirmed_end(connection), err);
	if (!rc)
		rc = sp_inet_socket_bind(fd, socket, err);
	if (!rc)
		rc = connect_silently(fd, socket, connection, err);
	return rc ? rc : set_negotiated(fd, connection, err);
}

/* One that is only being opened asks again in the end, with the number that it has asked with before. */
static int prepare_to_ask(int fd, const Sealpoint__InetSocket *socket,
                          const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	int rc = sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_ON, "begin it (CAP_NET_ADMIN)", err);

	if (!rc)
		rc = set_sequence(fd, TCP_SEND_QUEUE, connection->send_next - 1, err);
	return rc ? rc : sp_inet_socket_bind(fd, socket, err);
}

static int ask_again(int fd, const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	int flags = fcntl(fd, F_GETFL), rc = 0;

	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	if (connect(fd, (void *)connection->peer.data, (socklen_t)connection->peer.len) < 0 &&
	    errno != EINPROGRESS)
		rc = sp_fail_errno(err, errno, "cannot open its connection again");
	fcntl(fd, F_SETFL, flags);
	return rc;
}

int sp_tcp_connection_restore(int fd, const Sealpoint__InetSocket *socket,
                              const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	const int plenty = 256 << 20, lock = (int)connection->buffer_lock;
	int rc;

	if (connection->state == TCP_SYN_SENT)
		return prepare_to_ask(fd, socket, connection, err);
	rc = connect_again(fd, socket, connection, err);
	if (rc)
		return rc;
	/* The same bytes in other pieces may take more of a buffer than they did. */
	set_buffers(fd, plenty, plenty);
	rc = fill_queues(fd, connection, err);
	if (!rc)
		rc = write_ends(fd, socket, connection, err);
	/* The kernel doubles what it is given. */
	set_buffers(fd, (int)connection->send_buffer / 2, (int)connection->receive_buffer / 2);
	setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &lock, sizeof(lock));
	compute_segment_size(fd, socket);
	return rc;
}

int sp_tcp_connection_resume(int fd, const Sealpoint__InetSocket *socket,
                             const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	int reuse = sp_socket_options_have(socket->options, socket->n_options, SOL_SOCKET,
	                                   SO_REUSEADDR);
	int rc = sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_OFF, "end it", err);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
	return !rc && connection->state == TCP_SYN_SENT ? ask_again(fd, connection, err) : rc;
}

int sp_tcp_connection_check(const Sealpoint__InetSocket *socket,
                            const Sealpoint__TcpConnection *connection, struct sp_error *err)
{
	if (!sp_inet_address_valid(&connection->peer, socket->family) ||
	    connection->unsent > connection->sending.len || connection->send_scale > SCALE_MAX ||
	    connection->receive_scale > SCALE_MAX || connection->send_buffer > INT_MAX ||
	    connection->receive_buffer > INT_MAX || !connection->mss ||
	    connection->mss > UINT16_MAX || !sp_tcp_state_is_known(connection->state))
		return sp_fail_damaged(err, "an impossible TCP connection");
	return 0;
}
