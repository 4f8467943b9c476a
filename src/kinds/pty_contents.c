/*
 * What waits in a pseudoterminal, in both directions.
 *
 * A terminal cannot be looked into: what waits has to be read, and be put back (tee(2) and MSG_PEEK have
 * no equal here). Between the two lie some microseconds, in which only a SIGKILL can come.
 *
 * Both is done in neutral modes: no echo, no signals, nothing translated. A line of canonical mode is
 * what one read(2) gives: it ends with a newline, or where somebody has typed ^D. What is not complete
 * yet is not given before ICANON is switched off; that forgets where lines end, so they are read
 * first. All is put back as if it were typed (TIOCSTI), with ^V in front of what would mean something.
 *
 * A terminal holds 4095 bytes. What was written behind them has not been looked at by it: it is still to
 * be echoed and edited, in the terminal's own modes, and so it is put back in the end.
 */
#include "kinds/pty_contents.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/capability.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#define ROOM 4095 /* N_TTY_BUF_SIZE - 1 */
#define CHUNK_SIZE 4096
#define ROOM_TIMEOUT_MS 1000

#define END_OF_FILE 0x04 /* ^D */
#define QUOTE 0x16       /* ^V */
#define STOP 0x13        /* ^S */

void sp_pty_contents_init(struct sp_pty_contents *contents)
{
	sealpoint__pty__contents__init(&contents->message);
	contents->output = contents->input = contents->unseen = SP_ARRAY_OF(uint8_t);
	contents->lines = SP_ARRAY_OF(ProtobufCBinaryData);
}

void sp_pty_contents_release(struct sp_pty_contents *contents)
{
	for (size_t i = 0; i < contents->lines.count; i++)
		free(((ProtobufCBinaryData *)sp_array_at(&contents->lines, i))->data);
	sp_array_release(&contents->lines);
	sp_array_release(&contents->output);
	sp_array_release(&contents->input);
	sp_array_release(&contents->unseen);
}

/* Also lets the kernel bring to its place what was written a moment ago. */
static short events(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLOUT};

	poll(&poll_fd, 1, 0);
	return poll_fd.revents;
}

static int waiting_bytes(int fd)
{
	int bytes = 0;

	ioctl(fd, FIONREAD, &bytes);
	return bytes;
}

/* --- modes --- */

static bool has_lines(const struct termios2 *modes)
{
	return (modes->c_lflag & (ICANON | EXTPROC)) == ICANON;
}

static struct termios2 neutral(const struct termios2 *modes, bool lines)
{
	struct termios2 neutral = *modes;

	neutral.c_iflag = neutral.c_oflag = 0;
	neutral.c_lflag = (modes->c_lflag & EXTPROC) | (lines ? ICANON : 0);
	memset(neutral.c_cc, 0, sizeof(neutral.c_cc));
	neutral.c_cc[VMIN] = 1;
	return neutral;
}

static int set_modes(const struct sp_pty *pty, const struct termios2 *modes, struct sp_error *err)
{
	if (!ioctl(pty->master, TCSETS2, modes))
		return 0;
	return sp_fail_errno(err, errno, "cannot set its modes");
}

/*
 * So that what has not been looked at can be told from what has: a line that was written there, ended
 * by a carriage return as from a keyboard, ends.
 */
static int set_modes_to_read(const struct sp_pty *pty, bool lines, struct sp_error *err)
{
	struct termios2 modes = neutral(&pty->modes, lines);

	if (lines)
		modes.c_cc[VEOL] = '\r';
	return set_modes(pty, &modes, err);
}

static int set_modes_to_type(const struct sp_pty *pty, bool lines, struct sp_error *err)
{
	struct termios2 modes = neutral(&pty->modes, lines);

	if (lines) {
		modes.c_lflag |= IEXTEN;
		modes.c_cc[VEOF] = END_OF_FILE;
		modes.c_cc[VLNEXT] = QUOTE;
	}
	return set_modes(pty, &modes, err);
}

/* --- reading --- */

static int read_all(int fd, struct sp_array *bytes, struct sp_error *err)
{
	uint8_t chunk[CHUNK_SIZE];

	while (events(fd) & POLLIN) {
		ssize_t size = read(fd, chunk, sizeof(chunk));

		if (size < 0)
			return sp_fail_errno(err, errno, "cannot read what waits in it");
		sp_array_append_all(bytes, chunk, (size_t)size);
	}
	return 0;
}

static int read_lines(int slave, struct sp_array *lines, struct sp_error *err)
{
	uint8_t chunk[CHUNK_SIZE];

	while (events(slave) & POLLIN) {
		ssize_t size = read(slave, chunk, sizeof(chunk));
		ProtobufCBinaryData *line;

		if (size < 0)
			return sp_fail_errno(err, errno, "cannot read the lines that wait in it");
		line = sp_array_push(lines);
		line->len = (size_t)size;
		line->data = memcpy(sp_alloc((size_t)size + 1), chunk, (size_t)size);
	}
	return 0;
}

static bool ends_by_itself(const ProtobufCBinaryData *line)
{
	return line->len && line->data[line->len - 1] == '\n';
}

static void divide_bytes(struct sp_pty_contents *contents, const uint8_t *bytes, size_t size,
                         size_t *room)
{
	size_t seen = size < *room ? size : *room;

	if (!size)
		return;
	sp_array_append_all(&contents->input, bytes, seen);
	sp_array_append_all(&contents->unseen, bytes + seen, size - seen);
	*room -= seen;
}

/* Divides what was read, all lines and then `rest`, into what the terminal had seen and what not. */
static void divide(struct sp_pty_contents *contents, const struct sp_array *rest)
{
	size_t room = ROOM, kept = 0;
	ProtobufCBinaryData *lines = contents->lines.items;

	for (; kept < contents->lines.count; kept++) {
		size_t size = lines[kept].len + !ends_by_itself(&lines[kept]);

		if (size > room)
			break;
		room -= size;
	}
	for (size_t i = kept; i < contents->lines.count; i++) {
		divide_bytes(contents, lines[i].data, lines[i].len, &room);
		free(lines[i].data);
	}
	contents->lines.count = kept;
	divide_bytes(contents, rest->items, rest->count, &room);
}

/* Output that was stopped by ^S goes on in neutral modes, other output does not. */
static void resume(const struct sp_pty *pty, struct sp_pty_contents *contents)
{
	if (events(pty->slave) & POLLOUT) {
		contents->message.stopped = SEALPOINT__PTY__CONTENTS__STOPPED__BY_CHARACTER;
		return;
	}
	contents->message.stopped = SEALPOINT__PTY__CONTENTS__STOPPED__BY_CALL;
	ioctl(pty->slave, TCXONC, TCOON);
}

static int take(const struct sp_pty *pty, struct sp_pty_contents *contents, struct sp_error *err)
{
	sp_cleanup_array struct sp_array rest = SP_ARRAY_OF(uint8_t);
	bool lines = has_lines(&pty->modes), stopped;
	int rc = read_all(pty->master, &contents->output, err);

	stopped = !(events(pty->slave) & POLLOUT);
	if (!rc)
		rc = set_modes_to_read(pty, lines, err);
	if (!rc && stopped)
		resume(pty, contents);
	if (!rc && lines)
		rc = read_lines(pty->slave, &contents->lines, err);
	if (!rc && lines)
		rc = set_modes_to_read(pty, false, err);
	if (!rc)
		rc = read_all(pty->slave, &rest, err);
	/* The echo of what was typed while output was stopped. */
	if (!rc && stopped)
		rc = read_all(pty->master, &contents->output, err);
	divide(contents, &rest);
	return rc;
}

/* In canonical mode, only a look can tell. */
static bool is_empty(const struct sp_pty *pty)
{
	return !has_lines(&pty->modes) && !(events(pty->master) & POLLIN) &&
	       events(pty->slave) & POLLOUT && !waiting_bytes(pty->slave);
}

static ProtobufCBinaryData bytes_of(const struct sp_array *array)
{
	return (ProtobufCBinaryData){.len = array->count, .data = array->items};
}

int sp_pty_contents_save(const struct sp_pty *pty, struct sp_pty_contents *contents,
                         struct sp_error *err)
{
	Sealpoint__Pty__Contents *message = &contents->message;
	sigset_t all, before;
	int rc, put_back;

	if (is_empty(pty))
		return 0;
	if (!sp_capability_have(CAP_SYS_ADMIN))
		return sp_fail(err, EPERM,
		               "what waits in it could not be put back; run as root (or with "
		               "CAP_SYS_ADMIN)");
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	rc = take(pty, contents, err);
	message->output = bytes_of(&contents->output);
	message->lines = contents->lines.items;
	message->n_lines = contents->lines.count;
	message->input = bytes_of(&contents->input);
	message->unseen = bytes_of(&contents->unseen);
	put_back = sp_pty_contents_put(pty, message, rc ? NULL : err);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return rc ? rc : put_back;
}

/* --- putting --- */

/* `other_end` is asked so that the kernel moves what was written, and there is room again. */
static int write_all(int fd, int other_end, ProtobufCBinaryData bytes, struct sp_error *err)
{
	while (bytes.len) {
		struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
		ssize_t size = write(fd, bytes.data, bytes.len);

		if (size < 0 && errno != EAGAIN)
			return sp_fail_errno(err, errno, "cannot write what waited in it");
		if (size > 0) {
			bytes.data += size;
			bytes.len -= (size_t)size;
			continue;
		}
		events(other_end);
		if (poll(&poll_fd, 1, ROOM_TIMEOUT_MS) <= 0)
			return sp_fail(err, EIO, "what waited in it does not fit any more");
	}
	return 0;
}

static int type(int slave, uint8_t byte, struct sp_error *err)
{
	if (!ioctl(slave, TIOCSTI, &byte))
		return 0;
	return sp_fail_errno(err, errno,
	                     "cannot put back what was typed (TIOCSTI needs CAP_SYS_ADMIN)");
}

static int type_quoted(int slave, uint8_t byte, struct sp_error *err)
{
	int rc = 0;

	if (byte == '\n' || byte == END_OF_FILE || byte == QUOTE)
		rc = type(slave, QUOTE, err);
	return rc ? rc : type(slave, byte, err);
}

static int type_line(int slave, const ProtobufCBinaryData *line, struct sp_error *err)
{
	size_t quoted = line->len - ends_by_itself(line);
	int rc = 0;

	for (size_t i = 0; i < quoted && !rc; i++)
		rc = type_quoted(slave, line->data[i], err);
	return rc ? rc : type(slave, ends_by_itself(line) ? '\n' : END_OF_FILE, err);
}

static int type_all(const struct sp_pty *pty, const Sealpoint__Pty__Contents *contents, bool lines,
                    struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < contents->n_lines && !rc; i++)
		rc = type_line(pty->slave, &contents->lines[i], err);
	for (size_t i = 0; i < contents->input.len && !rc; i++)
		rc = lines ? type_quoted(pty->slave, contents->input.data[i], err)
		           : type(pty->slave, contents->input.data[i], err);
	return rc;
}

static int stop(const struct sp_pty *pty, bool by_call, struct sp_error *err)
{
	struct termios2 modes = neutral(&pty->modes, has_lines(&pty->modes));
	int rc;

	if (by_call)
		return ioctl(pty->slave, TCXONC, TCOOFF)
		               ? sp_fail_errno(err, errno, "cannot stop its output")
		               : 0;
	modes.c_iflag = IXON;
	modes.c_cc[VSTOP] = STOP;
	rc = set_modes(pty, &modes, err);
	return rc ? rc : type(pty->slave, STOP, err);
}

/* The master of a stopped process may be one that blocks. */
static int write_unseen(const struct sp_pty *pty, ProtobufCBinaryData bytes, struct sp_error *err)
{
	int flags, rc;

	if (!bytes.len)
		return 0;
	flags = fcntl(pty->master, F_GETFL);
	fcntl(pty->master, F_SETFL, flags | O_NONBLOCK);
	rc = write_all(pty->master, pty->slave, bytes, err);
	fcntl(pty->master, F_SETFL, flags);
	return rc;
}

int sp_pty_contents_put(const struct sp_pty *pty, const Sealpoint__Pty__Contents *contents,
                        struct sp_error *err)
{
	bool lines = has_lines(&pty->modes);
	int rc = set_modes_to_type(pty, lines, err), set;

	if (!rc)
		rc = write_all(pty->slave, pty->master, contents->output, err);
	if (!rc)
		rc = type_all(pty, contents, lines, err);
	if (!rc && contents->stopped)
		rc = stop(pty, contents->stopped == SEALPOINT__PTY__CONTENTS__STOPPED__BY_CALL,
		          err);
	/* In any case: they are the program's. */
	set = set_modes(pty, &pty->modes, rc ? NULL : err);
	rc = rc ? rc : set;
	return rc ? rc : write_unseen(pty, contents->unseen, err);
}
