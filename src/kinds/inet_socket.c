/* What TCP and UDP sockets have in common. */
#include "kinds/inet_socket.h"

#include "kinds/socket_filter.h"
#include "kinds/tcp_md5.h"

#include <arpa/inet.h>
#include <string.h>

bool sp_inet_socket_is(const struct sp_open_file *file, int type, int protocol)
{
	int its_protocol = file->socket.protocol;

	/* It behaves as TCP in every way that is of interest here. */
	if (its_protocol == IPPROTO_MPTCP)
		its_protocol = IPPROTO_TCP;
	return S_ISSOCK(file->stat.st_mode) && file->socket.type == type &&
	       its_protocol == protocol &&
	       (file->socket.domain == AF_INET || file->socket.domain == AF_INET6);
}

/* --- addresses --- */

static size_t address_size(int family)
{
	return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

bool sp_inet_address_valid(const ProtobufCBinaryData *bytes, uint32_t family)
{
	union sp_inet_address address = {0};

	if ((family != AF_INET && family != AF_INET6) || bytes->len != address_size((int)family))
		return false;
	memcpy(&address, bytes->data, bytes->len);
	return address.any.sa_family == family;
}

ProtobufCBinaryData sp_inet_address_bytes(union sp_inet_address *address)
{
	return (ProtobufCBinaryData){.len = address_size(address->any.sa_family),
	                             .data = (uint8_t *)address};
}

void sp_inet_address_text(const void *address, char text[SP_INET_TEXT])
{
	union sp_inet_address copy = {0};
	char host[INET6_ADDRSTRLEN];

	memcpy(&copy.any, address, sizeof(copy.any));
	memcpy(&copy, address, address_size(copy.any.sa_family));
	if (copy.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &copy.v4.sin_addr, host, sizeof(host));
		snprintf(text, SP_INET_TEXT, "%s:%u", host, ntohs(copy.v4.sin_port));
		return;
	}
	inet_ntop(AF_INET6, &copy.v6.sin6_addr, host, sizeof(host));
	if (copy.v6.sin6_scope_id)
		snprintf(text, SP_INET_TEXT, "[%s%%%u]:%u", host, copy.v6.sin6_scope_id,
		         ntohs(copy.v6.sin6_port));
	else
		snprintf(text, SP_INET_TEXT, "[%s]:%u", host, ntohs(copy.v6.sin6_port));
}

bool sp_inet_address_is_v4(const union sp_inet_address *address)
{
	return address->any.sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr);
}

static bool is_bound(const union sp_inet_address *address)
{
	if (address->any.sa_family == AF_INET)
		return address->v4.sin_port || address->v4.sin_addr.s_addr;
	return address->v6.sin6_port || !IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
}

/* --- saving and making --- */

int sp_inet_socket_save(int fd, struct sp_inet_socket *socket, struct sp_error *err)
{
	socklen_t size = sizeof(socket->local);

	*socket = (struct sp_inet_socket){.message = SEALPOINT__INET_SOCKET__INIT};
	if (getsockname(fd, &socket->local.any, &size) < 0)
		return sp_fail_errno(err, errno, "cannot read its address");
	if (sp_socket_filter_save(fd, &socket->message.filter, err) < 0 ||
	    sp_socket_options_save(fd, &socket->options, err) < 0)
		return -err->code;
	socket->message.family = (uint32_t)sp_socket_number(fd, SO_DOMAIN);
	socket->message.type = (uint32_t)sp_socket_number(fd, SO_TYPE);
	socket->message.protocol = (uint32_t)sp_socket_number(fd, SO_PROTOCOL);
	socket->message.local = sp_inet_address_bytes(&socket->local);
	socket->message.options = socket->options.list;
	socket->message.n_options = socket->options.count;
	return 0;
}

void sp_inet_socket_strip(struct sp_inet_socket *socket)
{
	socket->message.n_options = 0;
	socket->message.filter.len = 0;
	socket->message.md5_keys.len = 0;
	socket->local =
	        (union sp_inet_address){.any.sa_family = (sa_family_t)socket->message.family};
}

void sp_inet_socket_release(struct sp_inet_socket *socket)
{
	sp_socket_options_release(&socket->options);
	free(socket->message.filter.data);
	socket->message.filter = (ProtobufCBinaryData){0};
	free(socket->message.md5_keys.data);
	socket->message.md5_keys = (ProtobufCBinaryData){0};
}

int sp_inet_socket_bind(int fd, const Sealpoint__InetSocket *message, struct sp_error *err)
{
	union sp_inet_address address = {0};
	char text[SP_INET_TEXT];

	memcpy(&address, message->local.data, message->local.len);
	if (!is_bound(&address) || !bind(fd, &address.any, (socklen_t)message->local.len))
		return 0;
	sp_inet_address_text(&address, text);
	if (errno == EADDRINUSE)
		return sp_fail(err, EADDRINUSE,
		               "%s is in use: by another program, or still by connections that the "
		               "program has had, if it does not set SO_REUSEADDR; stop that "
		               "program, or try again in a minute",
		               text);
	return sp_fail_errno(err, errno, "cannot bind to %s", text);
}

int sp_inet_socket_make_unbound(const Sealpoint__InetSocket *message, struct sp_error *err)
{
	sp_cleanup_close int fd = socket((int)message->family, (int)message->type | SOCK_CLOEXEC,
	                                 (int)message->protocol);

	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot make a socket");
	if (sp_socket_filter_attach(fd, &message->filter, err) < 0 ||
	    sp_socket_options_apply(fd, message->options, message->n_options, err) < 0 ||
	    sp_tcp_md5_apply(fd, &message->md5_keys, err) < 0)
		return -err->code;
	return sp_steal_fd(&fd);
}

int sp_inet_socket_make(const Sealpoint__InetSocket *message, struct sp_error *err)
{
	sp_cleanup_close int fd = sp_inet_socket_make_unbound(message, err);

	if (fd < 0 || sp_inet_socket_bind(fd, message, err) < 0)
		return -err->code;
	return sp_steal_fd(&fd);
}

int sp_inet_socket_check(const Sealpoint__InetSocket *message, int type, struct sp_error *err)
{
	struct sp_error unheard = {0};

	if (!err)
		err = &unheard;
	if (!message || message->type != (uint32_t)type ||
	    !sp_inet_address_valid(&message->local, message->family))
		return sp_fail_damaged(err, "an impossible socket address");
	if (sp_socket_filter_check(&message->filter, err) < 0 ||
	    sp_tcp_md5_check(&message->md5_keys, err) < 0)
		return -err->code;
	return sp_socket_options_check(message->options, message->n_options, err);
}
