/* Asking the kernel about unix sockets: see unix_diag.h. */
#include "kinds/unix_diag.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "kinds/sock_diag.h"
#include "proc/stat.h"

#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

/* --- the query --- */

struct request {
	struct nlmsghdr header;
	struct unix_diag_req body;
};

static struct request make_request(unsigned flags, uint32_t states, uint64_t inode, uint32_t show)
{
	return (struct request){
	        .header = {.nlmsg_len = sizeof(struct request),
	                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
	                   .nlmsg_flags = (uint16_t)flags},
	        .body = {.sdiag_family = AF_UNIX,
	                 .udiag_states = states,
	                 .udiag_ino = (uint32_t)inode,
	                 .udiag_show = show,
	                 .udiag_cookie = {UINT32_MAX, UINT32_MAX}},
	};
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
	} else if (type == UNIX_DIAG_NAME) {
		state->name_size = size < sizeof(state->name) ? size : sizeof(state->name);
		memcpy(state->name, payload, state->name_size);
	} else if (type == UNIX_DIAG_ICONS && state->clients) {
		sp_array_append_all(state->clients, payload, size / sizeof(uint32_t));
	}
}

/* -EIO if the answer is too short. */
static int read_answer(void *context, const struct nlmsghdr *header)
{
	struct sp_unix_state *state = context;
	const struct unix_diag_msg *message = NLMSG_DATA(header);
	size_t left;
	const struct rtattr *each = sp_sock_diag_attributes(header, sizeof(*message), &left);

	if (!each)
		return -EIO;
	state->listening = message->udiag_state == TCP_LISTEN;
	for (; RTA_OK(each, left); each = RTA_NEXT(each, left))
		read_attribute(state, each->rta_type, RTA_DATA(each), RTA_PAYLOAD(each));
	return 0;
}

static int query(uint64_t inode, uint32_t show, struct sp_unix_state *state, struct sp_error *err)
{
	struct request request = make_request(0, UINT32_MAX, inode, show);
	int rc = sp_sock_diag(&request.header, read_answer, state);

	if (rc)
		return sp_fail_errno(err, -rc,
		                     "cannot ask sock_diag for the socket (it may be in another "
		                     "network namespace, or the kernel have no CONFIG_UNIX_DIAG)");
	return 0;
}

int sp_unix_query(uint64_t inode, struct sp_unix_state *state, struct sp_error *err)
{
	*state = (struct sp_unix_state){0};
	return query(inode, UDIAG_SHOW_VFS | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN, state, err);
}

int sp_unix_query_clients(uint64_t inode, struct sp_array *clients, struct sp_error *err)
{
	struct sp_unix_state state = {.clients = clients};

	return query(inode, UDIAG_SHOW_ICONS, &state, err);
}

/* --- who listens --- */

/* A path ends with a NUL byte, an abstract name, which begins with one, does not. */
static bool has_name(const struct sp_unix_state *state, const char *name, size_t size)
{
	size_t its_size = state->name_size;

	if (its_size && state->name[0])
		its_size = strnlen(state->name, its_size);
	return its_size == size && !memcmp(state->name, name, size);
}

struct wanted {
	int type;
	const char *name;
	size_t size;
	struct sp_unix_state *found;
};

static int look_for_name(void *context, const struct nlmsghdr *header)
{
	const struct wanted *wanted = context;
	const struct unix_diag_msg *message = NLMSG_DATA(header);
	int rc;

	*wanted->found = (struct sp_unix_state){0};
	rc = read_answer(wanted->found, header);
	if (rc)
		return rc;
	return message->udiag_type == wanted->type &&
	                       has_name(wanted->found, wanted->name, wanted->size)
	               ? -EEXIST
	               : 0;
}

int sp_unix_find_listener(int type, const void *name, size_t size, struct sp_unix_state *state)
{
	struct request request =
	        make_request(NLM_F_DUMP, 1U << TCP_LISTEN, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_VFS);
	struct wanted wanted = {.type = type, .name = name, .size = size, .found = state};
	int rc = sp_sock_diag(&request.header, look_for_name, &wanted);

	if (rc == -EEXIST)
		return 0;
	return rc ? rc : -ENOENT;
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
