/* Looking up TCP connections, and taking them away: see tcp_diag.h. */
#include "kinds/tcp_diag.h"

#include "kinds/unix_diag.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
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
	        .header = {.nlmsg_len = sizeof(request), .nlmsg_flags = NLM_F_REQUEST},
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

/* Returns 1 and the answer, 0 if the kernel has nothing to say but that it was done, or -errno. */
static int ask(int netlink, struct request *request, unsigned type, struct inet_diag_msg *answer)
{
	union {
		struct nlmsghdr header;
		uint8_t bytes[4096];
	} reply;
	ssize_t size;

	request->header.nlmsg_type = (uint16_t)type;
	request->header.nlmsg_flags = NLM_F_REQUEST | (type == SOCK_DESTROY ? NLM_F_ACK : 0);
	if (send(netlink, request, sizeof(*request), 0) < 0)
		return -errno;
	size = recv(netlink, &reply, sizeof(reply), 0);
	if (size < 0)
		return -errno;
	if (!NLMSG_OK(&reply.header, (size_t)size))
		return -EIO;
	if (reply.header.nlmsg_type == NLMSG_ERROR)
		return ((struct nlmsgerr *)NLMSG_DATA(&reply.header))->error;
	if (reply.header.nlmsg_len < NLMSG_LENGTH(sizeof(*answer)))
		return -EIO;
	memcpy(answer, NLMSG_DATA(&reply.header), sizeof(*answer));
	return 1;
}

static int refuse_owned(uint32_t inode, struct sp_error *err)
{
	char holder[64];

	sp_unix_holder(inode, holder, sizeof(holder)); /* it looks for sockets of any kind */
	return sp_fail(err, EADDRINUSE, "this connection exists, %s has it; end that first",
	               holder);
}

int sp_tcp_make_way(const union sp_inet_address *local, const union sp_inet_address *peer,
                    struct sp_error *err)
{
	sp_cleanup_close int netlink =
	        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct request request = make_request(local, peer);
	struct inet_diag_msg answer;
	int rc = netlink < 0 ? -errno : ask(netlink, &request, SOCK_DIAG_BY_FAMILY, &answer);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return sp_fail_errno(err, -rc, "cannot ask sock_diag for a connection");
	/* The listener of the port answers for connections that there are not. */
	if (!rc || answer.idiag_state == TCP_LISTEN)
		return 0;
	if (answer.idiag_inode)
		return refuse_owned(answer.idiag_inode, err);
	memcpy(request.body.id.idiag_cookie, answer.id.idiag_cookie,
	       sizeof(answer.id.idiag_cookie));
	rc = ask(netlink, &request, SOCK_DESTROY, &answer);
	if (rc < 0 && rc != -ENOENT)
		return sp_fail_errno(err, -rc,
		                     "cannot take away what is left of an earlier connection "
		                     "(CONFIG_INET_DIAG_DESTROY)");
	return 0;
}
