/* Filling the queues of unix sockets: see unix_send.h. */
#include "kinds/unix_send.h"

#include "kinds/guise.h"
#include "kinds/socket_options.h"
#include "kinds/unix_name.h"

#include <string.h>
#include <sys/socket.h>

/* One message on its way. */
struct sending {
	int from, into;
	struct sockaddr_un to; /* if to_size */
	socklen_t to_size;
	const Sealpoint__UnixMessage *message;
	const int *fds; /* those that it carries */
};

static struct cmsghdr *write_control(const struct sending *sending, void *control)
{
	struct cmsghdr *header = control;
	size_t size = sending->message->n_files * sizeof(int);

	if (!size)
		return NULL;
	*header = (struct cmsghdr){
	        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(size)};
	memcpy(CMSG_DATA(header), sending->fds, size);
	return header;
}

/* In pieces only if it is a stream: descriptors go with the first of them. */
static int send_whole(const struct sending *sending)
{
	const Sealpoint__UnixMessage *message = sending->message;
	sp_cleanup_free void *control =
	        sp_alloc_zeroed(1, CMSG_SPACE((message->n_files + 1) * sizeof(int)));
	struct iovec vector = {.iov_base = message->data.data, .iov_len = message->data.len};
	struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};

	header.msg_control = write_control(sending, control);
	if (header.msg_control)
		header.msg_controllen = CMSG_SPACE(message->n_files * sizeof(int));
	if (sending->to_size) {
		header.msg_name = (void *)&sending->to;
		header.msg_namelen = sending->to_size;
	}
	do {
		ssize_t sent = sendmsg(sending->from, &header, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0)
			return -errno;
		if (sent > 0)
			vector.iov_base = (char *)vector.iov_base + sent;
		vector.iov_len -= (size_t)sent;
		header.msg_control = NULL;
		header.msg_controllen = 0;
	} while (vector.iov_len);
	return 0;
}

static int send_in_guise(void *context)
{
	const struct sending *sending = context;
	int rc;

	sp_guise_put_on(sending->message->sender->uid, sending->message->sender->gid);
	rc = send_whole(sending);
	sp_guise_take_off();
	return rc;
}

/* Returns what was set before. */
static int set_passcred(int fd, int value)
{
	int before = sp_socket_number(fd, SO_PASSCRED);

	if (before != value)
		setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &value, sizeof(value));
	return before;
}

/*
 * The kernel notes who sends a message if one of the two ends wants to know, and gives a sender that wants to know, and
 * has no name, one.
 */
static int send_known_or_not(const struct sending *sending)
{
	const Sealpoint__SocketCredentials *sender = sending->message->sender;
	int from = set_passcred(sending->from, 0);
	int into = set_passcred(sending->into, sender != NULL);
	int rc = sender ? sp_guise_run((pid_t)sender->pid, send_in_guise, (void *)sending)
	                : send_whole(sending);

	set_passcred(sending->into, into);
	set_passcred(sending->from, from);
	return rc;
}

/* What was sent in large pieces can take more of a send buffer now than it did. */
static int send_with_room(const struct sending *sending)
{
	const int plenty = 256 << 20;
	int size = sp_socket_number(sending->from, SO_SNDBUF) / 2; /* the kernel doubles it */
	int lock = sp_socket_number(sending->from, SO_BUF_LOCK);
	int rc;

	setsockopt(sending->from, SOL_SOCKET, SO_SNDBUFFORCE, &plenty, sizeof(plenty));
	rc = send_known_or_not(sending);
	setsockopt(sending->from, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	setsockopt(sending->from, SOL_SOCKET, SO_BUF_LOCK, &lock, sizeof(lock));
	return rc;
}

/* --- who sends --- */

static bool same_bytes(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
	return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

/* The datagram socket of the checkpoint that has this name, or -1. */
static int find_named(const struct sp_file_builder *builder, const char *kind,
                      const ProtobufCBinaryData *name)
{
	for (size_t i = 0; i < builder->checkpoint->files.count; i++) {
		const Sealpoint__OpenFile *file = sp_array_pointer(&builder->checkpoint->files, i);
		sp_cleanup_message Sealpoint__UnixSocket *message = NULL;

		if (!strcmp(file->kind, kind))
			message = sp_blob_unpack(file->body, &sealpoint__unix_socket__descriptor,
			                         NULL);
		if (message && message->type == SOCK_DGRAM && message->name &&
		    same_bytes(&message->name->path, name))
			return builder->fds[file->id];
	}
	return -1;
}

/* A socket for one message, which has the sender's name if that is to be had. */
static int make_sender(struct sp_file_builder *builder, const ProtobufCBinaryData *name,
                       struct sp_error *err)
{
	sp_cleanup_close int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char text[SP_UNIX_TEXT];

	if (made < 0)
		return sp_fail_errno(err, errno, "cannot make a socket");
	if (name->len && sp_unix_name_bind_apart(made, name)) {
		sp_unix_name_text(name, text);
		sp_warn(builder->log,
		        "a datagram that waits to be read does not tell its sender %s any more",
		        text);
	}
	return sp_steal_fd(&made);
}

/* Who sends it, and where to; `*made` is to be closed afterwards. */
static int choose_sender(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                         const Sealpoint__UnixSocket *message, int far_end, struct sending *sending,
                         int *made, struct sp_error *err)
{
	const ProtobufCBinaryData *name = &sending->message->sender_name;

	sending->from = far_end;
	if (message->type != SOCK_DGRAM || !message->name || (far_end >= 0 && !name->len))
		return far_end >= 0 ? 0 : sp_fail_damaged(err, "messages without a sender");
	if (sp_unix_name_destination(message->name, &sending->to, &sending->to_size, err))
		return -err->code;
	sending->from = name->len ? find_named(builder, file->kind, name) : -1;
	if (sending->from >= 0)
		return 0;
	sending->from = *made = make_sender(builder, name, err);
	return *made < 0 ? *made : 0;
}

static int send_one(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                    const Sealpoint__UnixSocket *message, const Sealpoint__UnixMessage *one,
                    int far_end, struct sp_error *err)
{
	sp_cleanup_free int *fds = sp_alloc((one->n_files + 1) * sizeof(int));
	sp_cleanup_close int made = -1;
	struct sending sending = {.message = one, .fds = fds, .into = builder->fds[file->id]};
	int rc;

	for (size_t i = 0; i < one->n_files; i++)
		fds[i] = builder->fds[one->files[i]];
	if (choose_sender(builder, file, message, far_end, &sending, &made, err))
		return -err->code;
	rc = send_with_room(&sending);
	return rc ? sp_fail_errno(err, -rc, "cannot put back what waited to be read") : 0;
}

int sp_unix_send_all(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     const Sealpoint__UnixSocket *message, int far_end, struct sp_error *err)
{
	for (size_t i = 0; i < message->n_messages; i++)
		if (send_one(builder, file, message, message->messages[i], far_end, err))
			return -err->code;
	return 0;
}
