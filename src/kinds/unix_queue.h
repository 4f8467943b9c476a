/*
 * What waits to be read in a unix socket. It is looked at, never taken (MSG_PEEK), and sent again
 * from the other end.
 *
 * Of several messages all but the first are seen by moving the peek offset (SO_PEEK_OFF), which is
 * put back at once. Should sealpoint be killed in between, later calls with MSG_PEEK of that
 * program on that socket see what is behind the first message; reading is not affected. Messages
 * without content (a datagram of 0 bytes) cannot be told from an empty queue and are not saved, nor
 * are the credentials that a message carries.
 */
#ifndef SEALPOINT_KINDS_UNIX_QUEUE_H
#define SEALPOINT_KINDS_UNIX_QUEUE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct sp_error;

/** Messages in order; of a stream socket, one with all its bytes. */
struct sp_unix_queue {
	ProtobufCBinaryData *messages;
	size_t count;
};

/**
 * Copies the queue of a socket of this type. Refuses descriptors in flight, and, unless the sender
 * is `known`, datagrams that tell their sender's name.
 */
int sp_unix_queue_save(int fd, int type, bool known, struct sp_unix_queue *queue,
                       struct sp_error *err);
void sp_unix_queue_release(struct sp_unix_queue *queue);
#define sp_cleanup_unix_queue sp_cleanup(sp_unix_queue_release)

/** Sends the messages from `fd`, a connected socket, whatever the size of its send buffer. */
int sp_unix_queue_fill(int fd, const ProtobufCBinaryData *messages, size_t count,
                       struct sp_error *err);

#endif
