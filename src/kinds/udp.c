/*
 * Inet sockets that send and receive single packets: UDP, UDP-Lite, ping sockets (ICMP without privileges) and
 * raw ones: address, peer, options, multicast groups. Datagrams that wait in UDP sockets are delivered again
 * (udp_queue.h); packets that wait in others are lost, as the network may lose them, and a warning tells. What a corked
 * socket has gathered cannot be seen: it is waited for.
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "kinds/inet_socket.h"
#include "kinds/multicast.h"
#include "kinds/udp_queue.h"

#include "udp.pb-c.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>

static bool claims_udp(const struct sp_open_file *file)
{
	return sp_inet_socket_is(file, SOCK_DGRAM, IPPROTO_UDP) ||
	       sp_inet_socket_is(file, SOCK_DGRAM, IPPROTO_UDPLITE);
}

static bool claims_ping(const struct sp_open_file *file)
{
	return sp_inet_socket_is(file, SOCK_DGRAM, IPPROTO_ICMP) ||
	       sp_inet_socket_is(file, SOCK_DGRAM, IPPROTO_ICMPV6);
}

static bool claims_raw(const struct sp_open_file *file)
{
	return sp_inet_socket_is(file, SOCK_RAW, file->socket.protocol);
}

/* --- saving --- */

/* What may be lost, and what may not. */
static int look_at_queues(struct sp_file_saver *saver, const struct sp_open_file *file,
                          struct sp_error *err)
{
	int waiting = 0, gathered = 0, corked = 0;
	socklen_t size = sizeof(corked);

	if (file->kind != &sp_kind_udp && !ioctl(file->fd, FIONREAD, &waiting) && waiting)
		sp_warn(saver->log,
		        "descriptor %d of process %d (%s): packets that wait to be read are lost",
		        file->number, file->pid, file->kind->title);
	if (!getsockopt(file->fd, IPPROTO_UDP, UDP_CORK, &corked, &size) && corked &&
	    !ioctl(file->fd, SIOCOUTQ, &gathered) && gathered)
		return sp_fail(
		        err, SP_NOT_YET,
		        "it is corked (UDP_CORK), and what it has gathered cannot be seen; let "
		        "the program send it first");
	return 0;
}

/* A line of /proc/net/raw or the like: is it of this socket, which is connected, and to which address? */
static bool parse_peer(const char *line, uint64_t inode, union sp_inet_address *peer)
{
	char remote[33] = "";
	unsigned state = 0;
	uint32_t words[4] = {0};
	unsigned long its_inode = 0;
	size_t count = peer->any.sa_family == AF_INET ? 1 : 4;

	if (sscanf(line, " %*d: %*[^:]:%*x %32[^:]:%*x %x %*s %*s %*s %*u %*u %lu", remote, &state,
	           &its_inode) != 3 ||
	    its_inode != inode || state != TCP_ESTABLISHED || strlen(remote) != 8 * count)
		return false;
	for (size_t i = 0; i < count; i++)
		if (sscanf(&remote[8 * i], "%8x", &words[i]) != 1)
			return false;
	if (count == 1)
		memcpy(&peer->v4.sin_addr, words, sizeof(peer->v4.sin_addr));
	else
		memcpy(&peer->v6.sin6_addr, words, sizeof(peer->v6.sin6_addr));
	return true;
}

/* getpeername(2) tells of no peer without a port, which is what raw and ping sockets are connected to. */
static bool find_peer(const struct sp_open_file *file, int family, union sp_inet_address *peer)
{
	sp_cleanup_free char *path =
	        sp_format("/proc/net/%s%s", file->kind == &sp_kind_raw ? "raw" : "icmp",
	                  family == AF_INET6 ? "6" : "");
	sp_cleanup_free char *text = NULL;
	socklen_t size = sizeof(*peer);

	if (!getpeername(file->fd, &peer->any, &size))
		return true;
	*peer = (union sp_inet_address){.any.sa_family = (sa_family_t)family};
	if (file->kind == &sp_kind_udp || sp_read_file(AT_FDCWD, path, &text, &(size_t){0}, NULL))
		return false;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (parse_peer(line, file->stat.st_ino, peer))
			return true;
	return false;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Udp message = SEALPOINT__UDP__INIT;
	sp_cleanup_inet_socket struct sp_inet_socket socket = {0};
	sp_cleanup(sp_multicast_release) struct sp_array groups =
	        SP_ARRAY_OF(Sealpoint__MulticastGroup *);
	sp_cleanup(sp_udp_queue_release) struct sp_array datagrams =
	        SP_ARRAY_OF(Sealpoint__UdpDatagram *);
	union sp_inet_address peer = {0};

	if (sp_inet_socket_save(file->fd, &socket, err) < 0 ||
	    sp_multicast_save(file->fd, &groups, err) < 0 || look_at_queues(saver, file, err) < 0 ||
	    (file->kind == &sp_kind_udp && sp_udp_queue_read(file->fd, &datagrams, err) < 0))
		return -err->code;
	if (find_peer(file, (int)socket.message.family, &peer))
		message.peer = sp_inet_address_bytes(&peer);
	message.socket = &socket.message;
	message.groups = groups.items;
	message.n_groups = groups.count;
	message.datagrams = datagrams.items;
	message.n_datagrams = datagrams.count;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- rebuilding --- */

/* Before it is connected: what has come before that may be from others. */
static int fill_queue(struct sp_file_builder *builder, int fd, const Sealpoint__Udp *message,
                      struct sp_error *err)
{
	int count = sp_udp_queue_fill(fd, message, err);

	if (count >= 0 && (size_t)count < message->n_datagrams)
		sp_warn(builder->log,
		        "%zu of %zu datagrams that a UDP socket had not read yet are lost: they "
		        "came "
		        "for a group, or for an address that this machine has not any more, or do "
		        "not "
		        "get through",
		        message->n_datagrams - (size_t)count, message->n_datagrams);
	return count < 0 ? count : 0;
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
	if (message->n_datagrams && fill_queue(builder, made, message, err) < 0)
		return -err->code;
	for (size_t i = 0; i < message->n_groups; i++)
		if (sp_multicast_join(made, message->groups[i], err) < 0)
			return -err->code;
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
	bool raw = !strcmp(file->kind, sp_kind_raw.name);

	if (!message)
		return -EBADMSG;
	if (sp_inet_socket_check(message->socket, raw ? SOCK_RAW : SOCK_DGRAM, err) < 0)
		return -err->code;
	if (message->peer.len && !sp_inet_address_valid(&message->peer, message->socket->family))
		return sp_fail_damaged(err, "an impossible address of the peer");
	for (size_t i = 0; i < message->n_groups; i++)
		if (sp_multicast_check(message->groups[i], err) < 0)
			return -err->code;
	return sp_udp_queue_check(message, err);
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Udp *message =
	        sp_blob_unpack(body, &sealpoint__udp__descriptor, NULL);
	char here[SP_INET_TEXT], there[SP_INET_TEXT] = "", protocol[32] = "", waiting[48] = "";

	if (!message || !message->socket ||
	    sp_inet_socket_check(message->socket, (int)message->socket->type, NULL) < 0)
		return;
	sp_inet_address_text(message->socket->local.data, here);
	if (message->peer.len && sp_inet_address_valid(&message->peer, message->socket->family))
		sp_inet_address_text(message->peer.data, there);
	if (message->socket->type == SOCK_RAW)
		snprintf(protocol, sizeof(protocol), "protocol %u, ", message->socket->protocol);
	if (message->n_datagrams)
		snprintf(waiting, sizeof(waiting), ", %zu datagrams waiting", message->n_datagrams);
	snprintf(text, size, "%s%s%s%s%s", protocol, here, there[0] ? ", connected to " : "", there,
	         waiting);
}

const struct sp_file_kind sp_kind_udp = {
        .name = "udp",
        .title = "UDP socket",
        .claims = claims_udp,
        .save = save,
        .open = open_udp,
        .describe = describe,
        .check = check,
};

const struct sp_file_kind sp_kind_ping = {
        .name = "ping",
        .title = "ping socket",
        .claims = claims_ping,
        .save = save,
        .open = open_udp,
        .describe = describe,
        .check = check,
};

const struct sp_file_kind sp_kind_raw = {
        .name = "raw",
        .title = "raw socket",
        .claims = claims_raw,
        .save = save,
        .open = open_udp,
        .describe = describe,
        .check = check,
};
