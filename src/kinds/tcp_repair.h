/*
 * A TCP connection that is saved and made again with TCP repair (TCP_REPAIR of tcp(7), since Linux 3.5): a
 * mode of a socket in which the kernel tells and takes sequence numbers, queues and what was
 * negotiated, connects without a packet, and closes without one.
 *
 * The connection has to be locked all the while (kinds/connection_lock.h). A socket that a program is
 * left with in this mode neither sends nor receives for it. So a dump is in it for no longer than a
 * handful of system calls, and does not leave it to the program to get out.
 */
#ifndef SEALPOINT_KINDS_TCP_REPAIR_H
#define SEALPOINT_KINDS_TCP_REPAIR_H

#include "kinds/inet_socket.h"

#include "tcp_socket.pb-c.h"

/** "established", "closed by the other end but not by the program"; for a TCP_* state. */
const char *sp_tcp_state_name(unsigned state);

/** Sets an option of TCP repair. "TCP repair: cannot WHAT" if that fails. */
int sp_tcp_repair_set(int fd, int option, int value, const char *what, struct sp_error *err);

/* --- dump --- */

/** The message of a connection, and what it refers to. */
struct sp_tcp_connection {
	Sealpoint__TcpConnection message;
	union sp_inet_address peer;
};

/** Whether a connection in this state can be saved. */
bool sp_tcp_state_is_known(unsigned state);
/** Whether the other end has said that it sends no more (its FIN has arrived). */
bool sp_tcp_has_heard_end(unsigned state);
/** Whether the program has said so. */
bool sp_tcp_has_said_end(unsigned state);
/** Reads the connection of a socket, which is used by nobody meanwhile, and stays as it is. */
int sp_tcp_connection_save(int fd, struct sp_tcp_connection *connection, struct sp_error *err);
/**
 * The same for a look, without repair mode and a lock: refuses what the other would, and tells addresses and
 * state; zeros stand for the contents of the queues.
 */
int sp_tcp_connection_look(int fd, struct sp_tcp_connection *connection, struct sp_error *err);
void sp_tcp_connection_release(struct sp_tcp_connection *connection);
#define sp_cleanup_tcp_connection sp_cleanup(sp_tcp_connection_release)
/** Puts the socket in repair mode for good: whoever closes it last, it closes without a packet. */
void sp_tcp_connection_silence(int fd);
/** Takes a socket out of repair mode, where a sealpoint that was killed has left it. True if it was. */
bool sp_tcp_connection_heal(int fd);

/**
 * Looks at what waits to be read, from its beginning, wherever the program's own looks have come to (SO_PEEK_OFF). The
 * bytes are the caller's to free.
 */
int sp_tcp_peek_received(int fd, ProtobufCBinaryData *bytes, struct sp_error *err);

/* --- restore --- */

/** Refuses what cannot be a connection. */
int sp_tcp_connection_check(const Sealpoint__InetSocket *socket,
                            const Sealpoint__TcpConnection *connection, struct sp_error *err);
/** Makes the connection on a new, unbound socket, and leaves that in repair mode. */
int sp_tcp_connection_restore(int fd, const Sealpoint__InetSocket *socket,
                              const Sealpoint__TcpConnection *connection, struct sp_error *err);
/**
 * Ends repair mode. The lock must be gone: this asks the other end how things are, or again for a
 * connection.
 */
int sp_tcp_connection_resume(int fd, const Sealpoint__InetSocket *socket,
                             const Sealpoint__TcpConnection *connection, struct sp_error *err);

#endif
