/*
 * Unix sockets that do not listen.
 *
 *   - without a connection: made anew, with its name;
 *   - both ends in the checkpoint (socketpair(2), or connected to a socket of the program's own):
 *     made as a pair when the first of the two is opened;
 *   - the other end closed: made as a pair, of which one end is closed again when all is sent;
 *   - connected to a listening socket in the checkpoint that has not accepted it: connected again, which
 *     that one does (unix_listen.c);
 *   - a datagram socket that sends to a named one, outside (syslog(3)) or not: connected to that name again;
 *   - connected to a socket outside that listens, and this is permitted: likewise (unix_outside.h).
 *
 * Any other connection has its other end in a program that is not saved, and is refused with that
 * program's name. What waits to be read is saved, with the descriptors in it; directions that are shut stay so.
 */
#include "kinds/registry.h"

#include "kinds/file_table.h"
#include "kinds/socket_filter.h"
#include "kinds/socket_options.h"
#include "kinds/unix_name.h"
#include "kinds/unix_outside.h"
#include "kinds/unix_pair.h"
#include "kinds/unix_queue.h"
#include "kinds/unix_send.h"

#include "unix_socket.pb-c.h"

#include <string.h>
#include <sys/socket.h>

#define SHUT_BOTH 3U

static bool claims(const struct sp_open_file *file)
{
	return S_ISSOCK(file->stat.st_mode) && file->socket.domain == AF_UNIX;
}

/* --- saving --- */

static int look_inside(struct sp_file_table *table, uint32_t id, struct sp_error *err)
{
	struct sp_unix_queue *queue = sp_alloc(sizeof(*queue));
	int fd = sp_file_table_at(table, id)->fd;

	queue->messages = SP_ARRAY_OF(Sealpoint__UnixMessage *);
	sp_file_table_at(table, id)->queue = queue;
	return sp_unix_queue_read(table, fd, sp_socket_number(fd, SO_TYPE), queue, err);
}

/* All that saving a socket refers to. */
struct saving {
	Sealpoint__UnixSocket message;
	struct sp_unix_state state;
	struct sp_unix_name name;
	struct sp_socket_options options;
	struct sockaddr_un peer;
	struct sp_unix_outside outside;
	Sealpoint__SocketCredentials peer_credentials;
};

static void release_saving(struct saving *saving)
{
	sp_unix_name_release(&saving->name);
	sp_socket_options_release(&saving->options);
	free(saving->message.filter.data);
}

/* Of datagram sockets, one may be connected to another that is not connected to it. */
static bool is_mutual(const struct sp_open_file *file, const struct sp_open_file *peer)
{
	struct sp_unix_state state;

	return !sp_unix_query(peer->stat.st_ino, &state, NULL) && state.peer == file->stat.st_ino;
}

/* The listening socket that it has connected to, if that is in the table, and has not accepted it yet. */
static const struct sp_open_file *find_listener(const struct sp_file_table *table, uint64_t inode)
{
	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_open_file *file = sp_file_table_at(table, id);
		sp_cleanup_array struct sp_array clients = SP_ARRAY_OF(uint32_t);

		if (file->kind != &sp_kind_unix_listen ||
		    sp_unix_query_clients(file->stat.st_ino, &clients, NULL))
			continue;
		for (size_t i = 0; i < clients.count; i++)
			if (*(uint32_t *)sp_array_at(&clients, i) == inode)
				return file;
	}
	return NULL;
}

/*
 * By which name a socket of the program's own is reached, from wherever the restore runs: the path that it was bound to may
 * be a relative one, and its file have another name by now. If it has none any more, the path stays.
 */
static int save_way(const struct sp_open_file *peer, struct saving *saving, struct sp_error *err)
{
	struct sp_unix_name name sp_cleanup(sp_unix_name_release) = {0};
	struct sp_unix_state state;
	socklen_t size;

	if (sp_unix_query(peer->stat.st_ino, &state, err) < 0 ||
	    sp_unix_name_save(peer, &state, &name, err) < 0)
		return -err->code;
	if (!name.message.linked)
		return 0;
	if (sp_unix_name_destination(&name.message, &saving->peer, &size, err) < 0)
		return -err->code;
	saving->message.peer_name = sp_unix_name_bytes(&saving->peer, size);
	return 0;
}

static int save_peer(struct sp_file_saver *saver, const struct sp_open_file *file,
                     struct saving *saving, struct sp_error *err)
{
	Sealpoint__UnixSocket *message = &saving->message;
	const struct sp_open_file *peer =
	        sp_file_table_find_socket(saver->table, file, saving->state.peer);
	const struct sp_open_file *listener;
	bool datagram = message->type == SOCK_DGRAM;
	socklen_t size = sizeof(saving->peer);

	if (!saving->state.connected)
		return 0;
	if (!getpeername(file->fd, (struct sockaddr *)&saving->peer, &size))
		message->peer_name = sp_unix_name_bytes(&saving->peer, size);
	listener = datagram ? NULL : find_listener(saver->table, file->stat.st_ino);
	if (peer && is_mutual(file, peer))
		message->peer_file = peer->id;
	else if (!datagram && !saving->state.peer && saving->state.shutdown == SHUT_BOTH)
		message->peer_gone = true;
	else if (datagram && !saving->state.peer && !message->peer_name.len)
		message->peer_gone = true;
	else if (!datagram && !saving->state.peer && listener)
		message->pending = listener->id;
	else if (!datagram || !message->peer_name.len)
		return sp_unix_outside_save(saver, file, &saving->state, message, &saving->outside,
		                            err);
	else if (peer)
		return save_way(peer, saving, err);
	return 0;
}

/* Who has made the other end: of datagram sockets, only pairs tell. */
static void save_peer_credentials(int fd, struct saving *saving)
{
	struct ucred who;
	socklen_t size = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) || who.uid == (uid_t)-1)
		return;
	sealpoint__socket_credentials__init(&saving->peer_credentials);
	saving->peer_credentials.pid = (uint32_t)who.pid;
	saving->peer_credentials.uid = who.uid;
	saving->peer_credentials.gid = who.gid;
	saving->message.peer_credentials = &saving->peer_credentials;
}

/* Datagrams can only be sent again to what has a name, or another end. */
static int check_receiver(const Sealpoint__UnixSocket *message, struct sp_error *err)
{
	bool path = message->name && message->name->path.len && message->name->path.data[0];

	if (!message->n_messages || message->peer_file || message->peer_gone)
		return 0;
	if (message->name && (!path || message->name->linked))
		return 0;
	return sp_fail(
	        err, SP_NOT_YET,
	        "datagrams wait in it, and it has no name any more by which they could be sent "
	        "again; let the program read them first");
}

/* Messages are sent before there is a process. */
static int check_files(const struct sp_file_table *table, const Sealpoint__UnixSocket *message,
                       struct sp_error *err)
{
	for (size_t i = 0; i < message->n_messages; i++) {
		for (size_t j = 0; j < message->messages[i]->n_files; j++) {
			const struct sp_open_file *file =
			        sp_file_table_at(table, message->messages[i]->files[j]);

			if (file->kind && file->kind->late)
				return sp_fail(
				        err, SP_NOT_YET,
				        "a %s was sent to it; let the program receive that first",
				        file->kind->title);
		}
	}
	return 0;
}

static int save_parts(struct sp_file_saver *saver, const struct sp_open_file *file,
                      struct saving *saving, struct sp_error *err)
{
	Sealpoint__UnixSocket *message = &saving->message;

	message->type = (uint32_t)sp_socket_number(file->fd, SO_TYPE);
	if (sp_unix_query(file->stat.st_ino, &saving->state, err) < 0 ||
	    sp_unix_name_save(file, &saving->state, &saving->name, err) < 0 ||
	    sp_socket_filter_save(file->fd, &message->filter, err) < 0 ||
	    sp_socket_options_save(file->fd, &saving->options, err) < 0 ||
	    save_peer(saver, file, saving, err) < 0)
		return -err->code;
	save_peer_credentials(file->fd, saving);
	if (saving->name.message.path.len)
		message->name = &saving->name.message;
	message->shutdown = saving->state.shutdown;
	message->options = saving->options.list;
	message->n_options = saving->options.count;
	if (file->queue) {
		message->messages = file->queue->messages.items;
		message->n_messages = file->queue->messages.count;
		message->reset = message->peer_gone && file->queue->reset;
	}
	if (check_files(saver->table, message, err))
		return -err->code;
	return check_receiver(message, err);
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
	if (sp_unix_pair_make(builder, message, peer, pair, err) < 0)
		return -err->code;
	*fd = pair[0];
	if (builder->given[message->peer_file])
		close(pair[1]);
	else
		builder->fds[message->peer_file] = pair[1];
	if (sp_socket_options_apply(pair[0], message->options, message->n_options, err) < 0)
		return -err->code;
	if (builder->given[message->peer_file])
		return 0;
	return sp_socket_options_apply(pair[1], peer->options, peer->n_options, err);
}

/* The other end is closed when it has sent what waits to be read, which may have had another name. */
static int open_widowed(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                        const Sealpoint__UnixSocket *message, int *fd, struct sp_error *err)
{
	int pair[2];

	if (sp_unix_pair_make(builder, message, NULL, pair, err) < 0)
		return -err->code;
	*fd = pair[0];
	/* If that has something left when it is closed, the program will be told so once (ECONNRESET). */
	if (message->reset && send(pair[0], "", 1, MSG_NOSIGNAL) < 0)
		return sp_fail_errno(err, errno, "cannot leave something at its other end");
	if (message->n_messages)
		builder->far_ends[file->id] = pair[1];
	else
		close(pair[1]);
	return sp_socket_options_apply(pair[0], message->options, message->n_options, err);
}

static int open_single(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message,
                       int *fd, struct sp_error *err)
{
	*fd = socket(AF_UNIX, (int)message->type | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return sp_fail_errno(err, errno, "cannot make a socket");
	if (sp_socket_options_apply(*fd, message->options, message->n_options, err) < 0)
		return -err->code;
	return sp_unix_name_bind(builder, *fd, message->name, err);
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
		return open_widowed(builder, file, message, fd, err);
	return open_single(builder, message, fd, err);
}

static int join(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixSocket *message = unpack(file, err);

	if (!message)
		return -EBADMSG;
	if (message->connector)
		return sp_unix_outside_connect(message, builder->fds[file->id], err);
	return sp_unix_send_all(builder, file, message,
	                        message->peer_file ? builder->fds[message->peer_file]
	                                           : builder->far_ends[file->id],
	                        err);
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
	if (message->type == SOCK_DGRAM && !message->peer_file && !message->peer_gone &&
	    message->peer_name.len)
		connect_outside(builder, message, fd);
	if (sp_socket_filter_attach(fd, &message->filter, err) < 0)
		return -err->code;
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
	else if (message->pending)
		snprintf(peer, sizeof(peer), "the file #%u, which has not accepted it",
		         message->pending);
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
		return sp_fail_damaged(err, "an impossible other end");
	return 0;
}

static int check_messages(const struct sp_checkpoint *checkpoint,
                          const Sealpoint__UnixSocket *message, struct sp_error *err)
{
	for (size_t i = 0; i < message->n_messages; i++) {
		const Sealpoint__UnixMessage *one = message->messages[i];

		if (sp_unix_name_check(&one->sender_name, err) < 0)
			return -err->code;
		for (size_t j = 0; j < one->n_files; j++) {
			const Sealpoint__OpenFile *carried =
			        sp_checkpoint_file(checkpoint, one->files[j]);

			if (!carried || carried->mapping_only)
				return sp_fail_damaged(err, "an impossible file in a message");
		}
	}
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
		return sp_fail_damaged(err, "an impossible unix socket");
	if ((message->name && sp_unix_name_check(&message->name->path, err) < 0) ||
	    sp_unix_name_check(&message->peer_name, err) < 0 ||
	    sp_socket_options_check(message->options, message->n_options, err) < 0)
		return -err->code;
	if (message->reset && (!message->peer_gone || message->type == SOCK_DGRAM))
		return sp_fail_damaged(err, "an impossible end of a connection");
	if (message->connector &&
	    (message->type == SOCK_DGRAM || !message->peer_name.len || message->n_messages ||
	     message->peer_file || message->peer_gone || message->pending))
		return sp_fail_damaged(err, "an impossible connection to outside");
	if (sp_socket_filter_check(&message->filter, err) < 0 ||
	    check_messages(checkpoint, message, err) < 0)
		return -err->code;
	return check_peer(checkpoint, file, message, err);
}

const struct sp_file_kind sp_kind_unix_socket = {
        .name = "unix_socket",
        .title = "unix socket",
        .apart = true,
        .claims = claims,
        .save = save,
        .look_inside = look_inside,
        .open = open_unix_socket,
        .join = join,
        .settle = settle,
        .describe = describe,
        .check = check,
};
