/*
 * Keys that the packets of a TCP socket are signed with (TCP_MD5SIG, RFC 2385). A socket does not tell them, sock_diag
 * does, to whoever may configure the network (CAP_NET_ADMIN), and of a socket that listens or is connected only.
 */
#ifndef SEALPOINT_KINDS_TCP_MD5_H
#define SEALPOINT_KINDS_TCP_MD5_H

#include "kinds/kind.h"

/** The keys as an image has them, in memory that the caller frees; none: no bytes. */
int sp_tcp_md5_save(int fd, ProtobufCBinaryData *keys, struct sp_error *err);
int sp_tcp_md5_apply(int fd, const ProtobufCBinaryData *keys, struct sp_error *err);
int sp_tcp_md5_check(const ProtobufCBinaryData *keys, struct sp_error *err);

#endif
