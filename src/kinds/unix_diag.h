/*
 * What the kernel knows about a unix socket and tells only through netlink (sock_diag(7)): its
 * other end, its queues, the inode that its path led to.
 */
#ifndef SEALPOINT_KINDS_UNIX_DIAG_H
#define SEALPOINT_KINDS_UNIX_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_array;
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
	char name[108];      /* as in sun_path; asked for by sp_unix_find_listener() alone */
	size_t name_size;
	struct sp_array *clients; /* uint32_t: see sp_unix_query_clients() */
};

/** Looks up the socket with this inode in the network namespace that we are in. */
int sp_unix_query(uint64_t inode, struct sp_unix_state *state, struct sp_error *err);

/** Looks for one of this type that listens under a name (sun_path, without a final NUL). 0, or a negative errno. */
int sp_unix_find_listener(int type, const void *name, size_t size, struct sp_unix_state *state);

/**
 * Adds the inodes of those that have connected to a listening socket and are not accepted yet, in their order: 0
 * for one that is closed again.
 */
int sp_unix_query_clients(uint64_t inode, struct sp_array *clients, struct sp_error *err);

/** "process 12 (dbus-daemon)", the first one that has a socket open, of whatever kind; "no process" if none has. */
void sp_socket_holder(uint32_t inode, char *text, size_t size);

#endif
