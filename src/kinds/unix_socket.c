/*
 * Unix sockets that do not listen.
 *
 *   - without a connection: made anew, with its name;
 *   - both ends in the checkpoint (socketpair(2), or connected to a socket of the program's own):
 *     made as a pair when the first of the two is opened;
 *   - the other end closed: made as a pair, of which one end is closed again;
 *   - a datagram socket that sends to a named one outside (syslog(3)): connected to that name again.
 *
 * Any other connection has its other end in a program that is not saved, and is refused with that
 * program's name. What waits to be read is saved, directions that are shut stay so. Ends of a
 * connection that was made by connect(2) are unnamed after a restore, and SO_PEERCRED of a pair
 * tells of the process that restored it.
 */
#include "kinds/registry.h"

#include "kinds/file_table.h"
#include "kinds/socket_filter.h"
#include "kinds/socket_options.h"
#include "kinds/unix_name.h"
#include "kinds/unix_queue.h"

#include "unix_socket.pb-c.h"

#include <string.h>
#include <sys/socket.h>

#define SHUT_BOTH 3U

static bool claims(const struct sp_open_file *file)
{
	return S_ISSOCK(file->stat.st_mode) && sp_socket_number(file->fd, SO_DOMAIN) == AF_UNIX;
}

/* --- saving --- */

/* All that saving a socket refers to. */
struct saving {
	Sealpoint__UnixSocket message;
	struct sp_unix_state state;
	struct sp_unix_name name;
	struct sp_socket_options options;
	struct sp_unix_queue queue;
	struct sockaddr_un peer;
};

static void release_saving(struct saving *saving)
{
	sp_unix_name_release(&saving->name);
	sp_socket_options_release(&saving->options);
	sp_unix_queue_release(&saving->queue);
}

static const struct sp_open_file *find_socket(const struct sp_file_table *table, uint32_t inode)
{
	for (size_t i = 0; i < table->files.count; i++) {
		const struct sp_open_file *file = sp_array_at(&table->files, i);

		if (S_ISSOCK(file->stat.st_mode) && file->stat.st_ino == inode)
			return file;
	}
	return NULL;
}

/* Of datagram sockets, one may be connected to another that is not connected to it. */
static bool is_mutual(const struct sp_open_file *file, const struct sp_open_file *peer)
{
	struct sp_unix_state state;

	return !sp_unix_query(peer->stat.st_ino, &state, NULL) && state.peer == file->stat.st_ino;
}

static int refuse_outside(const struct saving *saving, struct sp_error *err)
{
	char name[SP_UNIX_TEXT], holder[64];

	if (!saving->state.peer)
		return sp_fail(err, ENOTSUP,
		               "it is connected to a listening socket that has not accepted it "
		               "yet; let that happen first");
	sp_unix_name_text(&saving->message.peer_name, name);
	sp_socket_holder(saving->state.peer, holder, sizeof(holder));
	return sp_fail(err, ENOTSUP,
	               "its other end%s%s is held by %s, which is not being saved; let either "
	               "program close the connection first",
	               name[0] ? " at " : "", name, holder);
}

static int save_peer(struct sp_file_saver *saver, const struct sp_open_file *file,
                     struct saving *saving, struct sp_error *err)
{
	Sealpoint__UnixSocket *message = &saving->message;
	const struct sp_open_file *peer = find_socket(saver->table, saving->state.peer);
	bool datagram = message->type == SOCK_DGRAM;
	socklen_t size = sizeof(saving->peer);

	if (!saving->state.connected)
		return 0;
	if (!getpeername(file->fd, (struct sockaddr *)&saving->peer, &size))
		message->peer_name = sp_unix_name_bytes(&saving->peer, size);
	if (peer && is_mutual(file, peer))
		message->peer_file = peer->id;
	else if (!datagram && !saving->state.peer && saving->state.shutdown == SHUT_BOTH)
		message->peer_gone = true;
	else if (datagram && !saving->state.peer && !message->peer_name.len)
		message->peer_gone = true;
	else if (!datagram || !message->peer_name.len)
		return refuse_outside(saving, err);
	return 0;
}

/*
 * The name of an accepted socket is its listener's: only a datagram socket can have its own again.
 */
static void drop_connection_name(struct sp_file_saver *saver, const struct sp_open_file *file,
                                 struct saving *saving)
{
	char text[SP_UNIX_TEXT];

	if (!saving->message.name || !saving->state.connected || saving->message.type == SOCK_DGRAM)
		return;
	sp_unix_name_text(&saving->name.message.path, text);
	sp_warn(saver->log,
	        "descriptor %d of process %d: this end of a unix connection will not have the name "
	        "%s any more",
	        file->number, file->pid, text);
	saving->message.name = NULL;
}

static int save_parts(struct sp_file_saver *saver, const struct sp_open_file *file,
                      struct saving *saving, struct sp_error *err)
{
	Sealpoint__UnixSocket *message = &saving->message;

	message->type = (uint32_t)sp_socket_number(file->fd, SO_TYPE);
	if (sp_unix_query(file->stat.st_ino, &saving->state, err) < 0 ||
	    sp_unix_name_save(file, &saving->state, &saving->name, err) < 0 ||
	    sp_socket_filter_refuse(file->fd, err) < 0 ||
	    sp_socket_options_save(file->fd, &saving->options, err) < 0 ||
	    save_peer(saver, file, saving, err) < 0 ||
	    sp_unix_queue_save(file->fd, (int)message->type, message->peer_file != 0,
	                       &saving->queue, err) < 0)
		return -err->code;
	if (saving->name.message.path.len)
		message->name = &saving->name.message;
	drop_connection_name(saver, file, saving);
	message->shutdown = saving->state.shutdown;
	message->options = saving->options.list;
	message->n_options = saving->options.count;
	message->messages = saving->queue.messages;
	message->n_messages = saving->queue.count;
	return 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	struct saving saving sp_cleanup(release_saving) = {.message = SEALPOINT__UNIX_SOCKET__INIT};

	if (save_parts(saver, file, &saving, err) < 0)
		return -err->code;
	sp_blob_pack(body, &saving.message.base);
	return 0;
}

/* --- rebuilding --- */

static Sealpoint__UnixSocket *unpack(const Sealpoint__OpenFile *file, struct sp_error *err)
{
	return sp_blob_unpack(file->body, &sealpoint__unix_socket__descriptor, err);
}

static int make_pair(uint32_t type, int pair[2], struct sp_error *err)
{
	if (socketpair(AF_UNIX, (int)type | SOCK_CLOEXEC, 0, pair) < 0)
		return sp_fail_errno(err, errno, "cannot make a pair of sockets");
	return 0;
}

/* Options, name and contents of `fd`; the contents are sent by `sender`. */
static int furnish(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message, int fd,
                   int sender, struct sp_error *err)
{
	if (sp_socket_options_apply(fd, message->options, message->n_options, err) < 0 ||
	    sp_unix_name_bind(builder, fd, message->name, err) < 0)
		return -err->code;
	return sp_unix_queue_fill(sender, message->messages, message->n_messages, err);
}

/* Makes both ends and hands the other one over to the record of the peer. */
static int open_pair(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message, int *fd,
                     struct sp_error *err)
{
	const Sealpoint__OpenFile *peer_file =
	        sp_checkpoint_file(builder->checkpoint, message->peer_file);
	sp_cleanup_message Sealpoint__UnixSocket *peer = unpack(peer_file, err);
	int pair[2];

	if (!peer)
		return -EBADMSG;
	if (make_pair(message->type, pair, err) < 0)
		return -err->code;
	*fd = pair[0];
	builder->fds[message->peer_file] = pair[1];
	if (furnish(builder, message, pair[0], pair[1], err) < 0)
		return -err->code;
	return furnish(builder, peer, pair[1], pair[0], err);
}

static int open_widowed(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message,
                        int *fd, struct sp_error *err)
{
	sp_cleanup_close int other = -1;
	int pair[2];

	if (make_pair(message->type, pair, err) < 0)
		return -err->code;
	*fd = pair[0];
	other = pair[1];
	return furnish(builder, message, pair[0], other, err);
}

/* A socket of its own; datagrams come to it from a passing sender without a name. */
static int open_single(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message,
                       int *fd, struct sp_error *err)
{
	sp_cleanup_close int sender = -1;
	int code;

	*fd = socket(AF_UNIX, (int)message->type | SOCK_CLOEXEC, 0);
	sender = socket(AF_UNIX, (int)message->type | SOCK_CLOEXEC, 0);
	if (*fd < 0 || sender < 0)
		return sp_fail_errno(err, errno, "cannot make a socket");
	if (sp_socket_options_apply(*fd, message->options, message->n_options, err) < 0 ||
	    sp_unix_name_bind(builder, *fd, message->name, err) < 0)
		return -err->code;
	if (!message->n_messages)
		return 0;
	code = message->name ? sp_unix_name_connect(sender, &message->name->path) : -EBADMSG;
	if (code < 0)
		return sp_fail_errno(err, -code, "cannot send it again what waited to be read");
	return sp_unix_queue_fill(sender, message->messages, message->n_messages, err);
}

static int open_unix_socket(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                            int *fd, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixSocket *message = unpack(file, err);

	if (!message)
		return -EBADMSG;
	if (message->peer_file)
		return open_pair(builder, message, fd, err);
	if (message->peer_gone)
		return open_widowed(builder, message, fd, err);
	return open_single(builder, message, fd, err);
}

/* To a peer outside. If it is not there, sending fails as it would have without a restore. */
static void connect_outside(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message,
                            int fd)
{
	char text[SP_UNIX_TEXT];
	int code = sp_unix_name_connect(fd, &message->peer_name);

	if (!code)
		return;
	sp_unix_name_text(&message->peer_name, text);
	sp_warn(builder->log, "a datagram socket sends to %s, where nobody is now (%s)", text,
	        strerror(-code));
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixSocket *message = unpack(file, err);
	int fd = builder->fds[file->id];

	if (!message)
		return -EBADMSG;
	if (!message->peer_file && !message->peer_gone && message->peer_name.len)
		connect_outside(builder, message, fd);
	if (message->shutdown & 1)
		shutdown(fd, SHUT_RD);
	if (message->shutdown & 2)
		shutdown(fd, SHUT_WR);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__UnixSocket *message =
	        sp_blob_unpack(body, &sealpoint__unix_socket__descriptor, NULL);
	char name[SP_UNIX_TEXT] = "", peer[SP_UNIX_TEXT] = "";

	if (!message)
		return;
	if (message->name)
		sp_unix_name_text(&message->name->path, name);
	sp_unix_name_text(&message->peer_name, peer);
	if (message->peer_file)
		snprintf(peer, sizeof(peer), "the file #%u", message->peer_file);
	else if (message->peer_gone)
		snprintf(peer, sizeof(peer), "nobody any more");
	snprintf(text, size, "%s%s%s%s%s%zu message%s to read", name, name[0] && peer[0] ? " " : "",
	         peer[0] ? "connected to " : "", peer, name[0] || peer[0] ? ", " : "",
	         message->n_messages, message->n_messages == 1 ? "" : "s");
}

/* The other end must be a record of the same kind, and say the same of this one. */
static int check_peer(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                      const Sealpoint__UnixSocket *message, struct sp_error *err)
{
	const Sealpoint__OpenFile *peer_file = sp_checkpoint_file(checkpoint, message->peer_file);
	sp_cleanup_message Sealpoint__UnixSocket *peer = NULL;

	if (!message->peer_file)
		return 0;
	if (peer_file && peer_file != file && !strcmp(peer_file->kind, file->kind))
		peer = unpack(peer_file, NULL);
	if (!peer || peer->peer_file != file->id || peer->type != message->type)
		return sp_fail(err, EBADMSG, "the image gives it an impossible other end");
	return 0;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixSocket *message = unpack(file, err);

	if (!message)
		return -EBADMSG;
	if ((message->type != SOCK_STREAM && message->type != SOCK_SEQPACKET &&
	     message->type != SOCK_DGRAM) ||
	    message->shutdown > SHUT_BOTH)
		return sp_fail(err, EBADMSG, "the image gives an impossible unix socket");
	if ((message->name && sp_unix_name_check(&message->name->path, err) < 0) ||
	    sp_unix_name_check(&message->peer_name, err) < 0 ||
	    sp_socket_options_check(message->options, message->n_options, err) < 0)
		return -err->code;
	return check_peer(checkpoint, file, message, err);
}

const struct sp_file_kind sp_kind_unix_socket = {
        .name = "unix_socket",
        .title = "unix socket",
        .claims = claims,
        .save = save,
        .open = open_unix_socket,
        .settle = settle,
        .describe = describe,
        .check = check,
};
