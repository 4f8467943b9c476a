/*
 * TCP sockets that do not listen. One without a connection is made anew, bound where it was. A
 * connection is refused by name unless the user says what shall become of it. --tcp-established saves it
 * (kinds/tcp_repair.h). With --tcp-close it is given up: the restored program finds it closed by the
 * other end. Reading gives what an ended connection gives (0), writing fails with EPIPE, poll(2) reports
 * hang-up. That can also be asked for when it was saved and is restored.
 *
 * A connection that had ended already is restored in the same way, with what was not read of it (kinds/tcp_closed.h).
 */
#include "kinds/registry.h"

#include "kinds/connection_lock.h"
#include "kinds/tcp_closed.h"
#include "kinds/tcp_diag.h"
#include "kinds/tcp_md5.h"
#include "kinds/tcp_repair.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

static bool claims(const struct sp_open_file *file)
{
	return sp_inet_socket_is(file, SOCK_STREAM, IPPROTO_TCP);
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
		               "restore it closed, or save it by a dump with --tcp-established",
		               here, there, sp_tcp_state_name(state), way_out(state));
	sp_warn(saver->log,
	        "descriptor %d of process %d: the TCP connection from %s to %s is saved as a "
	        "closed one",
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

/* Of a connection that is over, or never was. */
static int save_unconnected(struct sp_file_saver *saver, int fd, Sealpoint__TcpSocket *message,
                            struct sp_error *err)
{
	message->finished = is_finished(fd);
	if (saver->options->tcp_close)
		return 0;
	if (refuse_error(fd, err) < 0)
		return -err->code;
	return message->finished ? sp_tcp_peek_received(fd, &message->unread, err) : 0;
}

static bool connects(const struct sp_file_saver *saver, const struct sp_open_file *file,
                     struct sp_connection *connection)
{
	socklen_t size = sizeof(connection->local);

	connection->silence = sp_tcp_connection_silence;
	return saver->options->tcp_established && sp_tcp_info(file->fd).tcpi_state != TCP_CLOSE &&
	       !getsockname(file->fd, &connection->local.any, &size) &&
	       !sp_tcp_get_peer(file->fd, &connection->peer, NULL);
}

/* What a restore tells its own kernel in the name of the other end has no signature (kinds/tcp_segment.h). */
static int save_keys(int fd, unsigned state, struct sp_inet_socket *socket, struct sp_error *err)
{
	int rc = sp_tcp_md5_save(fd, &socket->message.md5_keys, err);

	if (rc || !socket->message.md5_keys.len || state == TCP_ESTABLISHED)
		return rc;
	return sp_fail(err, ENOTSUP,
	               "its packets are signed (TCP_MD5SIG), and it is being opened or closed; "
	               "try again when it is open, or give --tcp-close to drop it");
}

static void release(Sealpoint__TcpSocket *message)
{
	free(message->unread.data);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__TcpSocket message sp_cleanup(release) = SEALPOINT__TCP_SOCKET__INIT;
	sp_cleanup_inet_socket struct sp_inet_socket socket = {0};
	sp_cleanup_tcp_connection struct sp_tcp_connection connection = {0};
	unsigned state = sp_tcp_info(file->fd).tcpi_state;
	int rc = sp_inet_socket_save(file->fd, &socket, err);

	if (!rc && state == TCP_CLOSE) {
		rc = save_unconnected(saver, file->fd, &message, err);
	} else if (!rc && saver->options->tcp_established) {
		rc = save_keys(file->fd, state, &socket, err);
		if (rc)
			return rc;
		rc = saver->pages ? sp_tcp_connection_save(file->fd, &connection, err)
		                  : sp_tcp_connection_look(file->fd, &connection, err);
		message.connection = &connection.message;
	} else if (!rc) {
		rc = give_up_connection(saver, file, &socket, state, err);
		message.finished = true;
	}
	if (rc)
		return rc;
	if (message.finished)
		sp_inet_socket_strip(&socket);
	message.socket = &socket.message;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- restore --- */

/* Locks it; it is connected when its listener is bound, too, and the memory is filled. */
static int make_connected(struct sp_file_builder *builder, const Sealpoint__TcpSocket *message,
                          struct sp_error *err)
{
	struct sp_connection connection = {.fd = -1};

	memcpy(&connection.local, message->socket->local.data, message->socket->local.len);
	memcpy(&connection.peer, message->connection->peer.data, message->connection->peer.len);
	sp_connection_lock_add(builder->lock, &connection);
	return sp_inet_socket_make_unbound(message->socket, err);
}

static int open_tcp_socket(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                           int *fd, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__TcpSocket *message =
	        sp_blob_unpack(file->body, &sealpoint__tcp_socket__descriptor, err);

	if (!message)
		return -EBADMSG;
	builder->lock->in_image |= message->connection != NULL;
	if (builder->options->tcp_close)
		message->unread.len = 0;
	if (message->finished || (message->connection && builder->options->tcp_close))
		*fd = sp_tcp_closed_make(message->socket, &message->unread, err);
	else if (message->connection)
		*fd = make_connected(builder, message, err);
	else
		*fd = sp_inet_socket_make(message->socket, err);
	return *fd < 0 ? *fd : 0;
}

typedef int connection_step(int fd, const Sealpoint__TcpSocket *message, struct sp_error *err);

static int with_connection(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                           connection_step *step, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__TcpSocket *message =
	        sp_blob_unpack(file->body, &sealpoint__tcp_socket__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (!message->connection || builder->options->tcp_close)
		return 0;
	return step(builder->fds[file->id], message, err);
}

static int connect_again(int fd, const Sealpoint__TcpSocket *message, struct sp_error *err)
{
	return sp_tcp_connection_restore(fd, message->socket, message->connection, err);
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	return with_connection(builder, file, connect_again, err);
}

static int go_on(int fd, const Sealpoint__TcpSocket *message, struct sp_error *err)
{
	return sp_tcp_connection_resume(fd, message->socket, message->connection, err);
}

static int resume(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	return with_connection(builder, file, go_on, err);
}

/* --- looking --- */

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__TcpSocket *message =
	        sp_blob_unpack(body, &sealpoint__tcp_socket__descriptor, NULL);
	char address[SP_INET_TEXT], peer[SP_INET_TEXT];

	if (!message || sp_inet_socket_check(message->socket, SOCK_STREAM, NULL) < 0)
		return;
	sp_inet_address_text(message->socket->local.data, address);
	if (message->connection &&
	    !sp_tcp_connection_check(message->socket, message->connection, NULL)) {
		sp_inet_address_text(message->connection->peer.data, peer);
		snprintf(text, size, "%s, connection to %s %s, %zu bytes to read, %zu to send",
		         address, peer, sp_tcp_state_name(message->connection->state),
		         message->connection->received.len, message->connection->sending.len);
		return;
	}
	if (message->unread.len)
		snprintf(text, size, "its connection is over, %zu bytes to read",
		         message->unread.len);
	else
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
	if (sp_inet_socket_check(message->socket, SOCK_STREAM, err) < 0)
		return -err->code;
	return message->connection
	               ? sp_tcp_connection_check(message->socket, message->connection, err)
	               : 0;
}

const struct sp_file_kind sp_kind_tcp_socket = {
        .name = "tcp_socket",
        .title = "TCP socket",
        .apart = true,
        .claims = claims,
        .connects = connects,
        .save = save,
        .open = open_tcp_socket,
        .settle = settle,
        .resume = resume,
        .describe = describe,
        .check = check,
};
