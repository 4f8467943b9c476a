/* A TCP connection with both ends in the subject. */
#ifndef SEALPOINT_SUBJECTS_TCP_PAIR_H
#define SEALPOINT_SUBJECTS_TCP_PAIR_H

#include "subject.h"

#include <netinet/in.h>
#include <sys/socket.h>

struct pair {
	int client, server, listener;
};

/* `address` is one of the loopback interface; its port is chosen. */
static inline struct pair make_pair_at(int family, struct sockaddr_in6 address)
{
	socklen_t size = sizeof(address);
	struct pair pair = {
	        .client = socket(family, SOCK_STREAM, 0),
	        .listener = socket(family, SOCK_STREAM, 0),
	};
	const int yes = 1;

	setsockopt(pair.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	subject_need(bind(pair.listener, (struct sockaddr *)&address, size) == 0, "bind");
	subject_need(listen(pair.listener, 5) == 0, "listen");
	subject_need(getsockname(pair.listener, (struct sockaddr *)&address, &size) == 0,
	             "getsockname");
	subject_need(connect(pair.client, (struct sockaddr *)&address, size) == 0, "connect");
	pair.server = accept(pair.listener, NULL, NULL);
	subject_need(pair.server >= 0, "accept");
	return pair;
}

#endif
