/* Reading and filling the queues of unix sockets: see unix_queue.h. */
#include "kinds/unix_queue.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "kinds/socket_options.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MESSAGE_MAX (4U << 20) /* larger than the largest send buffer that is usual */

/* --- looking --- */

/* Closes descriptors that came with a peeked message: copies of those that stay in flight. */
static bool had_descriptors(struct msghdr *header)
{
	bool found = header->msg_flags & MSG_CTRUNC;

	for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control;
	     control = CMSG_NXTHDR(header, control)) {
		size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		const int *fds = (const int *)CMSG_DATA(control);

		if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
			continue;
		found = true;
		for (size_t i = 0; i < count; i++)
			close(fds[i]);
	}
	return found;
}

/*
 * Looks at the message at the peek offset. Returns its size, 0 if there is none, or a negative
 * errno.
 */
static ssize_t peek(int fd, void *buffer, size_t size, bool known, struct sp_error *err)
{
	union {
		struct cmsghdr aligned;
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
	} control;
	struct sockaddr_un sender;
	struct iovec vector = {.iov_base = buffer, .iov_len = size};
	struct msghdr header = {.msg_name = &sender,
	                        .msg_namelen = sizeof(sender),
	                        .msg_iov = &vector,
	                        .msg_iovlen = 1,
	                        .msg_control = &control,
	                        .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got < 0)
		return sp_fail_errno(err, errno, "cannot look at what waits to be read");
	if (had_descriptors(&header))
		return sp_fail(err, ENOTSUP,
		               "a descriptor was sent to it (SCM_RIGHTS) and has not been received "
		               "yet; let the program receive it first");
	if (header.msg_flags & MSG_TRUNC)
		return sp_fail(err, EFBIG, "a message of more than %zu bytes waits in it", size);
	if (!known && header.msg_namelen > offsetof(struct sockaddr_un, sun_path))
		return sp_fail(err, ENOTSUP,
		               "a datagram from another named socket (%.108s) waits in it; let the "
		               "program read it first",
		               sender.sun_path[0] ? sender.sun_path : sender.sun_path + 1);
	return got;
}

static void add_message(struct sp_unix_queue *queue, const void *bytes, size_t size)
{
	struct sp_array list = {queue->messages, queue->count, queue->count,
	                        sizeof(*queue->messages)};
	ProtobufCBinaryData *message = sp_array_push(&list);

	message->len = size;
	message->data = sp_alloc(size);
	memcpy(message->data, bytes, size);
	queue->messages = list.items;
	queue->count = list.count;
}

static int set_peek_offset(int fd, int offset, struct sp_error *err)
{
	if (sp_socket_number(fd, SO_PEEK_OFF) == offset ||
	    !setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)))
		return 0;
	return sp_fail_errno(err, errno, "cannot set its peek offset");
}

/* What waits in a stream; of datagrams, the size of the first. */
static int waiting_bytes(int fd, struct sp_error *err)
{
	int size;

	if (ioctl(fd, FIONREAD, &size) < 0)
		return sp_fail_errno(err, errno, "cannot ask how much waits to be read");
	return size;
}

/*
 * A stream has no messages: with the peek offset off, one look gives all bytes up to a descriptor.
 */
static int peek_stream(int fd, struct sp_unix_queue *queue, struct sp_error *err)
{
	sp_cleanup_free void *buffer = NULL;
	int size = waiting_bytes(fd, err);
	ssize_t got;

	if (size <= 0)
		return size;
	buffer = sp_alloc((size_t)size);
	if (set_peek_offset(fd, -1, err) < 0)
		return -err->code;
	got = peek(fd, buffer, (size_t)size, true, err);
	if (got < 0)
		return (int)got;
	if (got != size)
		return sp_fail(err, ENOTSUP,
		               "what waits in it comes from several senders or carries "
		               "descriptors; let the program read it first");
	add_message(queue, buffer, (size_t)size);
	return 0;
}

static int peek_messages(int fd, bool known, struct sp_unix_queue *queue, struct sp_error *err)
{
	sp_cleanup_free void *buffer = NULL;
	int size = waiting_bytes(fd, err);
	ssize_t got;

	if (size <= 0)
		return size;
	buffer = sp_alloc(MESSAGE_MAX);
	if (set_peek_offset(fd, 0, err) < 0)
		return -err->code;
	while ((got = peek(fd, buffer, MESSAGE_MAX, known, err)) > 0)
		add_message(queue, buffer, (size_t)got);
	return (int)got;
}

int sp_unix_queue_save(int fd, int type, bool known, struct sp_unix_queue *queue,
                       struct sp_error *err)
{
	int before = sp_socket_number(fd, SO_PEEK_OFF);
	int rc = type == SOCK_STREAM ? peek_stream(fd, queue, err)
	                             : peek_messages(fd, known, queue, err);

	if (set_peek_offset(fd, before, rc ? NULL : err) < 0)
		return -EIO;
	return rc;
}

void sp_unix_queue_release(struct sp_unix_queue *queue)
{
	for (size_t i = 0; i < queue->count; i++)
		free(queue->messages[i].data);
	free(queue->messages);
	*queue = (struct sp_unix_queue){0};
}

/* --- filling --- */

static int send_all(int fd, const ProtobufCBinaryData *message, struct sp_error *err)
{
	size_t done = 0;

	while (done < message->len) {
		ssize_t sent = send(fd, message->data + done, message->len - done,
		                    MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0)
			return sp_fail_errno(err, errno, "cannot put back what waited to be read");
		done += (size_t)sent;
	}
	return 0;
}

/* What was sent in large pieces can take more of a send buffer now than it did. */
int sp_unix_queue_fill(int fd, const ProtobufCBinaryData *messages, size_t count,
                       struct sp_error *err)
{
	const int plenty = 256 << 20;
	int size, lock, rc = 0;

	if (!count)
		return 0;
	size = sp_socket_number(fd, SO_SNDBUF) / 2; /* the kernel doubles what it is given */
	lock = sp_socket_number(fd, SO_BUF_LOCK);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &plenty, sizeof(plenty));
	for (size_t i = 0; i < count && !rc; i++)
		rc = send_all(fd, &messages[i], err);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &lock, sizeof(lock));
	return rc;
}
