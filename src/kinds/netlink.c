/*
 * Netlink sockets: address, groups, options, filter. Of some protocols the kernel keeps more behind a socket than
 * it tells (rules, queues, registrations): those are refused. What waits to be read is news, or an answer, of the
 * kernel, which cannot be sent again: it is waited for.
 */
#include "kinds/registry.h"

#include "kinds/socket_filter.h"
#include "kinds/socket_options.h"

#include "netlink.pb-c.h"

#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#define GROUP_WORDS 64 /* no family has 2048 groups */

static bool claims(const struct sp_open_file *file)
{
	return S_ISSOCK(file->stat.st_mode) && file->socket.domain == AF_NETLINK;
}

/* --- saving --- */

static int check_protocol(uint32_t protocol, struct sp_error *err)
{
	static const uint32_t plain[] = {NETLINK_ROUTE,   NETLINK_USERSOCK,      NETLINK_SOCK_DIAG,
	                                 NETLINK_XFRM,    NETLINK_SELINUX,       NETLINK_FIB_LOOKUP,
	                                 NETLINK_GENERIC, NETLINK_KOBJECT_UEVENT};

	for (size_t i = 0; i < SP_COUNT_OF(plain); i++)
		if (plain[i] == protocol)
			return 0;
	return sp_fail(
	        err, ENOTSUP,
	        "the kernel may keep rules or queues for a netlink socket of protocol %u, and "
	        "does not tell them; let the program close it first",
	        protocol);
}

static int refuse_waiting(int fd, struct sp_error *err)
{
	char byte;

	if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC) < 0)
		return 0;
	return sp_fail(err, SP_NOT_YET,
	               "messages of the kernel wait in it; let the program read them first");
}

/* The numbers of the groups, in memory that is the caller's to free. */
static int save_groups(int fd, Sealpoint__Netlink *message, struct sp_error *err)
{
	uint32_t words[GROUP_WORDS] = {0};
	socklen_t size = sizeof(words);

	if (getsockopt(fd, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, words, &size))
		return sp_fail_errno(err, errno, "cannot read its groups");
	message->groups = sp_alloc(sizeof(words) * 8 * sizeof(uint32_t));
	for (uint32_t bit = 0; bit < sizeof(words) * 8; bit++)
		if (words[bit / 32] & (1U << bit % 32))
			message->groups[message->n_groups++] = bit + 1;
	return 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Netlink message = SEALPOINT__NETLINK__INIT;
	sp_cleanup_socket_options struct sp_socket_options options = {0};
	sp_cleanup_free uint32_t *groups = NULL;
	sp_cleanup_free uint8_t *filter = NULL;
	struct sockaddr_nl here = {0}, there = {0};
	socklen_t here_size = sizeof(here), there_size = sizeof(there);
	int rc;

	message.type = (uint32_t)sp_socket_number(file->fd, SO_TYPE);
	message.protocol = (uint32_t)sp_socket_number(file->fd, SO_PROTOCOL);
	if (check_protocol(message.protocol, err) < 0 || refuse_waiting(file->fd, err) < 0)
		return -err->code;
	if (getsockname(file->fd, (struct sockaddr *)&here, &here_size) ||
	    getpeername(file->fd, (struct sockaddr *)&there, &there_size))
		return sp_fail_errno(err, errno, "cannot read its addresses");
	rc = save_groups(file->fd, &message, err);
	groups = message.groups;
	if (!rc)
		rc = sp_socket_filter_save(file->fd, &message.filter, err);
	filter = message.filter.data;
	if (!rc)
		rc = sp_socket_options_save(file->fd, &options, err);
	if (rc)
		return rc;
	message.port = here.nl_pid;
	if (there.nl_pid || there.nl_groups)
		message.peer = (ProtobufCBinaryData){sizeof(there), (uint8_t *)&there};
	message.options = options.list;
	message.n_options = options.count;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- rebuilding --- */

static int join_groups(int fd, const Sealpoint__Netlink *message, struct sp_error *err)
{
	for (size_t i = 0; i < message->n_groups; i++)
		if (setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &message->groups[i],
		               sizeof(uint32_t)))
			return sp_fail_errno(err, errno, "cannot join group %u",
			                     message->groups[i]);
	return 0;
}

static int open_netlink(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                        struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Netlink *message =
	        sp_blob_unpack(file->body, &sealpoint__netlink__descriptor, err);
	sp_cleanup_close int made = -1;
	struct sockaddr_nl here = {.nl_family = AF_NETLINK};

	if (!message)
		return -EBADMSG;
	made = socket(AF_NETLINK, (int)message->type | SOCK_CLOEXEC, (int)message->protocol);
	if (made < 0)
		return sp_fail_errno(err, errno, "cannot make a socket");
	if (sp_socket_filter_attach(made, &message->filter, err) < 0 ||
	    sp_socket_options_apply(made, message->options, message->n_options, err) < 0)
		return -err->code;
	here.nl_pid = message->port;
	if (here.nl_pid && bind(made, (struct sockaddr *)&here, sizeof(here)))
		return sp_fail_errno(err, errno, "cannot bind to port %u", here.nl_pid);
	if (message->peer.len &&
	    connect(made, (struct sockaddr *)message->peer.data, (socklen_t)message->peer.len))
		return sp_fail_errno(err, errno, "cannot connect");
	if (join_groups(made, message, err) < 0)
		return -err->code;
	*fd = sp_steal_fd(&made);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Netlink *message =
	        sp_blob_unpack(body, &sealpoint__netlink__descriptor, NULL);

	if (message)
		snprintf(text, size, "protocol %u, port %u, in %zu groups", message->protocol,
		         message->port, message->n_groups);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Netlink *message =
	        sp_blob_unpack(file->body, &sealpoint__netlink__descriptor, err);

	if (!message)
		return -EBADMSG;
	if ((message->type != SOCK_RAW && message->type != SOCK_DGRAM) ||
	    (message->peer.len && message->peer.len != sizeof(struct sockaddr_nl)))
		return sp_fail_damaged(err, "an impossible netlink socket");
	if (sp_socket_filter_check(&message->filter, err) < 0)
		return -err->code;
	return sp_socket_options_check(message->options, message->n_options, err);
}

const struct sp_file_kind sp_kind_netlink = {
        .name = "netlink",
        .title = "netlink socket",
        .claims = claims,
        .save = save,
        .open = open_netlink,
        .describe = describe,
        .check = check,
};
