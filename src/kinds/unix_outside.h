/*
 * Connections of unix sockets to programs that are not saved along. The two ends of one cannot be parted and put
 * together again: the other program is told that ours has gone. Where it listens at a name, and the user says that it
 * will do (--ext-unix-sk), a restore connects to that name again, as a client does whose server was restarted. Of a peer
 * that belongs to somebody else (kinds/inherit.h) nothing is refused: if it cannot be connected again it is lost.
 */
#ifndef SEALPOINT_KINDS_UNIX_OUTSIDE_H
#define SEALPOINT_KINDS_UNIX_OUTSIDE_H

#include "kinds/kind.h"
#include "kinds/unix_diag.h"

#include "unix_socket.pb-c.h"

#include <sys/un.h>

/** What a message refers to that has been saved so. */
struct sp_unix_outside {
	struct sockaddr_un address;
	Sealpoint__SocketCredentials connector;
};

/** Fills in the message of a socket whose other end is outside, or refuses by name. */
int sp_unix_outside_save(struct sp_file_saver *saver, const struct sp_open_file *file,
                         const struct sp_unix_state *state, Sealpoint__UnixSocket *message,
                         struct sp_unix_outside *outside, struct sp_error *err);
/** Connects a new socket again. */
int sp_unix_outside_connect(const Sealpoint__UnixSocket *message, int fd, struct sp_error *err);

/** Who has connected, if that was this process: what the one who accepts is told (SO_PEERCRED). */
int sp_unix_connector_save(pid_t pid, Sealpoint__SocketCredentials *connector,
                           struct sp_error *err);
/** Connects in the guise of it. Returns 0 or a negative errno. */
int sp_unix_connect_as(const Sealpoint__SocketCredentials *connector, int fd,
                       const struct sockaddr_un *to, socklen_t size);

#endif
