/*
 * UDP sockets: address, peer, options. Datagrams that wait to be read are lost, as the network may
 * lose them; a warning tells. Multicast groups that the socket has joined cannot be read from the
 * kernel and are not restored.
 */
#include "kinds/registry.h"

#include "kinds/inet_socket.h"

#include "udp.pb-c.h"

#include <sys/ioctl.h>

static bool claims(const struct sp_open_file *file)
{
	return sp_inet_socket_is(file, SOCK_DGRAM, IPPROTO_UDP);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Udp message = SEALPOINT__UDP__INIT;
	sp_cleanup_inet_socket struct sp_inet_socket socket = {0};
	union sp_inet_address peer = {0};
	socklen_t size = sizeof(peer);
	int waiting = 0;

	if (sp_inet_socket_save(file->fd, &socket, err) < 0)
		return -err->code;
	if (!ioctl(file->fd, FIONREAD, &waiting) && waiting)
		sp_warn(saver->log,
		        "descriptor %d of process %d (UDP socket): datagrams that wait to be read "
		        "are lost",
		        file->number, file->pid);
	if (!getpeername(file->fd, &peer.any, &size))
		message.peer = sp_inet_address_bytes(&peer);
	message.socket = &socket.message;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int open_udp(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                    struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Udp *message =
	        sp_blob_unpack(file->body, &sealpoint__udp__descriptor, err);
	sp_cleanup_close int made = -1;
	char text[SP_INET_TEXT];

	if (!message)
		return -EBADMSG;
	made = sp_inet_socket_make(message->socket, err);
	if (made < 0)
		return made;
	if (message->peer.len &&
	    connect(made, (void *)message->peer.data, (socklen_t)message->peer.len) < 0) {
		sp_inet_address_text(message->peer.data, text);
		return sp_fail_errno(err, errno, "cannot connect to %s", text);
	}
	*fd = sp_steal_fd(&made);
	return 0;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Udp *message =
	        sp_blob_unpack(file->body, &sealpoint__udp__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (sp_inet_socket_check(message->socket, SOCK_DGRAM, err) < 0)
		return -err->code;
	if (message->peer.len && !sp_inet_address_valid(&message->peer, message->socket->family))
		return sp_fail(err, EBADMSG, "the image gives an impossible address of the peer");
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Udp *message =
	        sp_blob_unpack(body, &sealpoint__udp__descriptor, NULL);
	char here[SP_INET_TEXT], there[SP_INET_TEXT] = "";

	if (!message || sp_inet_socket_check(message->socket, SOCK_DGRAM, NULL) < 0)
		return;
	sp_inet_address_text(message->socket->local.data, here);
	if (message->peer.len && sp_inet_address_valid(&message->peer, message->socket->family))
		sp_inet_address_text(message->peer.data, there);
	snprintf(text, size, "%s%s%s", here, there[0] ? ", connected to " : "", there);
}

const struct sp_file_kind sp_kind_udp = {
        .name = "udp",
        .title = "UDP socket",
        .claims = claims,
        .save = save,
        .open = open_udp,
        .describe = describe,
        .check = check,
};
