/* Asking the kernel about unix sockets: see unix_diag.h. */
#include "kinds/unix_diag.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "proc/stat.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

/* --- the query --- */

static int send_request(int netlink, uint64_t inode, struct sp_error *err)
{
	struct {
		struct nlmsghdr header;
		struct unix_diag_req request;
	} message = {
	        .header = {.nlmsg_len = sizeof(message),
	                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
	                   .nlmsg_flags = NLM_F_REQUEST},
	        .request = {.sdiag_family = AF_UNIX,
	                    .udiag_states = UINT32_MAX,
	                    .udiag_ino = (uint32_t)inode,
	                    .udiag_show = UDIAG_SHOW_VFS | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN,
	                    .udiag_cookie = {UINT32_MAX, UINT32_MAX}},
	};

	if (send(netlink, &message, sizeof(message), 0) < 0)
		return sp_fail_errno(err, errno, "cannot ask sock_diag for a unix socket");
	return 0;
}

/* One attribute of the answer, whose payload has `size` bytes. */
static void read_attribute(struct sp_unix_state *state, unsigned type, const void *payload,
                           size_t size)
{
	if (type == UNIX_DIAG_PEER && size >= sizeof(uint32_t)) {
		state->connected = true;
		memcpy(&state->peer, payload, sizeof(uint32_t));
	} else if (type == UNIX_DIAG_SHUTDOWN && size >= 1) {
		state->shutdown = *(const uint8_t *)payload;
	} else if (type == UNIX_DIAG_RQLEN && size >= sizeof(struct unix_diag_rqlen)) {
		const struct unix_diag_rqlen *queues = payload;

		state->receive_queue = queues->udiag_rqueue;
		state->backlog = queues->udiag_wqueue;
	} else if (type == UNIX_DIAG_VFS && size >= sizeof(struct unix_diag_vfs)) {
		const struct unix_diag_vfs *vfs = payload;

		state->in_file_system = true;
		state->file_inode = vfs->udiag_vfs_ino;
	}
}

static void read_answer(struct sp_unix_state *state, struct nlmsghdr *header)
{
	struct unix_diag_msg *message = NLMSG_DATA(header);
	size_t left = header->nlmsg_len - NLMSG_LENGTH(sizeof(*message));

	state->listening = message->udiag_state == TCP_LISTEN;
	for (struct rtattr *attribute = (struct rtattr *)(message + 1); RTA_OK(attribute, left);
	     attribute = RTA_NEXT(attribute, left))
		read_attribute(state, attribute->rta_type, RTA_DATA(attribute),
		               RTA_PAYLOAD(attribute));
}

int sp_unix_query(uint64_t inode, struct sp_unix_state *state, struct sp_error *err)
{
	sp_cleanup_close int netlink =
	        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	union {
		struct nlmsghdr header;
		uint8_t bytes[4096];
	} answer;
	ssize_t size;

	*state = (struct sp_unix_state){0};
	if (netlink < 0)
		return sp_fail_errno(err, errno, "cannot open a sock_diag socket");
	if (send_request(netlink, inode, err) < 0)
		return -err->code;
	size = recv(netlink, &answer, sizeof(answer), 0);
	if (size < 0)
		return sp_fail_errno(err, errno, "cannot read sock_diag's answer");
	if (!NLMSG_OK(&answer.header, (size_t)size))
		return sp_fail(err, EIO, "sock_diag gave a damaged answer");
	if (answer.header.nlmsg_type == NLMSG_ERROR) {
		struct nlmsgerr *error = NLMSG_DATA(&answer.header);

		return sp_fail_errno(
		        err, -error->error,
		        "cannot ask sock_diag for the socket (it may be in another network "
		        "namespace, or the kernel have no CONFIG_UNIX_DIAG)");
	}
	if (answer.header.nlmsg_len < NLMSG_LENGTH(sizeof(struct unix_diag_msg)))
		return sp_fail(err, EIO, "sock_diag gave a short answer");
	read_answer(state, &answer.header);
	return 0;
}

/* --- who has a socket --- */

static bool holds(const char *pid, const char *wanted)
{
	sp_cleanup_free char *path = sp_format("/proc/%s/fd", pid);
	sp_cleanup_dir DIR *directory = opendir(path);
	struct dirent *entry;
	char link[64];

	while (directory && (entry = readdir(directory))) {
		ssize_t size = readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1);

		if (size < 0)
			continue;
		link[size] = '\0';
		if (!strcmp(link, wanted))
			return true;
	}
	return false;
}

void sp_socket_holder(uint32_t inode, char *text, size_t size)
{
	sp_cleanup_free char *wanted = sp_format("socket:[%u]", inode);
	sp_cleanup_dir DIR *proc = opendir("/proc");
	struct dirent *entry;

	snprintf(text, size, "no process");
	while (proc && (entry = readdir(proc))) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
		    !holds(entry->d_name, wanted))
			continue;
		snprintf(text, size, "%s", sp_process_name(atoi(entry->d_name)).text);
		return;
	}
}
