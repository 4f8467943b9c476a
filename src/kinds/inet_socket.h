/* What TCP and UDP sockets have in common: family, options, the address they are bound to. */
#ifndef SEALPOINT_KINDS_INET_SOCKET_H
#define SEALPOINT_KINDS_INET_SOCKET_H

#include "kinds/kind.h"
#include "kinds/socket_options.h"

#include <netinet/in.h>

union sp_inet_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

#define SP_INET_TEXT 80 /* room for "[address%scope]:port" */

/** True for an IPv4 or IPv6 socket of this type and protocol. */
bool sp_inet_socket_is(const struct sp_open_file *file, int type, int protocol);

/** The message of a socket and what it refers to. */
struct sp_inet_socket {
	Sealpoint__InetSocket message;
	struct sp_socket_options options;
	union sp_inet_address local;
};

int sp_inet_socket_save(int fd, struct sp_inet_socket *socket, struct sp_error *err);
/**
 * Leaves out what belongs to a connection that is over: its address, whose port an accepted socket
 * shares with its listener, and options that nothing is left to obey.
 */
void sp_inet_socket_strip(struct sp_inet_socket *socket);
void sp_inet_socket_release(struct sp_inet_socket *socket);
#define sp_cleanup_inet_socket sp_cleanup(sp_inet_socket_release)

/** Makes the socket with its options, bound as it was. Returns a descriptor or a negative errno. */
int sp_inet_socket_make(const Sealpoint__InetSocket *message, struct sp_error *err);
/** The two halves of it. */
int sp_inet_socket_make_unbound(const Sealpoint__InetSocket *message, struct sp_error *err);
int sp_inet_socket_bind(int fd, const Sealpoint__InetSocket *message, struct sp_error *err);
int sp_inet_socket_check(const Sealpoint__InetSocket *message, int type, struct sp_error *err);

/** True if the bytes are an address of the family. */
bool sp_inet_address_valid(const ProtobufCBinaryData *bytes, uint32_t family);
/** "10.0.0.1:80" or "[fe80::1%2]:80". */
void sp_inet_address_text(const void *address, char text[SP_INET_TEXT]);
/** Whether an IPv4 packet carries it: by an IPv6 socket IPv4 can be spoken, too. */
bool sp_inet_address_is_v4(const union sp_inet_address *address);
/** The bytes of an address, as a message holds them: no copy. */
ProtobufCBinaryData sp_inet_address_bytes(union sp_inet_address *address);

#endif
