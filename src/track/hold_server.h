/*
 * The thread that serves held memory (hold.h): it reads what the userfaultfd tells of writes, discards
 * and changed mappings, and has the account of held pages act on it.
 */
#ifndef SEALPOINT_TRACK_HOLD_SERVER_H
#define SEALPOINT_TRACK_HOLD_SERVER_H

#include "track/held_pages.h"

#include <pthread.h>
#include <stdbool.h>

struct sp_hold_server {
	struct sp_held_pages *held;
	pthread_mutex_t lock; /* whose turn it is with the account */
	uint64_t faults;      /* how many writes had to wait */
	int fdinfo, stop;
	pthread_t thread;
	bool runs;
};

void sp_hold_server_init(struct sp_hold_server *server, struct sp_held_pages *held);
/** Opens what it needs; nothing is served yet. */
int sp_hold_server_open(struct sp_hold_server *server, struct sp_error *err);
/** Returns 0 or a negative errno. */
int sp_hold_server_start(struct sp_hold_server *server);
/** Stops it, if it runs, and releases it. Who waits for it then waits for the end of the account. */
void sp_hold_server_end(struct sp_hold_server *server);

#endif
