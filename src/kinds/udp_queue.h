/*
 * What waits to be read in a UDP or UDP-Lite socket. It is looked at, never taken (MSG_PEEK), and sent again at restore,
 * by packets that say that they come from the same senders (ip_packet.h). What cannot come again is lost, as the
 * network may lose it, and a warning tells: what came for a group or for all (multicast, broadcast), or for an address that
 * this machine has not any more.
 *
 * All but the first are seen by moving the peek offset, as in unix sockets, with the same consequences (unix_queue.h).
 * What came along is kept as far as the socket has it told: the address it came for, hops, class; the time is that of
 * the restore.
 */
#ifndef SEALPOINT_KINDS_UDP_QUEUE_H
#define SEALPOINT_KINDS_UDP_QUEUE_H

#include "kinds/inet_socket.h"

#include "udp.pb-c.h"

/** Adds what waits to an array of Sealpoint__UdpDatagram *, which sp_udp_queue_release() frees. */
int sp_udp_queue_read(int fd, struct sp_array *datagrams, struct sp_error *err);
void sp_udp_queue_release(struct sp_array *datagrams);
/** Fills the queue of a socket that is bound and not connected yet. Returns how many have come, or a negative errno. */
int sp_udp_queue_fill(int fd, const Sealpoint__Udp *message, struct sp_error *err);
int sp_udp_queue_check(const Sealpoint__Udp *message, struct sp_error *err);

#endif
