/* Making both ends of a connection: see unix_pair.h. */
#include "kinds/unix_pair.h"

#include "kinds/guise.h"
#include "kinds/unix_diag.h"
#include "kinds/unix_name.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct maker {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* A connection while it is made. The side that connects is `client`, the other one was accepted. */
struct making {
	int type;
	struct maker client_is, server_is;
	struct sockaddr_un name; /* of the accepted end */
	socklen_t name_size;
	int listener, client, server;
};

static struct maker maker_of(const Sealpoint__SocketCredentials *who)
{
	struct maker self = {getpid(), geteuid(), getegid()};

	return who ? (struct maker){(pid_t)who->pid, who->uid, who->gid} : self;
}

/* --- a pair --- */

static int make_pair(void *context)
{
	struct making *making = context;
	int pair[2], rc = 0;

	sp_guise_put_on(making->server_is.uid, making->server_is.gid);
	if (socketpair(AF_UNIX, making->type | SOCK_CLOEXEC, 0, pair))
		rc = -errno;
	sp_guise_take_off();
	if (rc)
		return rc;
	making->server = pair[0];
	making->client = pair[1];
	return 0;
}

/* --- by a listening socket --- */

static int connect_client(void *context)
{
	struct making *making = context;
	struct sockaddr_un name;
	socklen_t size = sizeof(name);
	int rc = 0;

	if (getsockname(making->listener, (struct sockaddr *)&name, &size))
		return -errno;
	sp_guise_put_on(making->client_is.uid, making->client_is.gid);
	making->client = socket(AF_UNIX, making->type | SOCK_CLOEXEC, 0);
	if (making->client < 0 || connect(making->client, (struct sockaddr *)&name, size))
		rc = -errno;
	sp_guise_take_off();
	return rc;
}

static int bind_listener(struct making *making)
{
	if (making->name.sun_path[0])
		return sp_unix_name_bind_alone(making->listener, &making->name, making->name_size);
	if (bind(making->listener, (struct sockaddr *)&making->name, making->name_size))
		return -errno;
	return 0;
}

/* In the guise of the one who had listened, and in files of its own. */
static int listen_and_connect(void *context)
{
	struct making *making = context;
	int rc;

	making->client = making->server = -1;
	making->listener = socket(AF_UNIX, making->type | SOCK_CLOEXEC, 0);
	if (making->listener < 0)
		return -errno;
	rc = bind_listener(making);
	if (rc)
		return rc;
	sp_guise_put_on(making->server_is.uid, making->server_is.gid);
	if (listen(making->listener, 1))
		rc = -errno;
	sp_guise_take_off();
	if (!rc && making->client_is.pid == making->server_is.pid)
		rc = connect_client(making);
	else if (!rc)
		rc = sp_guise_run(making->client_is.pid, connect_client, making);
	if (rc)
		return rc;
	making->server = accept4(making->listener, NULL, NULL, SOCK_CLOEXEC);
	return making->server < 0 ? -errno : 0;
}

static void close_ends(const struct making *making)
{
	if (making->server >= 0)
		close(making->server);
	if (making->client >= 0)
		close(making->client);
}

/* --- which of the two --- */

static bool has_listeners_name(const struct sp_file_builder *builder,
                               const Sealpoint__UnixSocket *message)
{
	return message->name &&
	       (!message->name->linked || sp_unix_name_is_listened_to(builder, message->name));
}

/*
 * Was `other` accepted? Who listened has had a name. If both ends have one, the other may have been bound as well, to a
 * file of its own.
 */
static bool is_other_accepted(const struct sp_file_builder *builder,
                              const Sealpoint__UnixSocket *message,
                              const Sealpoint__UnixSocket *other)
{
	if (!other || !other->name)
		return false;
	return !message->name ||
	       (!has_listeners_name(builder, message) && has_listeners_name(builder, other));
}

/* That nobody else has come in between, which only an abstract name lets happen. */
static int check_peers(const struct making *making)
{
	struct sp_unix_state state;
	struct stat server, client;

	if (fstat(making->server, &server) || fstat(making->client, &client) ||
	    sp_unix_query(server.st_ino, &state, NULL))
		return -EIO;
	return state.peer == (uint32_t)client.st_ino ? 0 : -EADDRINUSE;
}

static int make(struct making *making, bool named, struct sp_error *err)
{
	int rc;

	if (named) {
		rc = sp_guise_run(making->server_is.pid, listen_and_connect, making);
		if (!rc)
			rc = check_peers(making);
		if (making->listener >= 0)
			close(making->listener);
		if (!rc)
			return 0;
		close_ends(making);
	}
	rc = sp_guise_run(making->server_is.pid, make_pair, making);
	return rc ? sp_fail_errno(err, -rc, "cannot make a pair of sockets") : 0;
}

/* What was accepted has its name from the making, or goes without if another program has that by now. */
static int name_accepted(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message,
                         int fd)
{
	struct sockaddr_un now;
	socklen_t size = sizeof(now);
	char text[SP_UNIX_TEXT];
	int rc;

	if (!getsockname(fd, (struct sockaddr *)&now, &size) && size > sizeof(sa_family_t))
		return 0;
	rc = sp_unix_name_bind_apart(fd, &message->name->path);
	if (!rc)
		return 0;
	sp_unix_name_text(&message->name->path, text);
	sp_warn(builder->log, "an end of a unix connection will not have the name %s any more (%s)",
	        text, strerror(-rc));
	return 0;
}

int sp_unix_pair_make(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message,
                      const Sealpoint__UnixSocket *other, int pair[2], struct sp_error *err)
{
	bool swapped = is_other_accepted(builder, message, other);
	const Sealpoint__UnixSocket *server = swapped ? other : message;
	const Sealpoint__UnixSocket *client = swapped ? message : other;
	bool accepted = message->type != SOCK_DGRAM && server->name;
	struct making making = {
	        .type = (int)message->type,
	        .client_is = maker_of(server->peer_credentials), /* each end tells of the other */
	        .server_is = maker_of(client ? client->peer_credentials : server->peer_credentials),
	        .name.sun_family = AF_UNIX,
	        .listener = -1,
	};
	int rc;

	if (server->name)
		making.name_size = sp_unix_name_address(&server->name->path, &making.name);
	if (make(&making, accepted, err))
		return -err->code;
	rc = accepted ? name_accepted(builder, server, making.server)
	              : sp_unix_name_bind(builder, making.server, server->name, err);
	if (!rc && client)
		rc = sp_unix_name_bind(builder, making.client, client->name, err);
	if (rc) {
		close_ends(&making);
		return rc;
	}
	pair[swapped] = making.server;
	pair[!swapped] = making.client;
	return 0;
}
