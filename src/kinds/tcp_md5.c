/* Keys of TCP sockets: see tcp_md5.h. */
#include "kinds/tcp_md5.h"

#include "kinds/inet_socket.h"
#include "kinds/sock_diag.h"

#include <linux/inet_diag.h>
#include <netinet/tcp.h>
#include <string.h>

/* struct tcp_diag_md5sig of linux/tcp.h, which does not go with netinet/tcp.h. */
struct key {
	uint8_t family;
	uint8_t prefix;
	uint16_t size;
	uint8_t address[16];
	uint8_t bytes[TCP_MD5SIG_MAXKEYLEN];
};

/* --- saving --- */

struct wanted {
	uint32_t inode;
	bool found;
	ProtobufCBinaryData *keys;
};

static int look(void *context, const struct nlmsghdr *header)
{
	struct wanted *wanted = context;
	const struct inet_diag_msg *message = NLMSG_DATA(header);
	size_t left;
	const struct rtattr *each = sp_sock_diag_attributes(header, sizeof(*message), &left);

	if (!each || message->idiag_inode != wanted->inode)
		return 0;
	wanted->found = true;
	for (; RTA_OK(each, left); each = RTA_NEXT(each, left)) {
		if (each->rta_type != INET_DIAG_MD5SIG || wanted->keys->data)
			continue;
		wanted->keys->len = RTA_PAYLOAD(each);
		wanted->keys->data = sp_alloc(wanted->keys->len + 1);
		memcpy(wanted->keys->data, RTA_DATA(each), wanted->keys->len);
	}
	return 0;
}

static void put_address(const union sp_inet_address *address, __be16 *port, __be32 words[4])
{
	*port = address->v4.sin_port; /* at the same place in both */
	if (address->any.sa_family == AF_INET)
		memcpy(words, &address->v4.sin_addr, sizeof(address->v4.sin_addr));
	else
		memcpy(words, &address->v6.sin6_addr, sizeof(address->v6.sin6_addr));
}

/*
 * The socket of these addresses is found at once. Where several listen at one address, it may be another one: then all
 * that listen are looked through.
 */
int sp_tcp_md5_save(int fd, ProtobufCBinaryData *keys, struct sp_error *err)
{
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 body;
	} request = {
	        .header = {.nlmsg_len = sizeof(request), .nlmsg_type = SOCK_DIAG_BY_FAMILY},
	        .body = {.sdiag_protocol = IPPROTO_TCP,
	                 .idiag_ext = 1U << (INET_DIAG_INFO - 1), /* without it, no keys either */
	                 .idiag_states = UINT32_MAX,
	                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
	};
	union sp_inet_address local = {0}, peer = {0};
	socklen_t local_size = sizeof(local), peer_size = sizeof(peer);
	struct wanted wanted = {.keys = keys};
	struct stat stat;
	bool connected = !getpeername(fd, &peer.any, &peer_size);

	if (fstat(fd, &stat) || getsockname(fd, &local.any, &local_size))
		return sp_fail_errno(err, errno, "cannot read its address");
	wanted.inode = (uint32_t)stat.st_ino;
	request.body.sdiag_family = (uint8_t)local.any.sa_family;
	put_address(&local, &request.body.id.idiag_sport, request.body.id.idiag_src);
	if (connected)
		put_address(&peer, &request.body.id.idiag_dport, request.body.id.idiag_dst);
	if (local.any.sa_family == AF_INET6)
		request.body.id.idiag_if = local.v6.sin6_scope_id;
	sp_sock_diag(&request.header, look, &wanted);
	if (wanted.found || connected)
		return 0;
	request.header.nlmsg_flags = NLM_F_DUMP;
	request.body.idiag_states = 1U << TCP_LISTEN;
	sp_sock_diag(&request.header, look, &wanted);
	return 0;
}

/* --- setting --- */

int sp_tcp_md5_apply(int fd, const ProtobufCBinaryData *keys, struct sp_error *err)
{
	int domain = sp_socket_number(fd, SO_DOMAIN);

	for (size_t place = 0; place + sizeof(struct key) <= keys->len;
	     place += sizeof(struct key)) {
		struct tcp_md5sig option = {.tcpm_flags = TCP_MD5SIG_FLAG_PREFIX};
		struct sockaddr_in v4 = {.sin_family = AF_INET};
		struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
		struct key key;

		memcpy(&key, keys->data + place, sizeof(key));
		memcpy(&v4.sin_addr, key.address, sizeof(v4.sin_addr));
		memcpy(&v6.sin6_addr, key.address, sizeof(v6.sin6_addr));
		/* IPv4 that an IPv6 socket speaks */
		if (key.family == AF_INET && domain == AF_INET6) {
			v6.sin6_addr = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
			memcpy(&v6.sin6_addr.s6_addr[12], key.address, sizeof(v4.sin_addr));
		}
		if (domain == AF_INET)
			memcpy(&option.tcpm_addr, &v4, sizeof(v4));
		else
			memcpy(&option.tcpm_addr, &v6, sizeof(v6));
		option.tcpm_prefixlen = key.prefix;
		option.tcpm_keylen = key.size;
		memcpy(option.tcpm_key, key.bytes, key.size);
		if (setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG_EXT, &option, sizeof(option)) < 0)
			return sp_fail_errno(err, errno,
			                     "cannot set the key that its packets are signed with "
			                     "(TCP_MD5SIG)");
	}
	return 0;
}

int sp_tcp_md5_check(const ProtobufCBinaryData *keys, struct sp_error *err)
{
	bool valid = keys->len % sizeof(struct key) == 0;

	for (size_t place = 0; place < keys->len && valid; place += sizeof(struct key)) {
		struct key key;

		memcpy(&key, keys->data + place, sizeof(key));
		valid = key.size && key.size <= sizeof(key.bytes) &&
		        (key.family == AF_INET || key.family == AF_INET6);
	}
	return valid ? 0 : sp_fail_damaged(err, "an impossible key of TCP");
}
