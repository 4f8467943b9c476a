/*
 * The filter that a program has attached to a socket (SO_ATTACH_FILTER): classic BPF, which the kernel
 * gives back as it was. One of extended BPF (SO_ATTACH_BPF) is a kernel object of its own, and refused.
 */
#ifndef SEALPOINT_KINDS_SOCKET_FILTER_H
#define SEALPOINT_KINDS_SOCKET_FILTER_H

#include <protobuf-c/protobuf-c.h>

struct sp_error;

/** Its instructions, in memory that is the caller's to free; none if there is no filter. */
int sp_socket_filter_save(int fd, ProtobufCBinaryData *filter, struct sp_error *err);
/** Before SO_LOCK_FILTER, which is an option like others, is set. */
int sp_socket_filter_attach(int fd, const ProtobufCBinaryData *filter, struct sp_error *err);
int sp_socket_filter_check(const ProtobufCBinaryData *filter, struct sp_error *err);
/** For kinds that cannot have one again: what is in their queues has passed it already. */
int sp_socket_filter_refuse(int fd, struct sp_error *err);

#endif
