/*
 * What waited to be read in a unix socket is sent to it again: by its other end, by the socket whose name a
 * datagram tells, or by one that is made for it; in the guise of who had sent it, if the receiver asks for
 * that.
 */
#ifndef SEALPOINT_KINDS_UNIX_SEND_H
#define SEALPOINT_KINDS_UNIX_SEND_H

#include "kinds/kind.h"

#include "unix_socket.pb-c.h"

/**
 * Fills the queue of `file`, whose message is given. `far_end`: the other end of its connection, or -1.
 * Whatever the size of a send buffer.
 */
int sp_unix_send_all(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     const Sealpoint__UnixSocket *message, int far_end, struct sp_error *err);

#endif
