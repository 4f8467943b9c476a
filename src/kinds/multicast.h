/*
 * The multicast groups of a socket. No call lists them: but the kernel tells which groups anybody on this machine
 * is in (/proc/net/igmp, igmp6), and of each whether this socket is, and which sources it takes.
 */
#ifndef SEALPOINT_KINDS_MULTICAST_H
#define SEALPOINT_KINDS_MULTICAST_H

#include "base/array.h"

#include "udp.pb-c.h"

struct sp_error;

/** Adds a Sealpoint__MulticastGroup * for each, to be given to sp_multicast_release(). */
int sp_multicast_save(int fd, struct sp_array *groups, struct sp_error *err);
void sp_multicast_release(struct sp_array *groups);
/** Makes a new socket a member. */
int sp_multicast_join(int fd, const Sealpoint__MulticastGroup *group, struct sp_error *err);
int sp_multicast_check(const Sealpoint__MulticastGroup *group, struct sp_error *err);

#endif
