/*
 * TCP sockets that do not listen. One without a connection is made anew, bound where it was. An
 * established connection is refused by name, unless --tcp-close asks for it to be given up: then
 * the restored program finds it closed by the other end. Reading gives what an ended connection
 * gives (0), writing fails with EPIPE, poll(2) reports hang-up.
 *
 * A connection that had ended already is restored in the same way, and a new socket takes that
 * state from shutdown(2) alone: on a socket without a connection it fails with ENOTCONN, but the
 * kernel nevertheless shuts both directions, to wake up who waits for them.
 */
#include "kinds/registry.h"

#include "kinds/inet_socket.h"

#include "tcp_socket.pb-c.h"

#include <netinet/tcp.h>
#include <poll.h>

static bool claims(const struct sp_open_file *file)
{
	return sp_inet_socket_is(file, SOCK_STREAM, IPPROTO_TCP);
}

static const char *state_name(unsigned state)
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

/* What makes the socket one without a connection, which can be saved. */
static const char *way_out(unsigned state)
{
	switch (state) {
	case TCP_FIN_WAIT1:
	case TCP_FIN_WAIT2:
		return "close it at the other end";
	case TCP_TIME_WAIT:
	case TCP_LAST_ACK:
	case TCP_CLOSING:
		return "wait until it is";
	default: /* closed by the other end alone, it stays half open */
		return "let the program close it";
	}
}

static int give_up_connection(struct sp_file_saver *saver, const struct sp_open_file *file,
                              const struct sp_inet_socket *socket, unsigned state,
                              struct sp_error *err)
{
	union sp_inet_address peer = {0};
	socklen_t size = sizeof(peer);
	char here[SP_INET_TEXT], there[SP_INET_TEXT] = "nobody any more";

	sp_inet_address_text(&socket->local, here);
	if (!getpeername(file->fd, &peer.any, &size))
		sp_inet_address_text(&peer, there);
	if (!saver->options->tcp_close)
		return sp_fail(err, ENOTSUP,
		               "its connection from %s to %s is %s; %s, or give --tcp-close to "
		               "restore it closed",
		               here, there, state_name(state), way_out(state));
	sp_warn(saver->log,
	        "descriptor %d of process %d: the TCP connection from %s to %s is given up",
	        file->number, file->pid, here, there);
	return 0;
}

/* Has it had a connection that is over? Such a socket is shut in both directions. */
static bool is_finished(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};

	return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLRDHUP);
}

static int refuse_error(int fd, struct sp_error *err)
{
	struct pollfd poll_fd = {.fd = fd};

	if (poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLERR))
		return sp_fail(err, ENOTSUP,
		               "its connection has failed and the program has not seen the error "
		               "yet; let it do so, or give --tcp-close to restore it closed");
	return 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__TcpSocket message = SEALPOINT__TCP_SOCKET__INIT;
	sp_cleanup_inet_socket struct sp_inet_socket socket = {0};
	struct tcp_info info;
	socklen_t size = sizeof(info);

	if (sp_inet_socket_save(file->fd, &socket, err) < 0)
		return -err->code;
	if (getsockopt(file->fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
		return sp_fail_errno(err, errno, "cannot ask for TCP_INFO");
	if (info.tcpi_state != TCP_CLOSE) {
		if (give_up_connection(saver, file, &socket, info.tcpi_state, err) < 0)
			return -err->code;
		message.finished = true;
	} else {
		if (!saver->options->tcp_close && refuse_error(file->fd, err) < 0)
			return -err->code;
		message.finished = is_finished(file->fd);
	}
	if (message.finished)
		sp_inet_socket_strip(&socket);
	message.socket = &socket.message;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int open_tcp_socket(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                           int *fd, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__TcpSocket *message =
	        sp_blob_unpack(file->body, &sealpoint__tcp_socket__descriptor, err);

	if (!message)
		return -EBADMSG;
	*fd = sp_inet_socket_make(message->socket, err);
	if (*fd < 0)
		return *fd;
	if (message->finished)
		shutdown(*fd, SHUT_RDWR); /* "fails", see above */
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__TcpSocket *message =
	        sp_blob_unpack(body, &sealpoint__tcp_socket__descriptor, NULL);
	char address[SP_INET_TEXT];

	if (!message || sp_inet_socket_check(message->socket, SOCK_STREAM, NULL) < 0)
		return;
	sp_inet_address_text(message->socket->local.data, address);
	snprintf(text, size, "%s, %s", address,
	         message->finished ? "its connection is over" : "not connected");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__TcpSocket *message =
	        sp_blob_unpack(file->body, &sealpoint__tcp_socket__descriptor, err);

	if (!message)
		return -EBADMSG;
	return sp_inet_socket_check(message->socket, SOCK_STREAM, err);
}

const struct sp_file_kind sp_kind_tcp_socket = {
        .name = "tcp_socket",
        .title = "TCP socket",
        .claims = claims,
        .save = save,
        .open = open_tcp_socket,
        .describe = describe,
        .check = check,
};
