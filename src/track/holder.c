/*
 * The holder: a process that keeps a session's descriptor open between commands. It does nothing
 * by itself: it waits for requests, and for the end of the program.
 */
#include "track/holder.h"

#include "base/array.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 16

struct holder {
	struct sp_session session;
	/* [0] is the listener, [1] the program's pidfd, the others are connections */
	struct pollfd polled[2 + CLIENTS_MAX];
	size_t count;
	int cutter; /* connection that has begun the last cut; -1: none is being made */
	int maker;  /* connection that the session ends with; -1: it is kept */
	bool done;
};

bool sp_holder_peer_is_trusted(int socket)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
	       (peer.uid == geteuid() || peer.uid == 0);
}

static void reply(const struct holder *holder, int client, int status, bool with_memory)
{
	struct sp_holder_reply reply = {
	        .version = SP_HOLDER_VERSION,
	        .status = status,
	        .generation = holder->session.generation,
	        .pid = holder->session.pid,
	        .holder = getpid(),
	        .backend = holder->session.backend,
	};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {&reply, sizeof(reply)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	memcpy(reply.id, holder->session.id, sizeof(reply.id));
	if (with_memory) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header = (struct cmsghdr){
		        .cmsg_len = CMSG_LEN(sizeof(int)),
		        .cmsg_level = SOL_SOCKET,
		        .cmsg_type = SCM_RIGHTS,
		};
		memcpy(CMSG_DATA(&control.header), &holder->session.memory, sizeof(int));
	}
	/* Whoever does not take the reply has gone, which the next round notices. */
	sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void serve_request(struct holder *holder, int client, enum sp_holder_request request)
{
	switch (request) {
	case SP_HOLDER_HELLO:
		reply(holder, client, 0, true);
		return;
	case SP_HOLDER_CUT:
		if (holder->cutter >= 0 && holder->cutter != client) {
			reply(holder, client, -EBUSY, false);
			return;
		}
		holder->cutter = client;
		holder->session.generation++;
		reply(holder, client, 0, false);
		return;
	case SP_HOLDER_KEEP:
		holder->maker = -1;
		reply(holder, client, 0, false);
		return;
	case SP_HOLDER_END:
		holder->done = true;
		reply(holder, client, 0, false);
		return;
	}
	reply(holder, client, -EINVAL, false);
}

/* Returns false when the connection has ended. */
static bool serve(struct holder *holder, int client)
{
	struct sp_holder_message message;
	ssize_t got = recv(client, &message, sizeof(message), MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (got != sizeof(message))
		return false;
	if (message.version != SP_HOLDER_VERSION)
		reply(holder, client, -EPROTO, false);
	else
		serve_request(holder, client, (enum sp_holder_request)message.request);
	return true;
}

static void hang_up(struct holder *holder, size_t index)
{
	if (holder->polled[index].fd == holder->cutter)
		holder->cutter = -1;
	if (holder->polled[index].fd == holder->maker)
		holder->done = true;
	close(holder->polled[index].fd);
	holder->polled[index] = holder->polled[--holder->count];
}

static void welcome(struct holder *holder, int listener)
{
	int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (client < 0)
		return;
	if (holder->count == SP_COUNT_OF(holder->polled) || !sp_holder_peer_is_trusted(client))
		close(client);
	else
		holder->polled[holder->count++] = (struct pollfd){.fd = client, .events = POLLIN};
}

/* The socket goes first, so that nobody finds a session that is about to end. */
static void remove_socket(int listener)
{
	struct sockaddr_un address;
	socklen_t size = sizeof(address);

	if (getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
	    address.sun_path[0] == '/')
		unlink(address.sun_path);
}

void sp_holder_run(const struct sp_session *session, int listener, int pidfd, int maker)
{
	struct holder holder = {
	        .session = *session,
	        .polled = {{.fd = listener, .events = POLLIN},
	                   {.fd = pidfd, .events = POLLIN},
	                   {.fd = maker, .events = POLLIN}},
	        .count = 3,
	        .cutter = -1,
	        .maker = maker,
	};

	while (!holder.done) {
		if (poll(holder.polled, holder.count, -1) < 0 && errno != EINTR)
			break;
		if (holder.polled[1].revents)
			break; /* the program has ended */
		for (size_t i = holder.count; i-- > 2;) {
			if (holder.polled[i].revents && !serve(&holder, holder.polled[i].fd))
				hang_up(&holder, i);
		}
		if (holder.polled[0].revents)
			welcome(&holder, listener);
	}
	remove_socket(listener);
	_exit(0);
}
