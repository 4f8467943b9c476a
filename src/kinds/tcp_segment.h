/*
 * A TCP segment that a restore hands to its own kernel, as if the other end of a connection had sent
 * it: TCP repair can say what has arrived, but not that the other end has closed its direction, or that
 * it has seen us close ours. The segment leaves through a raw socket, for an address of this machine, so
 * it never gets to a wire.
 */
#ifndef SEALPOINT_KINDS_TCP_SEGMENT_H
#define SEALPOINT_KINDS_TCP_SEGMENT_H

#include "kinds/inet_socket.h"

struct sp_tcp_segment {
	union sp_inet_address from, to;
	uint32_t sequence, acknowledged;
	uint16_t window;
	bool fin;
};

/** Sends it with SP_CONNECTION_MARK, which passes the lock. The kernel has it when this returns. */
int sp_tcp_segment_send(const struct sp_tcp_segment *segment, struct sp_error *err);

#endif
