/*
 * Names of unix sockets: a path, which bind(2) makes a socket file for, or an abstract name.
 *
 * The path that a program has bound stays after it has ended, and leads to nothing. Binding it
 * again removes that stale file, but only if nobody answers there.
 */
#ifndef SEALPOINT_KINDS_UNIX_NAME_H
#define SEALPOINT_KINDS_UNIX_NAME_H

#include "kinds/kind.h"
#include "kinds/unix_diag.h"

#include "socket.pb-c.h"

#include <sys/un.h>

#define SP_UNIX_TEXT (sizeof(((struct sockaddr_un *)NULL)->sun_path) * 2 + 8)

/** A name and the memory it refers to. */
struct sp_unix_name {
	Sealpoint__UnixName message;
	struct sockaddr_un address;
	char *directory, *file;
};

/** Reads the socket's name; `name->message.path` is empty if it has none. */
int sp_unix_name_save(const struct sp_open_file *file, const struct sp_unix_state *state,
                      struct sp_unix_name *name, struct sp_error *err);
void sp_unix_name_release(struct sp_unix_name *name);

/** Binds a new socket to the name, with the owner and mode of its file. */
int sp_unix_name_bind(struct sp_file_builder *builder, int fd, const Sealpoint__UnixName *name,
                      struct sp_error *err);
/**
 * Binds a socket to a path where nothing else is, so that it has the name and no file; or to an abstract
 * name. Returns 0 or a negative errno.
 */
int sp_unix_name_bind_apart(int fd, const ProtobufCBinaryData *path);
/** The same for a path, by a passing process (kinds/guise.h), whose files it then has. */
int sp_unix_name_bind_alone(int fd, const struct sockaddr_un *address, socklen_t size);
/** Fills in the address that has this path as sun_path; returns its size. */
socklen_t sp_unix_name_address(const ProtobufCBinaryData *path, struct sockaddr_un *address);
/** The address by which a socket with this name is reached from any directory. */
int sp_unix_name_destination(const Sealpoint__UnixName *name, struct sockaddr_un *address,
                             socklen_t *size, struct sp_error *err);
/** Whether a socket of the checkpoint that listens has the name. */
bool sp_unix_name_is_listened_to(const struct sp_file_builder *builder,
                                 const Sealpoint__UnixName *name);
/** Connects to what is bound to the path of sun_path's form. Returns 0 or a negative errno. */
int sp_unix_name_connect(int fd, const ProtobufCBinaryData *path);

/** Refuses a name that does not fit into a socket address. */
int sp_unix_name_check(const ProtobufCBinaryData *path, struct sp_error *err);
/** "/run/x.sock", or "@name" for an abstract one. */
void sp_unix_name_text(const ProtobufCBinaryData *path, char text[SP_UNIX_TEXT]);
/** sun_path as the bytes of a message: no copy. `size` is the size of the address. */
ProtobufCBinaryData sp_unix_name_bytes(struct sockaddr_un *address, socklen_t size);

#endif
