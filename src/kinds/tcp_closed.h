/*
 * TCP sockets whose connection is over: they read what has arrived and was not read, then as at their end (0), and cannot
 * be written to. They have no address any more, and no other end.
 */
#ifndef SEALPOINT_KINDS_TCP_CLOSED_H
#define SEALPOINT_KINDS_TCP_CLOSED_H

#include "kinds/inet_socket.h"

/** Makes such a socket, in which these bytes wait to be read. Returns a descriptor or a negative errno. */
int sp_tcp_closed_make(const Sealpoint__InetSocket *socket, const ProtobufCBinaryData *unread,
                       struct sp_error *err);

#endif
