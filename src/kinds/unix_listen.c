/*
 * Listening unix sockets, stream and seqpacket: name, backlog, options. Connections that wait to be
 * accepted are established ones, and are refused.
 *
 * Who connects can ask for the credentials of the one who listens (SO_PEERCRED), and these are
 * taken when listen(2) is called. So sealpoint listens at once, that nobody finds the door closed,
 * and the restored process calls listen(2) again.
 */
#include "kinds/registry.h"

#include "kinds/socket_filter.h"
#include "kinds/socket_options.h"
#include "kinds/unix_name.h"

#include "unix_listen.pb-c.h"

#include <sys/socket.h>
#include <sys/syscall.h>

static bool claims(const struct sp_open_file *file)
{
	return S_ISSOCK(file->stat.st_mode) && sp_socket_number(file->fd, SO_DOMAIN) == AF_UNIX &&
	       sp_socket_number(file->fd, SO_ACCEPTCONN) == 1;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__UnixListen message = SEALPOINT__UNIX_LISTEN__INIT;
	sp_cleanup_socket_options struct sp_socket_options options = {0};
	sp_cleanup_unix_name struct sp_unix_name name = {0};
	struct sp_unix_state state;
	char text[SP_UNIX_TEXT];

	if (sp_unix_query(file->stat.st_ino, &state, err) < 0 ||
	    sp_unix_name_save(file, &state, &name, err) < 0 ||
	    sp_socket_filter_refuse(file->fd, err) < 0 ||
	    sp_socket_options_save(file->fd, &options, err) < 0)
		return -err->code;
	if (state.receive_queue) {
		sp_unix_name_text(&name.message.path, text);
		return sp_fail(err, ENOTSUP,
		               "%u connections to %s wait for the program to accept them; let it "
		               "do so first",
		               state.receive_queue, text);
	}
	message.type = (uint32_t)sp_socket_number(file->fd, SO_TYPE);
	message.name = &name.message;
	message.backlog = state.backlog;
	message.options = options.list;
	message.n_options = options.count;
	sp_blob_pack(body, &message.base);
	return 0;
}

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
	if (sp_socket_options_apply(made, message->options, message->n_options, err) < 0 ||
	    sp_unix_name_bind(builder, made, message->name, err) < 0)
		return -err->code;
	if (listen(made, (int)message->backlog) < 0)
		return sp_fail_errno(err, errno, "cannot listen");
	*fd = sp_steal_fd(&made);
	return 0;
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixListen *message =
	        sp_blob_unpack(file->body, &sealpoint__unix_listen__descriptor, err);

	if (!message)
		return -EBADMSG;
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
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__UnixListen *message =
	        sp_blob_unpack(file->body, &sealpoint__unix_listen__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (!message->name || (message->type != SOCK_STREAM && message->type != SOCK_SEQPACKET))
		return sp_fail(err, EBADMSG, "the image gives an impossible listening socket");
	if (sp_unix_name_check(&message->name->path, err) < 0)
		return -err->code;
	return sp_socket_options_check(message->options, message->n_options, err);
}

const struct sp_file_kind sp_kind_unix_listen = {
        .name = "unix_listen",
        .title = "listening unix socket",
        .claims = claims,
        .save = save,
        .open = open_unix_listen,
        .settle = settle,
        .describe = describe,
        .check = check,
};
