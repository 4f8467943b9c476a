/*
 * Listening TCP sockets: address, options, backlog. They are bound and listening again as soon as a
 * restore opens its files, before the program runs; whoever connects waits in the backlog.
 *
 * Connections in the backlog that the program has not accepted yet have no descriptor by which they could
 * be saved. They are refused, or dropped with --tcp-close; the dump tries again when the program has had
 * the time to accept them.
 */
#include "kinds/registry.h"

#include "kinds/inet_socket.h"
#include "kinds/tcp_md5.h"

#include "tcp_listen.pb-c.h"

#include <netinet/tcp.h>

static int get_tcp_info(int fd, struct tcp_info *info)
{
	socklen_t size = sizeof(*info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size);
}

static bool claims(const struct sp_open_file *file)
{
	return sp_inet_socket_is(file, SOCK_STREAM, IPPROTO_TCP) &&
	       sp_socket_number(file->fd, SO_ACCEPTCONN) == 1;
}

static int check_waiting(struct sp_file_saver *saver, const struct sp_open_file *file,
                         unsigned waiting, struct sp_inet_socket *socket, struct sp_error *err)
{
	char text[SP_INET_TEXT];

	if (!waiting)
		return 0;
	sp_inet_address_text(&socket->local, text);
	if (!saver->options->tcp_close && !saver->options->skip_in_flight)
		return sp_fail(err, saver->options->tcp_established ? SP_NOT_YET : ENOTSUP,
		               "%u connections to %s wait for the program to accept them; let it "
		               "do so, or give --tcp-close to drop them",
		               waiting, text);
	sp_warn(saver->log,
	        "descriptor %d of process %d: %u connections to %s that wait to be accepted are "
	        "dropped",
	        file->number, file->pid, waiting, text);
	return 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__TcpListen message = SEALPOINT__TCP_LISTEN__INIT;
	sp_cleanup_inet_socket struct sp_inet_socket socket = {0};
	struct tcp_info info;

	if (sp_inet_socket_save(file->fd, &socket, err) < 0 ||
	    sp_tcp_md5_save(file->fd, &socket.message.md5_keys, err) < 0)
		return -err->code;
	if (get_tcp_info(file->fd, &info) < 0)
		return sp_fail_errno(err, errno, "cannot ask for TCP_INFO");
	/* Of a listening socket these two tell its queue: how many wait, and the backlog. */
	if (check_waiting(saver, file, info.tcpi_unacked, &socket, err) < 0)
		return -err->code;
	message.backlog = info.tcpi_sacked;
	message.socket = &socket.message;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int open_tcp_listen(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                           int *fd, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__TcpListen *message =
	        sp_blob_unpack(file->body, &sealpoint__tcp_listen__descriptor, err);
	sp_cleanup_close int made = -1;
	char text[SP_INET_TEXT];

	if (!message)
		return -EBADMSG;
	made = sp_inet_socket_make(message->socket, err);
	if (made < 0)
		return made;
	if (listen(made, (int)message->backlog) < 0) {
		sp_inet_address_text(message->socket->local.data, text);
		return sp_fail_errno(err, errno, "cannot listen on %s", text);
	}
	*fd = sp_steal_fd(&made);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__TcpListen *message =
	        sp_blob_unpack(body, &sealpoint__tcp_listen__descriptor, NULL);
	char address[SP_INET_TEXT];

	if (!message || sp_inet_socket_check(message->socket, SOCK_STREAM, NULL) < 0)
		return;
	sp_inet_address_text(message->socket->local.data, address);
	snprintf(text, size, "%s, backlog %u", address, message->backlog);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__TcpListen *message =
	        sp_blob_unpack(file->body, &sealpoint__tcp_listen__descriptor, err);

	if (!message)
		return -EBADMSG;
	return sp_inet_socket_check(message->socket, SOCK_STREAM, err);
}

const struct sp_file_kind sp_kind_tcp_listen = {
        .name = "tcp_listen",
        .title = "listening TCP socket",
        .claims = claims,
        .save = save,
        .open = open_tcp_listen,
        .describe = describe,
        .check = check,
};
