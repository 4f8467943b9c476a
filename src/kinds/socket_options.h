/*
 * Socket options, saved and set again: one table for all kinds of sockets. An option that a socket
 * does not have is passed over when saving; one that a new socket already has as it should be is
 * not set, so that what needs privileges is asked for only where the program had used it.
 */
#ifndef SEALPOINT_KINDS_SOCKET_OPTIONS_H
#define SEALPOINT_KINDS_SOCKET_OPTIONS_H

#include "socket.pb-c.h"

#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>

struct sp_error;

/** The value of a SOL_SOCKET option that is an int, or -1 if the socket has no such option. */
int sp_socket_number(int fd, int option);
/** What the kernel tells of a TCP socket (TCP_INFO); of another one, that its state is TCP_CLOSE. */
struct tcp_info sp_tcp_info(int fd);

struct sp_socket_options {
	Sealpoint__SocketOption **list; /* for the `options` of a message */
	size_t count;
};

/** Reads all options of the table. */
int sp_socket_options_save(int fd, struct sp_socket_options *options, struct sp_error *err);
void sp_socket_options_release(struct sp_socket_options *options);
#define sp_cleanup_socket_options sp_cleanup(sp_socket_options_release)

/** Whether an option of an image that is on or off is on. */
bool sp_socket_options_have(Sealpoint__SocketOption *const *list, size_t count, int level,
                            int name);

/** Sets options of an image on a new socket. Before bind(2): some only work then. */
int sp_socket_options_apply(int fd, Sealpoint__SocketOption *const *list, size_t count,
                            struct sp_error *err);
/** Refuses options of an image that are not in the table, or have another size. */
int sp_socket_options_check(Sealpoint__SocketOption *const *list, size_t count,
                            struct sp_error *err);

#endif
