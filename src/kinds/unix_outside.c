/* Connecting to other programs again: see unix_outside.h. */
#include "kinds/unix_outside.h"

#include "kinds/guise.h"
#include "kinds/inherit.h"
#include "kinds/socket_options.h"
#include "kinds/unix_name.h"
#include "kinds/unix_queue.h"
#include "proc/file.h"

#include <string.h>
#include <sys/socket.h>

/* --- who connects --- */

int sp_unix_connector_save(pid_t pid, Sealpoint__SocketCredentials *connector, struct sp_error *err)
{
	sp_cleanup_free char *proc = sp_format("/proc/%d/task/%d", pid, pid);
	struct stat process;

	if (stat(proc, &process))
		return sp_fail_errno(err, errno, "cannot examine %s", proc);
	sealpoint__socket_credentials__init(connector);
	connector->pid = (uint32_t)pid;
	connector->uid = process.st_uid;
	connector->gid = process.st_gid;
	return 0;
}

struct connecting {
	int fd;
	const Sealpoint__SocketCredentials *connector;
	const struct sockaddr_un *to;
	socklen_t size;
};

static int connect_in_guise(void *context)
{
	const struct connecting *connecting = context;
	int rc = 0;

	sp_guise_put_on(connecting->connector->uid, connecting->connector->gid);
	if (connect(connecting->fd, (const struct sockaddr *)connecting->to, connecting->size))
		rc = -errno;
	sp_guise_take_off();
	return rc;
}

int sp_unix_connect_as(const Sealpoint__SocketCredentials *connector, int fd,
                       const struct sockaddr_un *to, socklen_t size)
{
	struct connecting connecting = {fd, connector, to, size};

	return sp_guise_run((pid_t)connector->pid, connect_in_guise, &connecting);
}

/* --- saving --- */

/*
 * Where somebody listens under the name that the other end has: fills in the address by which that is reached from any
 * directory, and returns its size. A relative path may lead to it from the program's directory. 0 if it cannot be
 * reached.
 */
static socklen_t find_listener(pid_t pid, const Sealpoint__UnixSocket *message,
                               struct sockaddr_un *address)
{
	const ProtobufCBinaryData *name = &message->peer_name;
	struct sp_unix_state state;
	sp_cleanup_free char *path = NULL;
	sp_cleanup_free char *directory = NULL;
	struct stat stat;

	if (!name->len || sp_unix_find_listener((int)message->type, name->data, name->len, &state))
		return 0;
	path = sp_format("%.*s", (int)name->len, (const char *)name->data);
	if (*path && *path != '/') {
		if (sp_proc_read_link(pid, "cwd", &directory, NULL))
			return 0;
		free(path);
		path = sp_format("%s/%.*s", directory, (int)name->len, (const char *)name->data);
	}
	if (!*path)
		return sp_unix_name_address(name, address);
	if (lstat(path, &stat) || (uint32_t)stat.st_ino != state.file_inode ||
	    strlen(path) > sizeof(address->sun_path))
		return 0;
	return sp_unix_name_address(&(ProtobufCBinaryData){strlen(path), (uint8_t *)path}, address);
}

static int refuse(const struct sp_unix_state *state, const Sealpoint__UnixSocket *message,
                  bool reachable, struct sp_error *err)
{
	char name[SP_UNIX_TEXT], holder[64];
	const char *remedy =
	        reachable ? ", or give --ext-unix-sk to connect it to that name again" : "";

	if (!state->peer)
		return sp_fail(err, SP_NOT_YET,
		               "it is connected to a listening socket that has not accepted it "
		               "yet; let that happen first%s",
		               remedy);
	sp_unix_name_text(&message->peer_name, name);
	sp_socket_holder(state->peer, holder, sizeof(holder));
	return sp_fail(err, ENOTSUP,
	               "its other end%s%s is held by %s, which is not being saved; let either "
	               "program close the connection first%s",
	               name[0] ? " at " : "", name, holder, remedy);
}

int sp_unix_outside_save(struct sp_file_saver *saver, const struct sp_open_file *file,
                         const struct sp_unix_state *state, Sealpoint__UnixSocket *message,
                         struct sp_unix_outside *outside, struct sp_error *err)
{
	socklen_t size = find_listener(file->pid, message, &outside->address);
	bool external = sp_peer_is_external(saver->options, file, state->peer);
	bool waiting = file->queue && file->queue->messages.count;

	if (size && !waiting && (external || saver->options->connect_outside)) {
		message->peer_name = sp_unix_name_bytes(&outside->address, size);
		message->connector = &outside->connector;
		return sp_unix_connector_save(file->pid, &outside->connector, err);
	}
	if (external) {
		message->peer_gone = true;
		return 0;
	}
	if (size && saver->options->connect_outside)
		return sp_fail(err, SP_NOT_YET,
		               "it is to be connected again, and what waits in it could not be "
		               "sent again by anybody; let the program read that first");
	return refuse(state, message, size > 0, err);
}

/* --- rebuilding --- */

int sp_unix_outside_connect(const Sealpoint__UnixSocket *message, int fd, struct sp_error *err)
{
	struct sockaddr_un address;
	socklen_t size = sp_unix_name_address(&message->peer_name, &address);
	char name[SP_UNIX_TEXT];
	int rc = sp_unix_connect_as(message->connector, fd, &address, size);

	if (!rc)
		return 0;
	sp_unix_name_text(&message->peer_name, name);
	return sp_fail_errno(
	        err, -rc,
	        "cannot connect to %s again, where another program has listened (start "
	        "that first)",
	        name);
}
