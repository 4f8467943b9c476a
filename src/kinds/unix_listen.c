/*
 * Listening unix sockets, stream and seqpacket: name, backlog, options. Connections that wait to be
 * accepted, of which we have the other ends, are made again; others are waited for.
 *
 * Who connects can ask for the credentials of the one who listens (SO_PEERCRED), and these are
 * taken when listen(2) is called. So sealpoint listens at once, that nobody finds the door closed,
 * and the restored process calls listen(2) again.
 */
#include "kinds/registry.h"

#include "kinds/file_table.h"
#include "kinds/socket_filter.h"
#include "kinds/socket_options.h"
#include "kinds/unix_name.h"
#include "kinds/unix_outside.h"

#include "unix_listen.pb-c.h"
#include "unix_socket.pb-c.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static bool claims(const struct sp_open_file *file)
{
	return S_ISSOCK(file->stat.st_mode) && file->socket.domain == AF_UNIX &&
	       sp_socket_number(file->fd, SO_ACCEPTCONN) == 1;
}

/* All that saving a listening socket refers to. */
struct saving {
	Sealpoint__UnixListen message;
	struct sp_socket_options options;
	struct sp_unix_name name;
	struct sp_array clients;    /* Sealpoint__UnixClient */
	struct sp_array connectors; /* Sealpoint__SocketCredentials */
	struct sp_array pointers;   /* Sealpoint__UnixClient * */
};

static void release_saving(struct saving *saving)
{
	sp_socket_options_release(&saving->options);
	sp_unix_name_release(&saving->name);
	sp_array_release(&saving->clients);
	sp_array_release(&saving->connectors);
	sp_array_release(&saving->pointers);
}

/*
 * What such a client has sent already cannot be seen by anybody before it is accepted. Who it is that has
 * connected only the other end will be told: its process is taken for that.
 */
static int save_client(struct sp_file_saver *saver, const struct sp_open_file *file, uint32_t inode,
                       struct saving *saving, struct sp_error *err)
{
	const struct sp_open_file *client = sp_file_table_find_socket(saver->table, file, inode);
	Sealpoint__UnixClient *message = sp_array_push(&saving->clients);
	Sealpoint__SocketCredentials *connector = sp_array_push(&saving->connectors);
	char name[SP_UNIX_TEXT], holder[64] = "nobody any more";
	const ProtobufCBinaryData *path = &saving->name.message.path;
	bool reachable = saving->name.message.linked || !path->data[0];
	int sent = 0;

	sealpoint__unix_client__init(message);
	sealpoint__socket_credentials__init(connector);
	if (client && reachable && !ioctl(client->fd, SIOCOUTQ, &sent) && !sent) {
		message->file = client->id;
		return sp_unix_connector_save(client->pid, connector, err);
	}
	if (inode)
		sp_socket_holder(inode, holder, sizeof(holder));
	sp_unix_name_text(path, name);
	return sp_fail(
	        err, SP_NOT_YET,
	        "a connection to %s, made by %s%s, waits for the program to accept it; let it do "
	        "so first",
	        name, holder, sent ? ", which has sent something already," : "");
}

static int save_clients(struct sp_file_saver *saver, const struct sp_open_file *file,
                        struct saving *saving, struct sp_error *err)
{
	sp_cleanup_array struct sp_array inodes = SP_ARRAY_OF(uint32_t);
	int rc = sp_unix_query_clients(file->stat.st_ino, &inodes, err);

	for (size_t i = 0; i < inodes.count && !rc; i++)
		rc = save_client(saver, file, *(uint32_t *)sp_array_at(&inodes, i), saving, err);
	for (size_t i = 0; i < saving->clients.count && !rc; i++) {
		Sealpoint__UnixClient *client = sp_array_at(&saving->clients, i);

		client->connector = sp_array_at(&saving->connectors, i);
		*(Sealpoint__UnixClient **)sp_array_push(&saving->pointers) = client;
	}
	saving->message.clients = saving->pointers.items;
	saving->message.n_clients = saving->pointers.count;
	return rc;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	struct saving saving sp_cleanup(release_saving) = {
	        .message = SEALPOINT__UNIX_LISTEN__INIT,
	        .clients = SP_ARRAY_OF(Sealpoint__UnixClient),
	        .connectors = SP_ARRAY_OF(Sealpoint__SocketCredentials),
	        .pointers = SP_ARRAY_OF(Sealpoint__UnixClient *),
	};
	struct sp_unix_state state;

	if (sp_unix_query(file->stat.st_ino, &state, err) < 0 ||
	    sp_unix_name_save(file, &state, &saving.name, err) < 0 ||
	    sp_socket_filter_refuse(file->fd, err) < 0 ||
	    sp_socket_options_save(file->fd, &saving.options, err) < 0 ||
	    save_clients(saver, file, &saving, err) < 0)
		return -err->code;
	saving.message.type = (uint32_t)sp_socket_number(file->fd, SO_TYPE);
	saving.message.name = &saving.name.message;
	saving.message.backlog = state.backlog;
	saving.message.options = saving.options.list;
	saving.message.n_options = saving.options.count;
	sp_blob_pack(body, &saving.message.base);
	return 0;
}

/* --- rebuilding --- */

static int open_unix_listen(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                            int *fd, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixListen *message =
	        sp_blob_unpack(file->body, &sealpoint__unix_listen__descriptor, err);
	sp_cleanup_close int made = -1;

	if (!message)
		return -EBADMSG;
	made = socket(AF_UNIX, (int)message->type | SOCK_CLOEXEC, 0);
	if (made < 0)
		return sp_fail_errno(err, errno, "cannot make a socket");
	if (sp_socket_options_apply(made, message->options, message->n_options, err) < 0)
		return -err->code;
	*fd = sp_steal_fd(&made);
	return 0;
}

static int connect_clients(struct sp_file_builder *builder, const Sealpoint__UnixListen *message,
                           struct sp_error *err)
{
	struct sockaddr_un to;
	socklen_t size;

	if (message->n_clients && sp_unix_name_destination(message->name, &to, &size, err))
		return -err->code;
	for (size_t i = 0; i < message->n_clients; i++) {
		int rc = sp_unix_connect_as(message->clients[i]->connector,
		                            builder->fds[message->clients[i]->file], &to, size);

		if (rc)
			return sp_fail_errno(err, -rc,
			                     "cannot connect again who waits to be accepted");
	}
	return 0;
}

/* Behind the making of connections, which may have taken the name for a moment. */
static int join(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixListen *message =
	        sp_blob_unpack(file->body, &sealpoint__unix_listen__descriptor, err);
	int fd = builder->fds[file->id];

	if (!message)
		return -EBADMSG;
	if (sp_unix_name_bind(builder, fd, message->name, err) < 0)
		return -err->code;
	if (listen(fd, (int)message->backlog) < 0)
		return sp_fail_errno(err, errno, "cannot listen");
	return connect_clients(builder, message, err);
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixListen *message =
	        sp_blob_unpack(file->body, &sealpoint__unix_listen__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (builder->numbers[file->id] < 0)
		return 0; /* in flight: nobody is known who listens */
	sp_batch_begin(builder->remote);
	return sp_remote_call(builder->remote, NULL, err, "listen on a unix socket", SYS_listen,
	                      (uint64_t)builder->numbers[file->id], message->backlog, 0, 0, 0, 0);
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__UnixListen *message =
	        sp_blob_unpack(body, &sealpoint__unix_listen__descriptor, NULL);
	char name[SP_UNIX_TEXT];

	if (!message || !message->name)
		return;
	sp_unix_name_text(&message->name->path, name);
	snprintf(text, size, "%s, backlog %u", name, message->backlog);
	if (message->n_clients)
		snprintf(text, size, "%s, backlog %u, %zu to be accepted", name, message->backlog,
		         message->n_clients);
}

/* Each must say that it waits here. */
static int check_clients(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                         const Sealpoint__UnixListen *message, struct sp_error *err)
{
	for (size_t i = 0; i < message->n_clients; i++) {
		const Sealpoint__OpenFile *client =
		        sp_checkpoint_file(checkpoint, message->clients[i]->file);
		sp_cleanup_message Sealpoint__UnixSocket *socket = NULL;

		if (client && !strcmp(client->kind, sp_kind_unix_socket.name))
			socket = sp_blob_unpack(client->body, &sealpoint__unix_socket__descriptor,
			                        NULL);
		if (!socket || socket->pending != file->id || !message->clients[i]->connector)
			return sp_fail_damaged(err, "an impossible client");
	}
	return 0;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixListen *message =
	        sp_blob_unpack(file->body, &sealpoint__unix_listen__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (!message->name || (message->type != SOCK_STREAM && message->type != SOCK_SEQPACKET))
		return sp_fail_damaged(err, "an impossible listening socket");
	if (sp_unix_name_check(&message->name->path, err) < 0)
		return -err->code;
	if (sp_socket_options_check(message->options, message->n_options, err) < 0)
		return -err->code;
	return check_clients(checkpoint, file, message, err);
}

const struct sp_file_kind sp_kind_unix_listen = {
        .name = "unix_listen",
        .title = "listening unix socket",
        .claims = claims,
        .save = save,
        .open = open_unix_listen,
        .join = join,
        .settle = settle,
        .describe = describe,
        .check = check,
};
