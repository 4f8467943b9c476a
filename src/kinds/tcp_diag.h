/* Asking the kernel for a connection by its addresses (sock_diag(7)), whoever has it. */
#ifndef SEALPOINT_KINDS_TCP_DIAG_H
#define SEALPOINT_KINDS_TCP_DIAG_H

#include "kinds/inet_socket.h"

/**
 * The other end of a socket's connection; also of one that is only being opened, which getpeername(2)
 * hides.
 */
int sp_tcp_get_peer(int fd, union sp_inet_address *peer, struct sp_error *err);

/**
 * Makes way for a connection that is to be made with these addresses: what is left here of an earlier one
 * that nobody has a descriptor of any more (waiting for stray packets, or for its last ones to be
 * confirmed) is taken away. EADDRINUSE, with its name, if a process has it. The connection is locked,
 * so nobody hears of this.
 */
int sp_tcp_make_way(const union sp_inet_address *local, const union sp_inet_address *peer,
                    struct sp_error *err);

#endif
