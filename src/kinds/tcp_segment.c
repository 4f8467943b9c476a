/* Making a segment that says that it comes from somebody else: see tcp_segment.h. */
#include "kinds/tcp_segment.h"

#include "kinds/connection_lock.h"
#include "kinds/ip_packet.h"

#include <netinet/tcp.h>
#include <stddef.h>

#define HOPS 64

int sp_tcp_segment_send(const struct sp_tcp_segment *segment, struct sp_error *err)
{
	struct tcphdr header = {
	        .source = segment->from.v4.sin_port, /* at the same place in both */
	        .dest = segment->to.v4.sin_port,
	        .seq = htonl(segment->sequence),
	        .ack_seq = htonl(segment->acknowledged),
	        .doff = sizeof(header) / 4,
	        .ack = 1,
	        .fin = segment->fin,
	        .window = htons(segment->window),
	};
	const struct sp_ip_packet packet = {
	        .from = segment->from,
	        .to = segment->to,
	        .protocol = IPPROTO_TCP,
	        .hops = HOPS,
	        .mark = SP_CONNECTION_MARK,
	        .payload = &header,
	        .size = sizeof(header),
	        .checksum_place = offsetof(struct tcphdr, check),
	};

	return sp_ip_packet_send(&packet, err);
}
