/*
 * The lock on TCP connections: while a connection is saved, while its program is gone, and while it is
 * built anew, the kernel drops every packet of it, in both directions. Its other end sees a network that
 * is quiet, and goes on by itself when it is not any more; a kernel that does not know the connection
 * never gets to answer with a reset.
 *
 * A lock is a table of nftables, which holds the addresses as sets. There are two of them:
 *
 *   - one while sealpoint works. It is owned by a socket (`flags owner`) of a process that ends with
 *     ours (kinds/nft_process.h). Then the kernel takes it away: kill -9 leaves none behind.
 *   - one from the end of a dump that has ended the program to its restore. It is named after the
 *     checkpoint's id, and stands by itself.
 *
 * Packets with SP_CONNECTION_MARK pass: those that a restore makes itself (kinds/tcp_segment.h).
 */
#ifndef SEALPOINT_KINDS_CONNECTION_LOCK_H
#define SEALPOINT_KINDS_CONNECTION_LOCK_H

#include "image/checkpoint.h"
#include "kinds/inet_socket.h"
#include "kinds/nft_process.h"

#define SP_CONNECTION_MARK 0x5ea15ea1 /* SO_MARK */

struct sp_connection {
	int fd; /* the caller's, of our end */
	union sp_inet_address local, peer;
	void (*silence)(int fd); /* dump: has it closed without a word by whoever closes it last */
};

struct sp_connection_lock {
	struct sp_array connections; /* struct sp_connection */
	bool in_image; /* restore: the checkpoint has some, wanted or not (--tcp-close) */
	struct sp_nft_process owner; /* of the table while we work */
	char *unlock;                /* the command that removes that; NULL: there is none */
	bool unlocking;              /* the owner has been told to */
};

#define SP_CONNECTION_LOCK_NONE                                   \
	((struct sp_connection_lock){                             \
	        .connections = SP_ARRAY_OF(struct sp_connection), \
	})

/** Notes a connection that is to be locked. */
void sp_connection_lock_add(struct sp_connection_lock *lock,
                            const struct sp_connection *connection);
/** Gets ready for taking it: what can be done of that before a freeze. */
int sp_connection_lock_prepare(struct sp_connection_lock *lock, struct sp_error *err);
/** Locks what was noted, if anything was, until it is released, or this process ends. */
int sp_connection_lock_take(struct sp_connection_lock *lock, struct sp_error *err);
/** Begins to end the lock, and does not wait for that. */
void sp_connection_lock_begin_lift(struct sp_connection_lock *lock);
/** Ends the lock, at once; does nothing if there is none. */
void sp_connection_lock_lift(struct sp_connection_lock *lock);
/** Ends it if it has not ended, and frees what belongs to it, which may take some milliseconds. */
void sp_connection_lock_release(struct sp_connection_lock *lock);

/** Locks what was noted until sp_connection_unlock() with this id. */
int sp_connection_lock_keep(const struct sp_connection_lock *lock,
                            const uint8_t id[SP_CHECKPOINT_ID_SIZE], struct sp_error *err);
/** Whether the connections of the checkpoint with this id are locked here. */
bool sp_connection_is_locked(const uint8_t id[SP_CHECKPOINT_ID_SIZE]);
/** Ends that lock. ENOENT if there is none. */
int sp_connection_unlock(const uint8_t id[SP_CHECKPOINT_ID_SIZE], struct sp_error *err);

/** The program has been ended, and our descriptors are the last: has all that was noted closed without a word. */
void sp_connections_silence(const struct sp_connection_lock *lock);

/** Tries out what sp_connection_lock_take() needs. */
int sp_connection_lock_try(struct sp_error *err);

#endif
