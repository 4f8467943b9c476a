/*
 * Pipes and FIFOs.
 *
 * What waits in a pipe is copied with tee(2), which leaves it there. The first open file of a pipe
 * carries contents and size; at restore it makes the pipe, both ends at once, and further open
 * files are opened from it. A FIFO is opened again by its path, and so meets whoever has it open by
 * then.
 *
 * A pipe whose other end is outside (the `|` of a shell) ties the program to somebody who is not
 * saved. Where it is standard input, output or error, and the user says so (--shell-job), the
 * program gets sealpoint's own in its place, as it gets its terminal; otherwise it is refused.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "kinds/file_build.h"
#include "kinds/file_path.h"
#include "kinds/file_table.h"
#include "kinds/inherit.h"
#include "kinds/removed.h"

#include "pipe.pb-c.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

#define CHUNK_SIZE 65536

static const char *const standard_titles[] = {"standard input", "standard output",
                                              "standard error"};

static bool claims(const struct sp_open_file *file)
{
	return S_ISFIFO(file->stat.st_mode);
}

static bool is_named(const struct sp_open_file *file)
{
	return file->link[0] == '/';
}

static bool reads(int flags)
{
	return (flags & O_ACCMODE) != O_WRONLY;
}

static bool writes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* One only reads, the other only writes. */
static bool are_opposite(int flags, int other_flags)
{
	return reads(flags) != reads(other_flags) && writes(flags) != writes(other_flags);
}

/* --- dump: who holds the ends --- */

/* The open files of one pipe that are saved along. */
struct ends {
	const struct sp_open_file *first;
	const struct sp_open_file *reader; /* the first that can read, or NULL */
	const struct sp_open_file *writer;
	bool packets; /* one of them writes packets */
};

static struct ends find_ends(const struct sp_file_table *table, const struct sp_open_file *file)
{
	struct ends ends = {0};
	const struct sp_open_file *end = NULL;

	while ((end = sp_file_table_same_inode(table, file, end))) {
		if (end->flags & O_PATH)
			continue;
		if (!ends.first)
			ends.first = end;
		if (!ends.reader && reads(end->flags))
			ends.reader = end;
		if (!ends.writer && writes(end->flags))
			ends.writer = end;
		ends.packets |= end->flags & O_DIRECT;
	}
	return ends;
}

/* POLLHUP: nobody writes any more; POLLERR: nobody reads. */
static bool is_alone(const struct sp_open_file *file)
{
	struct pollfd poll_fd = {.fd = file->fd};

	poll(&poll_fd, 1, 0);
	return poll_fd.revents & (POLLHUP | POLLERR);
}

static int unread_bytes(int fd)
{
	int bytes = 0;

	ioctl(fd, FIONREAD, &bytes);
	return bytes;
}

/* The user says that a restore will give it another one. */
static int save_external(const struct sp_open_file *file, Sealpoint__Pipe *message,
                         struct sp_error *err)
{
	if (reads(file->flags) && unread_bytes(file->fd))
		return sp_fail(err, SP_NOT_YET,
		               "%d bytes of a process outside of the dump wait in it; let the "
		               "program read them first",
		               unread_bytes(file->fd));
	message->external = file->link;
	return 0;
}

static int save_inherited(struct sp_file_saver *saver, const struct sp_open_file *file,
                          Sealpoint__Pipe *message, struct sp_error *err)
{
	const char *direction = reads(file->flags) ? "writes to" : "reads from";

	bool standard = !file->in_flight && file->number <= STDERR_FILENO;

	if (saver->options->external_pipes && !(standard && saver->options->shell_job))
		return save_external(file, message, err);
	if (!standard || file->flags & O_DIRECT)
		return sp_fail(err, ENOTSUP,
		               "a process outside of the dump %s its other end; end that process "
		               "first, connect the two by a FIFO with a name (mkfifo), or leave "
		               "the pipe out with --external '%s'",
		               direction, file->link);
	if (!saver->options->shell_job)
		return sp_fail(err, ENOTSUP,
		               "a process outside of the dump %s its other end; start the program "
		               "with its %s redirected to a file, or give --shell-job to let it "
		               "have that of the restore in its place",
		               direction, standard_titles[file->number]);
	if (reads(file->flags) && unread_bytes(file->fd))
		return sp_fail(err, EBUSY,
		               "%d bytes of a process outside of the dump wait in it; let the "
		               "program read them first",
		               unread_bytes(file->fd));
	message->inherited = true;
	message->inherited_number = (uint32_t)file->number;
	return 0;
}

/* --- dump: contents --- */

/*
 * Appends everything that `fd` has to read. A read(2) does not cross the end of a packet: one that
 * leaves something although it had room tells `packets`, even if those who wrote them are gone.
 */
static int read_chunks(int fd, struct sp_array *chunks, protobuf_c_boolean *packets,
                       struct sp_error *err)
{
	sp_cleanup_free uint8_t *buffer = sp_alloc(CHUNK_SIZE);
	ssize_t size;

	while ((size = read(fd, buffer, CHUNK_SIZE)) > 0) {
		ProtobufCBinaryData *chunk = sp_array_push(chunks);

		if (size < CHUNK_SIZE && unread_bytes(fd))
			*packets = true;
		chunk->len = (size_t)size;
		chunk->data = memcpy(sp_alloc((size_t)size), buffer, (size_t)size);
	}
	return errno == EAGAIN ? 0 : sp_fail_errno(err, errno, "cannot read the copy");
}

static void release_chunks(struct sp_array *chunks)
{
	for (size_t i = 0; i < chunks->count; i++)
		free(((ProtobufCBinaryData *)sp_array_at(chunks, i))->data);
	sp_array_release(chunks);
}

static int copy_contents(int fd, Sealpoint__Pipe__State *state, int size, struct sp_array *chunks,
                         struct sp_error *err)
{
	sp_cleanup_close int reader = -1;
	sp_cleanup_close int writer = -1;
	int ends[2];

	if (pipe2(ends, O_NONBLOCK | O_CLOEXEC))
		return sp_fail_errno(err, errno, "cannot make a pipe to copy into");
	reader = ends[0];
	writer = ends[1];
	if (fcntl(writer, F_SETPIPE_SZ, state->capacity) < 0)
		return sp_fail_errno(err, errno, "cannot make a pipe of its size, %u bytes",
		                     state->capacity);
	if (tee(fd, writer, INT_MAX, SPLICE_F_NONBLOCK) != size)
		return sp_fail(err, EIO, "cannot copy the %d bytes that wait in it", size);
	return read_chunks(reader, chunks, &state->packets, err);
}

static int save_contents(const struct sp_open_file *reader, Sealpoint__Pipe__State *state,
                         struct sp_array *chunks, struct sp_error *err)
{
	sp_cleanup_close int reopened = -1;
	int fd = reader->fd, size = unread_bytes(fd), rc;

	if (!size)
		return 0;
	if (!reads(reader->flags))
		fd = reopened = sp_reopen(fd, O_RDONLY | O_NONBLOCK, err);
	rc = fd < 0 ? fd : copy_contents(fd, state, size, chunks, err);
	state->contents = chunks->items;
	state->n_contents = chunks->count;
	return rc;
}

static int save_state(const struct sp_open_file *file, const struct ends *ends,
                      Sealpoint__Pipe__State *state, struct sp_array *chunks, struct sp_error *err)
{
	int capacity = fcntl(file->fd, F_GETPIPE_SZ);
	const struct sp_open_file *peer = ends->reader == file ? ends->writer : ends->reader;

	if (capacity < 0)
		return sp_fail_errno(err, errno, "cannot read its size");
	state->capacity = (uint32_t)capacity;
	state->packets = ends->packets;
	state->hung_up = ends->reader && !ends->writer && is_alone(ends->reader);
	state->peer = peer && are_opposite(file->flags, peer->flags) ? peer->id : 0;
	state->mode = file->stat.st_mode & 07777;
	state->uid = file->stat.st_uid;
	state->gid = file->stat.st_gid;
	return save_contents(ends->reader ? ends->reader : file, state, chunks, err);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Pipe message = SEALPOINT__PIPE__INIT;
	Sealpoint__Pipe__State state = SEALPOINT__PIPE__STATE__INIT;
	sp_cleanup(release_chunks) struct sp_array chunks = SP_ARRAY_OF(ProtobufCBinaryData);
	sp_cleanup_free char *path = NULL;
	struct sp_removed removed = {0};
	struct ends ends = find_ends(saver->table, file);
	bool complete = ends.reader && ends.writer;
	int rc = 0;

	if (is_named(file)) {
		rc = sp_removed_find(file, &path, &removed, err);
		message.removed = removed.is_removed ? &removed.message : NULL;
		message.path = path ? path : message.path;
	} else if (!complete && !is_alone(file)) {
		rc = save_inherited(saver, file, &message, err);
	}
	if (!rc && !message.inherited && !*message.external && ends.first == file) {
		message.state = &state;
		rc = save_state(file, &ends, &state, &chunks, err);
	}
	if (!rc)
		sp_blob_pack(body, &message.base);
	return rc;
}

/* --- restore --- */

static Sealpoint__Pipe *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__pipe__descriptor, err);
}

static int write_contents(int writer, const Sealpoint__Pipe__State *state, struct sp_error *err)
{
	int flags = O_NONBLOCK | (state->packets ? O_DIRECT : 0);

	if (!state->n_contents)
		return 0;
	if (fcntl(writer, F_SETFL, flags))
		return sp_fail_errno(err, errno, "cannot write what waited in it");
	for (size_t i = 0; i < state->n_contents; i++) {
		const ProtobufCBinaryData *chunk = &state->contents[i];

		if (write(writer, chunk->data, chunk->len) != (ssize_t)chunk->len)
			return sp_fail(err, EIO, "what waited in it does not fit any more");
	}
	return 0;
}

static int set_capacity(int fd, const Sealpoint__Pipe__State *state, struct sp_error *err)
{
	if (fcntl(fd, F_GETPIPE_SZ) == (int)state->capacity ||
	    fcntl(fd, F_SETPIPE_SZ, state->capacity) >= 0)
		return 0;
	return sp_fail_errno(err, errno,
	                     "cannot give it its size of %u bytes (root without CAP_SYS_RESOURCE "
	                     "is held to /proc/sys/fs/pipe-max-size)",
	                     state->capacity);
}

static int fill(int fd, int writer, const Sealpoint__Pipe__State *state, struct sp_error *err)
{
	int rc = set_capacity(fd, state, err);

	return rc ? rc : write_contents(writer, state, err);
}

/* Makes a pipe(2): this file's end, and that of its peer. */
static int make_pipe(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     const Sealpoint__Pipe__State *state, int *fd, struct sp_error *err)
{
	sp_cleanup_close int reader = -1;
	sp_cleanup_close int writer = -1;
	bool at_reader = reads((int)file->flags);
	int ends[2], rc;

	if (pipe2(ends, O_CLOEXEC))
		return sp_fail_errno(err, errno, "cannot make a pipe");
	reader = ends[0];
	writer = ends[1];
	rc = fill(reader, writer, state, err);
	if (rc)
		return rc;
	if (fchown(reader, state->uid, state->gid) || fchmod(reader, state->mode))
		return sp_fail_errno(err, errno, "cannot set its owner and mode");
	if (writes((int)file->flags) && at_reader) {
		*fd = sp_reopen(reader, O_RDWR, err);
		return *fd < 0 ? *fd : 0;
	}
	*fd = sp_steal_fd(at_reader ? &reader : &writer);
	if (state->peer)
		builder->fds[state->peer] = sp_steal_fd(at_reader ? &writer : &reader);
	return 0;
}

/*
 * A FIFO that somebody has kept open and filled meanwhile keeps what it has: nothing is written
 * twice.
 */
static int fill_fifo(int fd, int writer, const Sealpoint__Pipe__State *state, struct sp_error *err)
{
	return unread_bytes(writer) ? 0 : fill(fd, writer, state, err);
}

/* One that has lost its name is made by the first that has it open. */
static int open_named(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                      const Sealpoint__Pipe *message, int flags, struct sp_error *err)
{
	if (!message->removed)
		return sp_file_path_open(message->path, flags, S_IFIFO, err);
	if (file->same_inode)
		return sp_reopen(builder->fds[file->same_inode], flags | O_NONBLOCK, err);
	return sp_removed_open(message->path, message->removed, S_IFIFO, flags, err);
}

/*
 * Opens a FIFO. While that is done, somebody must be at its other end: a writer could not be opened
 * without blocking, what is written to it would be lost, and a reader that has seen its last writer
 * go would not know it.
 */
static int open_fifo(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     const Sealpoint__Pipe *message, int *fd, struct sp_error *err)
{
	const Sealpoint__Pipe__State *state = message->state;
	int flags = sp_file_path_flags(file);
	bool needs_other_end =
	        !reads((int)file->flags) || (state && (state->n_contents || state->hung_up));
	sp_cleanup_close int other_end = -1;

	if (needs_other_end) {
		other_end = open_named(builder, file, message, O_RDWR, err);
		if (other_end < 0)
			return other_end;
	}
	if (message->removed && needs_other_end)
		*fd = sp_reopen(other_end, flags | O_NONBLOCK, err);
	else
		*fd = open_named(builder, file, message, flags, err);
	if (*fd < 0)
		return *fd;
	if (!state)
		return 0;
	return fill_fifo(*fd, other_end < 0 ? *fd : other_end, state, err);
}

/* Pipes and terminals are opened once more, so that their flags are not those of the shell. */
static int open_standard(unsigned number, int flags, struct sp_error *err)
{
	struct stat stat;
	int fd = -1;

	if (fstat((int)number, &stat))
		return sp_fail_errno(err, errno,
		                     "sealpoint's own %s, which it is to have, is closed",
		                     standard_titles[number]);
	if (S_ISFIFO(stat.st_mode) || S_ISCHR(stat.st_mode))
		fd = sp_reopen((int)number, (flags & O_ACCMODE) | O_NOCTTY | O_NONBLOCK, NULL);
	if (fd < 0)
		fd = fcntl((int)number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	return fd < 0 ? sp_fail_errno(err, errno, "cannot duplicate sealpoint's own %s",
	                              standard_titles[number])
	              : fd;
}

static int open_as(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                   const Sealpoint__Pipe *message, int *fd, struct sp_error *err)
{
	int flags = (int)file->flags;

	if (*message->path)
		return open_fifo(builder, file, message, fd, err);
	if (message->state)
		return make_pipe(builder, file, message->state, fd, err);
	if (*message->external)
		return sp_refuse_not_inherited(message->external, err);
	if (message->inherited)
		*fd = open_standard(message->inherited_number, flags, err);
	else
		*fd = sp_reopen(builder->fds[file->same_inode], (flags & O_ACCMODE) | O_NONBLOCK,
		                err);
	return *fd < 0 ? *fd : 0;
}

static int open_pipe(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                     struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Pipe *message = unpack(file->body, err);

	return message ? open_as(builder, file, message, fd, err) : -EBADMSG;
}

/* The peer is another open file of the same pipe, and its end is the other one. */
static bool is_peer(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                    uint32_t id)
{
	const Sealpoint__OpenFile *peer = sp_checkpoint_file(checkpoint, id);

	return peer && peer->same_inode == file->id && !strcmp(peer->kind, file->kind) &&
	       are_opposite((int)peer->flags, (int)file->flags);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Pipe *message = unpack(file->body, err);
	const Sealpoint__Pipe__State *state = message ? message->state : NULL;
	bool sound;

	if (!message)
		return -EBADMSG;
	sound = message->inherited ? message->inherited_number <= STDERR_FILENO
	                           : state != NULL || file->same_inode || *message->external;
	if (state)
		sound &= !state->peer || is_peer(checkpoint, file, state->peer);
	if (*message->path)
		sound &= message->path[0] == '/';
	return sound ? 0 : sp_fail_damaged(err, "an impossible pipe");
}

static size_t waiting_bytes(const Sealpoint__Pipe *message)
{
	size_t bytes = 0;

	for (size_t i = 0; message->state && i < message->state->n_contents; i++)
		bytes += message->state->contents[i].len;
	return bytes;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Pipe *message = unpack(body, NULL);

	if (message && *message->external)
		snprintf(text, size, "%s, to be given to the restore", message->external);
	else if (message && message->inherited)
		snprintf(text, size, "becomes the %s of the restore",
		         standard_titles[message->inherited_number % 3]);
	else if (message && *message->path)
		snprintf(text, size, "%s, %zu bytes waiting", message->path,
		         waiting_bytes(message));
	else if (message && message->state)
		snprintf(text, size, "%zu bytes waiting", waiting_bytes(message));
}

const struct sp_file_kind sp_kind_pipe = {
        .name = "pipe",
        .title = "pipe",
        .claims = claims,
        .save = save,
        .open = open_pipe,
        .describe = describe,
        .check = check,
};
