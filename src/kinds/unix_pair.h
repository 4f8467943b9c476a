/*
 * The two ends of a connection between unix sockets, made anew in one go: as a pair, or, where one was accepted and
 * has the name of the socket that listened, by one that listens for just this. Each end tells of the process
 * that has made the other one as before (SO_PEERCRED).
 */
#ifndef SEALPOINT_KINDS_UNIX_PAIR_H
#define SEALPOINT_KINDS_UNIX_PAIR_H

#include "kinds/kind.h"

#include "unix_socket.pb-c.h"

/**
 * Fills in pair[0], the end of `message`, and pair[1], that of `other`, which is NULL if it is closed. Both have their
 * names.
 */
int sp_unix_pair_make(struct sp_file_builder *builder, const Sealpoint__UnixSocket *message,
                      const Sealpoint__UnixSocket *other, int pair[2], struct sp_error *err);

#endif
