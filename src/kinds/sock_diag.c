/* The common part of all questions to sock_diag: see sock_diag.h. */
#include "kinds/sock_diag.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>

#define ANSWER_MAX 32768 /* what the kernel sends at once at most */

/* 0: there is more to come; 1: that was all. */
static int look_at_message(const struct nlmsghdr *header, sp_sock_diag_look *look, void *context)
{
	if (header->nlmsg_type == NLMSG_DONE)
		return 1;
	if (header->nlmsg_type != NLMSG_ERROR)
		return look(context, header);
	return ((const struct nlmsgerr *)NLMSG_DATA(header))->error ?: 1;
}

int sp_sock_diag(struct nlmsghdr *request, sp_sock_diag_look *look, void *context)
{
	sp_cleanup_close int netlink =
	        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	union {
		struct nlmsghdr header;
		uint8_t bytes[ANSWER_MAX];
	} answer;
	bool several = request->nlmsg_flags & NLM_F_DUMP;

	request->nlmsg_flags |= NLM_F_REQUEST;
	if (netlink < 0 || send(netlink, request, request->nlmsg_len, 0) < 0)
		return -errno;
	do {
		ssize_t size = recv(netlink, &answer, sizeof(answer), 0);

		if (size < 0)
			return -errno;
		for (const struct nlmsghdr *header = &answer.header; NLMSG_OK(header, (size_t)size);
		     header = NLMSG_NEXT(header, size)) {
			int rc = look_at_message(header, look, context);

			if (rc)
				return rc == 1 ? 0 : rc;
		}
	} while (several);
	return 0;
}

const struct rtattr *sp_sock_diag_attributes(const struct nlmsghdr *message, size_t size,
                                             size_t *left)
{
	if (message->nlmsg_len < NLMSG_LENGTH(size))
		return NULL;
	*left = message->nlmsg_len - NLMSG_LENGTH(size);
	return (const struct rtattr *)((const uint8_t *)NLMSG_DATA(message) + NLMSG_ALIGN(size));
}
