/* Looking at the queues of unix sockets: see unix_queue.h. */
#include "kinds/unix_queue.h"

#include "base/cleanup.h"
#include "base/kernel_abi.h"
#include "kinds/socket_options.h"
#include "kinds/unix_name.h"

#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MESSAGE_MAX (4U << 20) /* larger than the largest send buffer that is usual */
#define DESCRIPTORS_MAX 253    /* SCM_MAX_FD of the kernel */

#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif

/* What one look has shown. */
struct look {
	ssize_t size; /* negative: nothing there */
	int fds[DESCRIPTORS_MAX];
	size_t fd_count;
	struct ucred sender;
	bool has_sender;
	struct sockaddr_un name;
	socklen_t name_size;
};

static void close_fds(struct look *look)
{
	for (size_t i = 0; i < look->fd_count; i++)
		close(look->fds[i]);
	look->fd_count = 0;
}

static void read_control(struct look *look, const struct cmsghdr *control)
{
	size_t size = control->cmsg_len - CMSG_LEN(0);
	int pidfd;

	if (control->cmsg_level != SOL_SOCKET)
		return;
	if (control->cmsg_type == SCM_RIGHTS && size <= sizeof(look->fds)) {
		look->fd_count = size / sizeof(int);
		memcpy(look->fds, CMSG_DATA(control), size);
	} else if (control->cmsg_type == SCM_CREDENTIALS && size == sizeof(look->sender)) {
		look->has_sender = true;
		memcpy(&look->sender, CMSG_DATA(control), size);
	} else if (control->cmsg_type == SCM_PIDFD && size == sizeof(pidfd)) {
		memcpy(&pidfd, CMSG_DATA(control), size);
		close(pidfd);
	}
}

/* Looks at what is at the peek offset. */
static int look_once(int fd, void *buffer, size_t size, struct look *look, struct sp_error *err)
{
	union {
		struct cmsghdr aligned;
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int)) + 1024];
	} control;
	struct iovec vector = {.iov_base = buffer, .iov_len = size};
	struct msghdr header = {.msg_name = &look->name,
	                        .msg_namelen = sizeof(look->name),
	                        .msg_iov = &vector,
	                        .msg_iovlen = 1,
	                        .msg_control = &control,
	                        .msg_controllen = sizeof(control)};

	*look = (struct look){0};
	look->size = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (look->size < 0) {
		look->size = -errno;
		if (errno == EAGAIN || errno == ENOTCONN)
			return 0;
		return sp_fail_errno(err, errno, "cannot look at what waits to be read");
	}
	look->name_size = header.msg_namelen;
	for (struct cmsghdr *each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each))
		read_control(look, each);
	if (!(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 0;
	close_fds(look);
	if (header.msg_flags & MSG_TRUNC)
		return sp_fail(err, EFBIG, "a message of more than %zu bytes waits in it", size);
	return sp_fail(err, EMFILE,
	               "not all descriptors that were sent to it can be taken over; raise the hard "
	               "limit of open files (ulimit -Hn)");
}

static int set_peek_offset(int fd, int offset, struct sp_error *err)
{
	if (sp_socket_number(fd, SO_PEEK_OFF) == offset ||
	    !setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)))
		return 0;
	return sp_fail_errno(err, errno, "cannot set its peek offset");
}

/* --- keeping what was seen --- */

static ProtobufCBinaryData copy(const void *bytes, size_t size)
{
	ProtobufCBinaryData data = {.len = size, .data = sp_alloc(size + 1)};

	memcpy(data.data, bytes, size);
	return data;
}

static Sealpoint__UnixMessage *add_message(struct sp_unix_queue *queue, const void *bytes,
                                           size_t size, const struct look *look)
{
	Sealpoint__UnixMessage *message = sp_alloc(sizeof(*message));
	ProtobufCBinaryData name;

	*(Sealpoint__UnixMessage **)sp_array_push(&queue->messages) = message;
	sealpoint__unix_message__init(message);
	message->data = copy(bytes, size);
	name = sp_unix_name_bytes((struct sockaddr_un *)&look->name, look->name_size);
	if (name.len)
		message->sender_name = copy(name.data, name.len);
	/* None was noted if nobody wanted to know when it was sent: the kernel then shows process 0. */
	if (look->has_sender && look->sender.pid) {
		message->sender = sp_alloc(sizeof(*message->sender));
		sealpoint__socket_credentials__init(message->sender);
		message->sender->pid = (uint32_t)look->sender.pid;
		message->sender->uid = look->sender.uid;
		message->sender->gid = look->sender.gid;
	}
	return message;
}

/* Hands the descriptors of a look over to the table. */
static int add_files(struct sp_file_table *table, Sealpoint__UnixMessage *message,
                     struct look *look, struct sp_error *err)
{
	int rc = 0;

	message->files = sp_alloc((look->fd_count + 1) * sizeof(uint32_t));
	for (size_t i = 0; i < look->fd_count; i++) {
		if (rc)
			close(look->fds[i]);
		else
			rc = sp_file_table_add_in_flight(table, look->fds[i], &message->files[i],
			                                 err);
	}
	message->n_files = look->fd_count;
	look->fd_count = 0;
	return rc;
}

/* --- messages --- */

/* There, a message without content looks as the end does. */
static bool has_end(int fd, int type)
{
	struct pollfd poller = {.fd = fd, .events = POLLRDHUP};

	return type == SOCK_SEQPACKET && poll(&poller, 1, 0) == 1 && poller.revents & POLLRDHUP;
}

static int keep_message(struct sp_file_table *table, const void *buffer, struct look *look,
                        struct sp_unix_queue *queue, struct sp_error *err)
{
	return add_files(table, add_message(queue, buffer, (size_t)look->size, look), look, err);
}

/*
 * A message without content that somebody has looked at is passed over by a peek offset, so the first one
 * is looked at without.
 */
static int read_first(struct sp_file_table *table, int fd, void *buffer, bool ends,
                      struct sp_unix_queue *queue, struct sp_error *err)
{
	struct look look;

	if (set_peek_offset(fd, -1, err) || look_once(fd, buffer, MESSAGE_MAX, &look, err))
		return -err->code;
	if (look.size == 0 && !ends)
		return keep_message(table, buffer, &look, queue, err);
	close_fds(&look);
	return 0;
}

static int read_messages(struct sp_file_table *table, int fd, int type, struct sp_unix_queue *queue,
                         struct sp_error *err)
{
	sp_cleanup_free void *buffer = sp_alloc(MESSAGE_MAX);
	bool ends = has_end(fd, type);
	int rc = read_first(table, fd, buffer, ends, queue, err);
	struct look look;

	if (!rc)
		rc = set_peek_offset(fd, 0, err);
	while (!rc) {
		rc = look_once(fd, buffer, MESSAGE_MAX, &look, err);
		if (rc || look.size < 0 || (look.size == 0 && ends))
			break;
		rc = keep_message(table, buffer, &look, queue, err);
	}
	return rc;
}

/* --- streams --- */

static int look_at(int fd, int offset, void *buffer, size_t size, struct look *look,
                   struct sp_error *err)
{
	int rc = set_peek_offset(fd, offset, err);

	return rc ? rc : look_once(fd, buffer, size, look, err);
}

/*
 * A look ends with the piece that carries descriptors, but may begin with others, which carry none. How
 * many bytes are before it? The kernel copies piece by piece, and returns what came before one that it
 * cannot copy: so it is given one byte of memory too few.
 */
static int find_carrier(int fd, int offset, size_t size, size_t *before, struct sp_error *err)
{
	size_t room = (size + SP_PAGE_SIZE - 1) / SP_PAGE_SIZE * SP_PAGE_SIZE;
	uint8_t *memory = mmap(NULL, room + SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct look look = {0};
	int rc;

	*before = 0;
	if (memory == MAP_FAILED || mprotect(memory + room, SP_PAGE_SIZE, PROT_NONE))
		return sp_fail_errno(err, errno, "cannot map memory");
	rc = look_at(fd, offset, memory + room - (size - 1), size, &look, err);
	close_fds(&look);
	if (rc == -EFAULT)
		rc = 0; /* nothing is before it */
	else if (!rc)
		*before = (size_t)look.size;
	munmap(memory, room + SP_PAGE_SIZE);
	return rc;
}

static int keep_piece(struct sp_file_table *table, int fd, int offset, const uint8_t *bytes,
                      struct look *look, struct sp_unix_queue *queue, struct sp_error *err)
{
	size_t size = (size_t)look->size, before;

	if (!look->fd_count) {
		add_message(queue, bytes, size, look);
		return 0;
	}
	if (find_carrier(fd, offset, size, &before, err)) {
		close_fds(look);
		return -err->code;
	}
	if (before)
		add_message(queue, bytes, before, look);
	return add_files(table, add_message(queue, bytes + before, size - before, look), look, err);
}

static int read_stream(struct sp_file_table *table, int fd, struct sp_unix_queue *queue,
                       struct sp_error *err)
{
	sp_cleanup_free uint8_t *buffer = NULL;
	int size = 0, offset = 0;

	if (ioctl(fd, FIONREAD, &size) < 0)
		return sp_fail_errno(err, errno, "cannot ask how much waits to be read");
	buffer = sp_alloc((size_t)size + 1);
	while (offset < size) {
		struct look look;

		if (look_at(fd, offset, buffer, (size_t)size, &look, err))
			return -err->code;
		if (look.size <= 0)
			return sp_fail(err, ENOTSUP,
			               "%d of the %d bytes that wait in it cannot be seen (is it "
			               "urgent data?); let the program read it first",
			               size - offset, size);
		if (keep_piece(table, fd, offset, buffer, &look, queue, err))
			return -err->code;
		offset += (int)look.size;
	}
	return 0;
}

static bool has_error(int fd)
{
	struct pollfd poller = {.fd = fd};

	return poll(&poller, 1, 0) == 1 && poller.revents & POLLERR;
}

int sp_unix_queue_read(struct sp_file_table *table, int fd, int type, struct sp_unix_queue *queue,
                       struct sp_error *err)
{
	int before = sp_socket_number(fd, SO_PEEK_OFF), size = 0, rc;

	queue->reset = has_error(fd);
	if (queue->reset && type == SOCK_SEQPACKET && !ioctl(fd, FIONREAD, &size) && !size)
		return 0;
	if (queue->reset && type != SOCK_STREAM)
		return sp_fail(err, SP_NOT_YET,
		               "its other end was closed before it had read all, which the program "
		               "has not been told yet (ECONNRESET); let it read first");
	rc = type == SOCK_STREAM ? read_stream(table, fd, queue, err)
	                         : read_messages(table, fd, type, queue, err);

	if (set_peek_offset(fd, before, rc ? NULL : err))
		return -EIO;
	return rc;
}

void sp_unix_queue_release(struct sp_unix_queue *queue)
{
	for (size_t i = 0; i < queue->messages.count; i++) {
		ProtobufCMessage *message = sp_array_pointer(&queue->messages, i);

		protobuf_c_message_free_unpacked(message, NULL);
	}
	sp_array_release(&queue->messages);
}
