/* Names of unix sockets: see unix_name.h. */
#include "kinds/unix_name.h"

#include "base/io.h"
#include "base/kernel_abi.h"
#include "proc/file.h"
#include "kinds/file_build.h"
#include "kinds/guise.h"
#include "kinds/registry.h"
#include "kinds/socket_options.h"

#include "unix_listen.pb-c.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static bool is_abstract(const ProtobufCBinaryData *path)
{
	return path->len && !path->data[0];
}

ProtobufCBinaryData sp_unix_name_bytes(struct sockaddr_un *address, socklen_t size)
{
	size_t room = size > offsetof(struct sockaddr_un, sun_path)
	                      ? size - offsetof(struct sockaddr_un, sun_path)
	                      : 0;
	ProtobufCBinaryData bytes = {.len = room, .data = (uint8_t *)address->sun_path};

	if (room && address->sun_path[0]) /* a path: its end is the NUL byte, and may lack it */
		bytes.len = strnlen(address->sun_path, room < sizeof(address->sun_path)
		                                               ? room
		                                               : sizeof(address->sun_path));
	return bytes;
}

void sp_unix_name_text(const ProtobufCBinaryData *path, char text[SP_UNIX_TEXT])
{
	size_t used = 0;

	for (size_t i = 0; i < path->len && used < SP_UNIX_TEXT - 2; i++) {
		uint8_t byte = path->data[i];

		text[used++] = byte ? (isprint(byte) ? (char)byte : '?') : '@';
	}
	text[used] = '\0';
}

int sp_unix_name_check(const ProtobufCBinaryData *path, struct sp_error *err)
{
	if (path->len > sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return sp_fail_damaged(err, "a socket name that is too long");
	return 0;
}

/* --- saving --- */

/*
 * Where the socket file is, in memory that is the caller's to free; NULL if it has been removed. A kernel that does not
 * tell (SIOCUNIXFILE needs CAP_NET_ADMIN), or other files than ours: it is looked for where the name leads to.
 */
static char *find_socket_file(int fd, bool *known)
{
	sp_cleanup_close int file = ioctl(fd, SIOCUNIXFILE);
	sp_cleanup_free char *link = sp_format("/proc/self/fd/%d", file);
	sp_cleanup_free char *path = NULL;
	struct stat stat, named;

	*known = file >= 0 && !fstat(file, &stat) && !sp_read_link(AT_FDCWD, link, &path, NULL);
	if (*known && !lstat(path, &named) && named.st_ino == stat.st_ino &&
	    named.st_dev == stat.st_dev)
		return sp_steal_ptr(&path);
	return NULL;
}

/* Whether `path` ends with `/name`; then what stands before it is a directory. */
static char *directory_before(const char *path, const char *name)
{
	size_t path_size = strlen(path), name_size = strlen(name);

	if (path_size <= name_size || path[path_size - name_size - 1] != '/' ||
	    strcmp(path + path_size - name_size, name) != 0)
		return NULL;
	path_size -= name_size + 1;
	return path_size ? sp_format("%.*s", (int)path_size, path) : sp_strdup("/");
}

/*
 * The directory that a relative path was bound in: where its file is, or else the program's own, unless it
 * has changed since.
 */
static int find_directory(const struct sp_open_file *file, const char *path, const char *bound,
                          struct sp_unix_name *name, struct sp_error *err)
{
	if (bound[0] == '/')
		return 0;
	if (path)
		name->directory = directory_before(path, bound);
	if (name->directory || file->in_flight)
		return 0;
	return sp_proc_read_link(file->living, "cwd", &name->directory, err);
}

static int save_socket_file(const struct sp_open_file *file, const struct sp_unix_state *state,
                            struct sp_unix_name *name, struct sp_error *err)
{
	sp_cleanup_free char *bound =
	        sp_format("%.*s", (int)name->message.path.len, name->address.sun_path);
	sp_cleanup_free char *path = NULL;
	bool known;
	struct stat stat;

	name->file = find_socket_file(file->fd, &known);
	if (known && !name->file)
		return 0; /* it has been removed */
	if (find_directory(file, name->file, bound, name, err) < 0)
		return -err->code;
	path = sp_format("%s%s%s", name->directory ?: "", name->directory ? "/" : "", bound);
	name->message.linked = !lstat(path, &stat) && S_ISSOCK(stat.st_mode) &&
	                       (uint32_t)stat.st_ino == state->file_inode;
	if (!name->message.linked && name->file) {
		name->message.linked = !lstat(name->file, &stat);
		name->message.file = name->file;
	}
	if (name->message.linked) {
		name->message.mode = stat.st_mode & 07777;
		name->message.uid = stat.st_uid;
		name->message.gid = stat.st_gid;
	} else if (name->directory) {
		return sp_fail(
		        err, ENOENT,
		        "it was bound to the relative path %s, which does not lead to it from the "
		        "program's directory %s; restart the program with an absolute path",
		        bound, name->directory);
	}
	if (name->directory)
		name->message.directory = name->directory;
	return 0;
}

int sp_unix_name_save(const struct sp_open_file *file, const struct sp_unix_state *state,
                      struct sp_unix_name *name, struct sp_error *err)
{
	socklen_t size = sizeof(name->address);

	*name = (struct sp_unix_name){.message = SEALPOINT__UNIX_NAME__INIT};
	if (getsockname(file->fd, (struct sockaddr *)&name->address, &size) < 0)
		return sp_fail_errno(err, errno, "cannot read its address");
	name->message.path = sp_unix_name_bytes(&name->address, size);
	if (!name->message.path.len || is_abstract(&name->message.path))
		return 0;
	return save_socket_file(file, state, name, err);
}

void sp_unix_name_release(struct sp_unix_name *name)
{
	free(name->directory);
	free(name->file);
	name->directory = name->file = NULL;
}

/* --- binding again --- */

socklen_t sp_unix_name_address(const ProtobufCBinaryData *path, struct sockaddr_un *address)
{
	size_t end = path->len < sizeof(address->sun_path) && !is_abstract(path) ? 1 : 0;

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(address->sun_path, path->data, path->len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path->len + end);
}

int sp_unix_name_destination(const Sealpoint__UnixName *name, struct sockaddr_un *address,
                             socklen_t *size, struct sp_error *err)
{
	sp_cleanup_free char *path = NULL;
	ProtobufCBinaryData bytes = name->path;

	if (name->file[0])
		path = sp_strdup(name->file);
	else if (name->directory[0])
		path = sp_format("%s/%.*s", name->directory, (int)name->path.len, name->path.data);
	if (path)
		bytes = (ProtobufCBinaryData){strlen(path), (uint8_t *)path};
	if (bytes.len > sizeof(address->sun_path))
		return sp_fail(err, ENAMETOOLONG, "the path %s is too long to be sent to", path);
	*size = sp_unix_name_address(&bytes, address);
	return 0;
}

int sp_unix_name_connect(int fd, const ProtobufCBinaryData *path)
{
	struct sockaddr_un address;
	socklen_t size = sp_unix_name_address(path, &address);

	return connect(fd, (struct sockaddr *)&address, size) < 0 ? -errno : 0;
}

/* Removes a socket file to which nobody listens any more. */
static int remove_stale(int fd, const ProtobufCBinaryData *path, const struct sockaddr_un *address,
                        struct sp_error *err)
{
	sp_cleanup_close int probe = -1;
	struct stat stat;

	if (lstat(address->sun_path, &stat) < 0)
		return 0;
	if (!S_ISSOCK(stat.st_mode))
		return sp_fail(err, EEXIST, "%.108s exists and is not a socket; move it away",
		               address->sun_path);
	probe = socket(AF_UNIX, sp_socket_number(fd, SO_TYPE) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return sp_fail_errno(err, errno, "cannot make a socket");
	if (sp_unix_name_connect(probe, path) != -ECONNREFUSED)
		return sp_fail(err, EADDRINUSE,
		               "another program answers at %.108s; stop it before the restore",
		               address->sun_path);
	if (unlink(address->sun_path) < 0)
		return sp_fail_errno(err, errno, "cannot remove the stale socket %.108s",
		                     address->sun_path);
	return 0;
}

/* It may have got another name behind bind(2), as programs do to put it in place in one step. */
static int rename_socket_file(int fd, const char *path, const char *file, struct sp_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	ProtobufCBinaryData name = {.len = strlen(file), .data = (uint8_t *)file};

	if (name.len >= sizeof(address.sun_path))
		return sp_fail(err, ENAMETOOLONG, "the path %s of its file is too long", file);
	sp_unix_name_address(&name, &address);
	if (remove_stale(fd, &name, &address, err) < 0)
		return -err->code;
	if (rename(path, file))
		return sp_fail_errno(err, errno, "cannot rename the socket %s to %s", path, file);
	return 0;
}

static int set_socket_file(struct sp_file_builder *builder, const Sealpoint__UnixName *name, int fd,
                           const char *bound, struct sp_error *err)
{
	const char *path = name->file[0] ? name->file : bound;
	sp_cleanup_free char *absolute =
	        path[0] == '/' ? sp_strdup(path) : sp_format("%s/%s", name->directory, path);

	if (!name->linked)
		return unlink(path) < 0 ? sp_fail_errno(err, errno, "cannot remove %s", path) : 0;
	if (name->file[0] && rename_socket_file(fd, bound, path, err))
		return -err->code;
	sp_file_builder_made(builder, absolute);
	if (lchown(path, name->uid, name->gid) < 0)
		return sp_fail_errno(err, errno, "cannot give %s to user %u, group %u", path,
		                     name->uid, name->gid);
	if (chmod(path, name->mode) < 0)
		return sp_fail_errno(err, errno, "cannot set the mode of %s to %o", path,
		                     name->mode);
	return 0;
}

/* Binds to a path as seen from our current directory. */
static int bind_path(struct sp_file_builder *builder, int fd, const Sealpoint__UnixName *name,
                     struct sp_error *err)
{
	struct sockaddr_un address;
	socklen_t size = sp_unix_name_address(&name->path, &address);
	char path[sizeof(address.sun_path) + 1] = "";

	memcpy(path, name->path.data, name->path.len);
	if (remove_stale(fd, &name->path, &address, err) < 0)
		return -err->code;
	if (bind(fd, (struct sockaddr *)&address, size) < 0)
		return sp_fail_errno(err, errno, "cannot bind to %s", path);
	return set_socket_file(builder, name, fd, path, err);
}

/*
 * A relative path has to be bound in its directory, since getsockname(2) gives back what was bound.
 */
static int bind_in_directory(struct sp_file_builder *builder, int fd,
                             const Sealpoint__UnixName *name, struct sp_error *err)
{
	sp_cleanup_close int own = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (own < 0 || chdir(name->directory) < 0)
		return sp_fail_errno(err, errno, "cannot go to directory %s", name->directory);
	rc = bind_path(builder, fd, name, err);
	if (fchdir(own) < 0 && !rc)
		return sp_fail_errno(err, errno, "cannot come back from directory %s",
		                     name->directory);
	return rc;
}

int sp_unix_name_bind(struct sp_file_builder *builder, int fd, const Sealpoint__UnixName *name,
                      struct sp_error *err)
{
	struct sockaddr_un address;
	socklen_t size;
	char text[SP_UNIX_TEXT];

	if (!name || !name->path.len)
		return 0;
	if (!name->linked && !is_abstract(&name->path) && !sp_unix_name_bind_apart(fd, &name->path))
		return 0;
	if (name->directory[0])
		return bind_in_directory(builder, fd, name, err);
	if (!is_abstract(&name->path))
		return bind_path(builder, fd, name, err);
	size = sp_unix_name_address(&name->path, &address);
	if (bind(fd, (struct sockaddr *)&address, size) < 0) {
		sp_unix_name_text(&name->path, text);
		return sp_fail_errno(err, errno, "cannot bind to the abstract name %s", text);
	}
	return 0;
}

/* --- binding where nothing is --- */

struct binding {
	int fd;
	struct sockaddr_un address;
	socklen_t size;
};

/* Makes the directories that a path leads through. */
static int make_directories(const char *path)
{
	sp_cleanup_free char *copy = sp_strdup(path);

	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(copy, 0777) && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return 0;
}

int sp_unix_name_bind_alone(int fd, const struct sockaddr_un *address, socklen_t size)
{
	char path[sizeof(address->sun_path) + 1] = "";
	int rc = sp_guise_leave_files();

	memcpy(path, address->sun_path, sizeof(address->sun_path));
	if (!rc)
		rc = make_directories(path);
	if (!rc && bind(fd, (const struct sockaddr *)address, size))
		rc = -errno;
	return rc;
}

static int bind_alone(void *context)
{
	const struct binding *binding = context;

	return sp_unix_name_bind_alone(binding->fd, &binding->address, binding->size);
}

int sp_unix_name_bind_apart(int fd, const ProtobufCBinaryData *path)
{
	struct binding binding = {.fd = fd};

	binding.size = sp_unix_name_address(path, &binding.address);
	if (!is_abstract(path))
		return sp_guise_run(0, bind_alone, &binding);
	return bind(fd, (struct sockaddr *)&binding.address, binding.size) ? -errno : 0;
}

bool sp_unix_name_is_listened_to(const struct sp_file_builder *builder,
                                 const Sealpoint__UnixName *name)
{
	for (size_t i = 0; i < builder->checkpoint->files.count; i++) {
		const Sealpoint__OpenFile *file = sp_array_pointer(&builder->checkpoint->files, i);
		sp_cleanup_message Sealpoint__UnixListen *message = NULL;

		if (!strcmp(file->kind, sp_kind_unix_listen.name))
			message = sp_blob_unpack(file->body, &sealpoint__unix_listen__descriptor,
			                         NULL);
		if (message && message->name && message->name->path.len == name->path.len &&
		    !memcmp(message->name->path.data, name->path.data, name->path.len))
			return true;
	}
	return false;
}
