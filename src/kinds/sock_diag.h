/* Asking sock_diag(7) for sockets: one question, and each message of its answer to somebody who looks at it. */
#ifndef SEALPOINT_KINDS_SOCK_DIAG_H
#define SEALPOINT_KINDS_SOCK_DIAG_H

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdbool.h>
#include <stddef.h>

/** Looks at a message about a socket. Anything but 0 ends the answer, and is what sp_sock_diag() returns. */
typedef int sp_sock_diag_look(void *context, const struct nlmsghdr *message);

/**
 * Sends a request, whose header the caller has filled in but for NLM_F_REQUEST, and reads the answer. 0 if that was
 * all, or nothing but an acknowledgement; a negative errno, the kernel's own too.
 */
int sp_sock_diag(struct nlmsghdr *request, sp_sock_diag_look *look, void *context);

/** The attributes behind the `size` bytes of a message that each kind of socket has; NULL if it is shorter. */
const struct rtattr *sp_sock_diag_attributes(const struct nlmsghdr *message, size_t size,
                                             size_t *left);

#endif
