/*
 * The holder of a session, and how commands talk with it: a request and a reply each, on a unix
 * socket of sequenced packets. Both sides are the same user or root (SO_PEERCRED is checked both
 * ways), and the same build of sealpoint: there is one version of this, and others are refused.
 */
#ifndef SEALPOINT_TRACK_HOLDER_H
#define SEALPOINT_TRACK_HOLDER_H

#include "track/session.h"

#define SP_HOLDER_VERSION 5

enum sp_holder_request {
	SP_HOLDER_HELLO, /* which session is this? The reply carries the descriptor of its memory. */
	SP_HOLDER_CUT, /* raise the generation; the sender is the only one who may until it hangs up */
	SP_HOLDER_KEEP, /* live on when the maker of the session hangs up */
	SP_HOLDER_END,  /* the reply comes, then the holder ends */
};

struct sp_holder_message {
	uint32_t version;
	uint32_t request;
};

struct sp_holder_reply {
	uint32_t version;
	int32_t status; /* 0 or a negative errno */
	uint8_t id[SP_SESSION_ID_SIZE];
	uint64_t generation;
	int64_t pid;      /* of the program */
	int64_t holder;   /* in the pid namespace that the socket is named by */
	uint64_t backend; /* enum sp_session_backend */
};

/**
 * Runs in a process of its own until the program ends, a request says so, or whoever has made the
 * session hangs up without having kept it: answers those who connect to `listener`, and `maker`, which
 * is connected. Owns all its descriptors. Never returns.
 */
void sp_holder_run(const struct sp_session *session, int listener, int pidfd, int maker)
        __attribute__((noreturn));

/** True if the peer of a connected socket is the same user, or root. */
bool sp_holder_peer_is_trusted(int socket);

#endif
