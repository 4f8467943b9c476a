/* Reading a connection, and the mode for it: see tcp_repair.h. tcp_rebuild.c makes connections. */
#include "kinds/tcp_repair.h"

#include "base/array.h"
#include "kinds/tcp_diag.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#define ATTEMPTS 10

const char *sp_tcp_state_name(unsigned state)
{
	static const char *const names[] = {
	        [TCP_ESTABLISHED] = "established",
	        [TCP_SYN_SENT] = "being opened",
	        [TCP_SYN_RECV] = "being opened",
	        [TCP_FIN_WAIT1] = "being closed by the program",
	        [TCP_FIN_WAIT2] = "closed by the program but not by the other end",
	        [TCP_TIME_WAIT] = "closed",
	        [TCP_CLOSE_WAIT] = "closed by the other end but not by the program",
	        [TCP_LAST_ACK] = "being closed",
	        [TCP_CLOSING] = "being closed",
	};
	const char *name = state < SP_COUNT_OF(names) ? names[state] : NULL;

	return name ? name : "in an unknown state";
}

bool sp_tcp_state_is_known(unsigned state)
{
	return state == TCP_SYN_SENT || state == TCP_ESTABLISHED || sp_tcp_has_heard_end(state) ||
	       sp_tcp_has_said_end(state);
}

bool sp_tcp_has_heard_end(unsigned state)
{
	return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING;
}

/* It is said, and not confirmed yet. */
static bool end_is_on_its_way(unsigned state)
{
	return state == TCP_FIN_WAIT1 || state == TCP_LAST_ACK || state == TCP_CLOSING;
}

bool sp_tcp_has_said_end(unsigned state)
{
	return state == TCP_FIN_WAIT2 || end_is_on_its_way(state);
}

/* --- the mode --- */

int sp_tcp_repair_set(int fd, int option, int value, const char *what, struct sp_error *err)
{
	if (!setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)))
		return 0;
	return sp_fail_errno(err, errno, "TCP repair: cannot %s", what);
}

static int get_number(int fd, int option, const char *what, uint32_t *value, struct sp_error *err)
{
	socklen_t size = sizeof(*value);

	if (!getsockopt(fd, IPPROTO_TCP, option, value, &size))
		return 0;
	return sp_fail_errno(err, errno, "TCP repair: cannot read %s", what);
}

static bool is_in_repair(int fd)
{
	int value = 0;
	socklen_t size = sizeof(value);

	return !getsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &value, &size) && value;
}

/*
 * Leaves the mode without a packet. It has changed SO_REUSEADDR, without which the program's listener
 * could not be bound again beside this connection.
 */
static int leave_repair(int fd, int reuse, struct sp_error *err)
{
	int rc = sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP, "end it", err);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
	return rc;
}

void sp_tcp_connection_silence(int fd)
{
	sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_ON, "begin it", NULL);
}

bool sp_tcp_connection_heal(int fd)
{
	if (!is_in_repair(fd))
		return false;
	/* Nobody knows what it was. With it the program can do all that it could without. */
	leave_repair(fd, 1, NULL);
	return true;
}

/* --- reading --- */

/* Looks at what waits in a queue, at most `size` bytes; -1 and errno. */
static ssize_t peek(int fd, ProtobufCBinaryData *bytes, size_t size)
{
	ssize_t got;

	free(bytes->data);
	bytes->data = sp_alloc(size + 1);
	got = recv(fd, bytes->data, size, MSG_PEEK | MSG_DONTWAIT);
	if (got < 0 && errno == EAGAIN)
		got = 0;
	bytes->len = got < 0 ? 0 : (size_t)got;
	return got;
}

int sp_tcp_peek_received(int fd, ProtobufCBinaryData *bytes, struct sp_error *err)
{
	int before = sp_socket_number(fd, SO_PEEK_OFF), none = -1, size = 0;
	ssize_t got;

	if (ioctl(fd, FIONREAD, &size) < 0)
		return sp_fail_errno(err, errno, "cannot ask how much waits to be read");
	if (before >= 0)
		setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
	got = size ? peek(fd, bytes, (size_t)size) : 0;
	if (before >= 0)
		setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &before, sizeof(before));
	if (got < 0)
		return sp_fail_errno(err, errno, "cannot look at what waits to be read");
	return 0;
}

static int read_window(int fd, Sealpoint__TcpConnection *message, struct sp_error *err)
{
	struct tcp_repair_window window;
	socklen_t size = sizeof(window);

	if (getsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &window, &size) < 0)
		return sp_fail_errno(err, errno, "TCP repair: cannot read the window");
	message->snd_wl1 = window.snd_wl1;
	message->snd_wnd = window.snd_wnd;
	message->max_window = window.max_window;
	message->rcv_wnd = window.rcv_wnd;
	message->rcv_wup = window.rcv_wup;
	return 0;
}

static int read_sending(int fd, Sealpoint__TcpConnection *message, struct sp_error *err)
{
	int all = 0, unsent = 0;

	if (ioctl(fd, SIOCOUTQ, &all) < 0 || ioctl(fd, SIOCOUTQNSD, &unsent) < 0)
		return sp_fail_errno(err, errno, "cannot ask how much has not been sent");
	if (all && peek(fd, &message->sending, (size_t)all) < 0)
		return sp_fail_errno(err, errno, "TCP repair: cannot read what was not confirmed");
	/* Behind the last byte the end has a number of its own. */
	if (unsent && end_is_on_its_way(message->state))
		unsent--;
	message->unsent = (uint32_t)unsent;
	return 0;
}

/* What only the mode tells. */
static int read_in_repair(int fd, Sealpoint__TcpConnection *message, struct sp_error *err)
{
	int rc = read_window(fd, message, err);

	if (!rc)
		rc = get_number(fd, TCP_MAXSEG, "the segment size", &message->mss, err);
	if (!rc)
		rc = sp_tcp_repair_set(fd, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE, "choose a queue", err);
	if (!rc)
		rc = get_number(fd, TCP_QUEUE_SEQ, "a sequence number", &message->receive_next,
		                err);
	if (!rc)
		rc = sp_tcp_repair_set(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE, "choose a queue", err);
	if (!rc)
		rc = get_number(fd, TCP_QUEUE_SEQ, "a sequence number", &message->send_next, err);
	return rc ? rc : read_sending(fd, message, err);
}

/* A packet that was past the lock when it came into force may still have changed something. */
static bool is_consistent(int fd, const Sealpoint__TcpConnection *message)
{
	int received = -1, sending = -1;

	return !ioctl(fd, FIONREAD, &received) && !ioctl(fd, SIOCOUTQ, &sending) &&
	       (size_t)received == message->received.len &&
	       (size_t)sending == message->sending.len + end_is_on_its_way(message->state) &&
	       sp_tcp_info(fd).tcpi_state == message->state;
}

static void read_negotiated(int fd, Sealpoint__TcpConnection *message)
{
	struct pollfd end = {.fd = fd, .events = POLLRDHUP};
	struct tcp_info info = sp_tcp_info(fd);

	message->reading_shut = poll(&end, 1, 0) > 0 && (end.revents & POLLRDHUP) &&
	                        !sp_tcp_has_heard_end(info.tcpi_state);
	message->state = info.tcpi_state;
	message->timestamps = info.tcpi_options & TCPI_OPT_TIMESTAMPS;
	message->selective_acks = info.tcpi_options & TCPI_OPT_SACK;
	message->window_scaling = info.tcpi_options & TCPI_OPT_WSCALE;
	message->send_scale = info.tcpi_snd_wscale;
	message->receive_scale = info.tcpi_rcv_wscale;
}

static int read_once(int fd, int reuse, Sealpoint__TcpConnection *message, struct sp_error *err)
{
	int rc, left;

	read_negotiated(fd, message);
	rc = sp_tcp_peek_received(fd, &message->received, err);
	if (!rc)
		rc = sp_tcp_repair_set(fd, TCP_REPAIR, TCP_REPAIR_ON, "begin it (CAP_NET_ADMIN)",
		                       err);
	if (rc)
		return rc;
	rc = read_in_repair(fd, message, err);
	left = leave_repair(fd, reuse, rc ? NULL : err);
	return rc ?: left;
}

/* What would not come back, or would be another thing. */
static int refuse_special(int fd, unsigned state, struct sp_error *err)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLPRI};
	char layer[16] = "";
	socklen_t size = sizeof(layer);

	if (sp_socket_number(fd, SO_PROTOCOL) != IPPROTO_TCP)
		return sp_fail(
		        err, ENOTSUP,
		        "its connection is one of Multipath TCP, which cannot be saved; give "
		        "--tcp-close to restore it closed");
	if (!sp_tcp_state_is_known(state))
		return sp_fail(err, ENOTSUP,
		               "its connection is %s, and such cannot be saved yet; try again, or "
		               "give --tcp-close to restore it closed",
		               sp_tcp_state_name(state));
	if (!getsockopt(fd, IPPROTO_TCP, TCP_ULP, layer, &size) && size && layer[0])
		return sp_fail(err, ENOTSUP,
		               "the kernel handles \"%.16s\" on its connection (TCP_ULP), which "
		               "cannot be saved; give --tcp-close to restore it closed",
		               layer);
	if (poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLPRI))
		return sp_fail(err, ENOTSUP,
		               "urgent data wait in it (MSG_OOB), which cannot be saved; let the "
		               "program read them first");
	return 0;
}

static int save(int fd, struct sp_tcp_connection *connection, struct sp_error *err)
{
	Sealpoint__TcpConnection *message = &connection->message;
	int reuse = sp_tcp_connection_heal(fd) ? 1 : sp_socket_number(fd, SO_REUSEADDR);
	int rc = refuse_special(fd, sp_tcp_info(fd).tcpi_state, err);

	for (unsigned attempt = 0; attempt < ATTEMPTS && !rc; attempt++) {
		rc = read_once(fd, reuse, message, err);
		if (!rc && is_consistent(fd, message))
			return get_number(fd, TCP_TIMESTAMP, "the timestamp", &message->timestamp,
			                  err);
	}
	return rc ? rc : sp_fail(err, EAGAIN, "its connection does not stand still; try again");
}

static int begin(int fd, struct sp_tcp_connection *connection, struct sp_error *err)
{
	Sealpoint__TcpConnection *message = &connection->message;

	*connection = (struct sp_tcp_connection){.message = SEALPOINT__TCP_CONNECTION__INIT};
	if (sp_tcp_get_peer(fd, &connection->peer, err) < 0)
		return -err->code;
	message->peer = sp_inet_address_bytes(&connection->peer);
	message->send_buffer = (uint32_t)sp_socket_number(fd, SO_SNDBUF);
	message->receive_buffer = (uint32_t)sp_socket_number(fd, SO_RCVBUF);
	message->buffer_lock = (uint32_t)sp_socket_number(fd, SO_BUF_LOCK);
	return 0;
}

int sp_tcp_connection_save(int fd, struct sp_tcp_connection *connection, struct sp_error *err)
{
	int rc = begin(fd, connection, err);

	return rc ? rc : save(fd, connection, err);
}

static void count_queue(int fd, unsigned long request, ProtobufCBinaryData *queue)
{
	int size = 0;

	if (ioctl(fd, request, &size) < 0 || size <= 0)
		return;
	queue->len = (size_t)size;
	queue->data = sp_alloc_zeroed(1, queue->len);
}

int sp_tcp_connection_look(int fd, struct sp_tcp_connection *connection, struct sp_error *err)
{
	Sealpoint__TcpConnection *message = &connection->message;
	int rc = begin(fd, connection, err);

	if (!rc)
		rc = refuse_special(fd, sp_tcp_info(fd).tcpi_state, err);
	if (rc)
		return rc;
	read_negotiated(fd, message);
	message->mss = sp_tcp_info(fd).tcpi_snd_mss;
	count_queue(fd, FIONREAD, &message->received);
	count_queue(fd, SIOCOUTQ, &message->sending);
	return 0;
}

void sp_tcp_connection_release(struct sp_tcp_connection *connection)
{
	free(connection->message.received.data);
	free(connection->message.sending.data);
	connection->message.received.data = connection->message.sending.data = NULL;
}
