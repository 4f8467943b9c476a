/*
 * What the kernel knows about a unix socket and tells only through netlink (sock_diag(7)): its
 * other end, its queues, the inode that its path led to.
 */
#ifndef SEALPOINT_KINDS_UNIX_DIAG_H
#define SEALPOINT_KINDS_UNIX_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_error;

struct sp_unix_state {
	bool listening;
	bool connected;         /* has another end, alive or not */
	uint32_t peer;          /* its inode; 0: closed, or not accepted yet */
	unsigned shutdown;      /* 1: no more reading, 2: no more writing */
	uint32_t receive_queue; /* bytes that wait; of a listening socket, connections */
	uint32_t backlog;       /* of a listening socket */
	bool in_file_system;
	uint32_t file_inode; /* of the socket file that bind(2) made */
};

/** Looks up the socket with this inode in the network namespace that we are in. */
int sp_unix_query(uint64_t inode, struct sp_unix_state *state, struct sp_error *err);

/** "process 12 (dbus-daemon)", the first one that has a socket open, of whatever kind; "no process" if none has. */
void sp_socket_holder(uint32_t inode, char *text, size_t size);

#endif
