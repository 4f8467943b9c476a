/*
 * A packet that a restore hands to its own kernel, as if somebody else had sent it. It leaves through a raw socket,
 * for an address of this machine, so it never gets to a wire.
 */
#ifndef SEALPOINT_KINDS_IP_PACKET_H
#define SEALPOINT_KINDS_IP_PACKET_H

#include "kinds/inet_socket.h"

struct sp_ip_packet {
	union sp_inet_address from,
	        to; /* both of one family; IPv4 also as an IPv6 socket tells it */
	uint8_t protocol;
	uint8_t hops;  /* that are left: TTL, or hop limit */
	uint8_t class; /* TOS, or traffic class */
	uint32_t mark; /* SO_MARK; 0: none */
	void *payload; /* with its own header */
	size_t size;
	size_t checksum_place; /* in that header: it is filled in here */
};

/** Sends it. What is not for an address of this machine is refused (EADDRNOTAVAIL). */
int sp_ip_packet_send(const struct sp_ip_packet *packet, struct sp_error *err);

#endif
