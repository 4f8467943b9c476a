/*
 * What waits to be read in a unix socket. It is looked at, never taken (MSG_PEEK), and sent again at
 * restore (unix_send.h). Descriptors that a message carries are duplicated by looking at it; they join the table
 * of open files.
 *
 * All but the first message are seen by moving the peek offset (SO_PEEK_OFF), which is put back at once.
 * Should sealpoint be killed in between, later calls with MSG_PEEK of that program on that socket see
 * what is behind the first message; reading is not affected.
 *
 * A message without content (a datagram of 0 bytes) behind another one is seen once in its life: if the
 * program has looked at it itself, or sealpoint before, it is not saved. So is one in a seqpacket socket whose
 * other end is closed: it cannot be told from the end.
 */
#ifndef SEALPOINT_KINDS_UNIX_QUEUE_H
#define SEALPOINT_KINDS_UNIX_QUEUE_H

#include "kinds/file_table.h"

#include "unix_socket.pb-c.h"

struct sp_unix_queue {
	struct sp_array messages; /* Sealpoint__UnixMessage *, in order */
	bool reset;               /* the other end was closed before it had read all (ECONNRESET) */
};

/*
 * That the other end was closed before it had read all is an error that the program will be told once, and that is
 * gone when somebody else is told. Of a stream it is told behind what waits, so a look does not touch it; of other
 * sockets before, so there is no look.
 */

/** Looks at the queue of a socket of this type, and adds what is in flight in it to the table. */
int sp_unix_queue_read(struct sp_file_table *table, int fd, int type, struct sp_unix_queue *queue,
                       struct sp_error *err);
void sp_unix_queue_release(struct sp_unix_queue *queue);

#endif
