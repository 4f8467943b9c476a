/* Looking up TCP connections, and taking them away: see tcp_diag.h. */
#include "kinds/tcp_diag.h"

#include "kinds/sock_diag.h"
#include "kinds/unix_diag.h"

#include <linux/inet_diag.h>
#include <netinet/tcp.h>
#include <string.h>

struct request {
	struct nlmsghdr header;
	struct inet_diag_req_v2 body;
};

static void put_end(const union sp_inet_address *end, __be16 *port, __be32 address[4])
{
	*port = end->v4.sin_port; /* at the same place in both */
	if (end->any.sa_family == AF_INET)
		memcpy(address, &end->v4.sin_addr, sizeof(end->v4.sin_addr));
	else
		memcpy(address, &end->v6.sin6_addr, sizeof(end->v6.sin6_addr));
}

static struct request make_request(const union sp_inet_address *local,
                                   const union sp_inet_address *peer)
{
	struct request request = {
	        .header.nlmsg_len = sizeof(request),
	        .body = {.sdiag_family = (uint8_t)local->any.sa_family,
	                 .sdiag_protocol = IPPROTO_TCP,
	                 .idiag_states = UINT32_MAX,
	                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
	};

	put_end(local, &request.body.id.idiag_sport, request.body.id.idiag_src);
	put_end(peer, &request.body.id.idiag_dport, request.body.id.idiag_dst);
	if (local->any.sa_family == AF_INET6)
		request.body.id.idiag_if = local->v6.sin6_scope_id;
	return request;
}

static int keep_answer(void *context, const struct nlmsghdr *header)
{
	struct inet_diag_msg *answer = context;

	if (header->nlmsg_len < NLMSG_LENGTH(sizeof(*answer)))
		return -EIO;
	memcpy(answer, NLMSG_DATA(header), sizeof(*answer));
	return 0;
}

/* Of no more than a word that something was done, the answer is all zero. */
static int ask(struct request *request, unsigned type, unsigned flags, struct inet_diag_msg *answer)
{
	*answer = (struct inet_diag_msg){0};
	request->header.nlmsg_type = (uint16_t)type;
	request->header.nlmsg_flags = (uint16_t)flags;
	return sp_sock_diag(&request->header, keep_answer, answer);
}

/* --- who is at the other end --- */

struct wanted {
	uint32_t inode;
	struct inet_diag_msg found;
};

static int look_for_inode(void *context, const struct nlmsghdr *header)
{
	struct wanted *wanted = context;
	int rc = keep_answer(&wanted->found, header);

	return !rc && wanted->found.idiag_inode == wanted->inode ? -EEXIST : rc;
}

static int find_opening(int family, uint32_t inode, struct inet_diag_msg *found)
{
	struct request request = {
	        .header = {.nlmsg_len = sizeof(request),
	                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
	                   .nlmsg_flags = NLM_F_DUMP},
	        .body = {.sdiag_family = (uint8_t)family,
	                 .sdiag_protocol = IPPROTO_TCP,
	                 .idiag_states = 1U << TCP_SYN_SENT},
	};
	struct wanted wanted = {.inode = inode};
	int rc = sp_sock_diag(&request.header, look_for_inode, &wanted);

	*found = wanted.found;
	if (rc == -EEXIST)
		return 0;
	return rc ? rc : -ENOENT;
}

int sp_tcp_get_peer(int fd, union sp_inet_address *peer, struct sp_error *err)
{
	socklen_t size = sizeof(*peer);
	struct inet_diag_msg found = {0};
	struct stat stat;
	int rc;

	if (!getpeername(fd, &peer->any, &size))
		return 0;
	rc = fstat(fd, &stat) < 0
	             ? -errno
	             : find_opening(sp_socket_number(fd, SO_DOMAIN), (uint32_t)stat.st_ino, &found);
	if (rc)
		return sp_fail_errno(err, -rc, "cannot find the address of the other end");
	*peer = (union sp_inet_address){.any.sa_family = found.idiag_family};
	peer->v4.sin_port = found.id.idiag_dport; /* at the same place in both */
	if (found.idiag_family == AF_INET)
		memcpy(&peer->v4.sin_addr, found.id.idiag_dst, sizeof(peer->v4.sin_addr));
	else
		memcpy(&peer->v6.sin6_addr, found.id.idiag_dst, sizeof(peer->v6.sin6_addr));
	if (found.idiag_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&peer->v6.sin6_addr))
		peer->v6.sin6_scope_id = found.id.idiag_if;
	return 0;
}

/* --- making way --- */

static int refuse_owned(uint32_t inode, struct sp_error *err)
{
	char holder[64];

	sp_socket_holder(inode, holder, sizeof(holder));
	return sp_fail(err, EADDRINUSE, "this connection exists, %s has it; end that first",
	               holder);
}

int sp_tcp_make_way(const union sp_inet_address *local, const union sp_inet_address *peer,
                    struct sp_error *err)
{
	struct request request = make_request(local, peer);
	struct inet_diag_msg answer;
	int rc = ask(&request, SOCK_DIAG_BY_FAMILY, 0, &answer);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return sp_fail_errno(err, -rc, "cannot ask sock_diag for a connection");
	/* The listener of the port answers for connections that there are not. */
	if (!answer.idiag_state || answer.idiag_state == TCP_LISTEN)
		return 0;
	if (answer.idiag_inode)
		return refuse_owned(answer.idiag_inode, err);
	memcpy(request.body.id.idiag_cookie, answer.id.idiag_cookie,
	       sizeof(answer.id.idiag_cookie));
	rc = ask(&request, SOCK_DESTROY, NLM_F_ACK, &answer);
	if (rc < 0 && rc != -ENOENT)
		return sp_fail_errno(err, -rc,
		                     "cannot take away what is left of an earlier connection "
		                     "(CONFIG_INET_DIAG_DESTROY)");
	return 0;
}
