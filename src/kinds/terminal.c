/*
 * A terminal that the program was started on. It belongs to somebody else: a terminal emulator, an
 * ssh server, a getty. So it is not saved; at restore the program gets the terminal of whoever
 * restores it. For that the user says at the dump that this is wanted (--shell-job).
 *
 * Its modes are the program's business, though: an editor that had set its terminal to give it each
 * key without echo would be blind and deaf without them. They are saved, and given to the terminal
 * of a restore in the foreground; in the background they would trouble the shell that has it.
 *
 * A pseudoterminal whose master is held by the program as well is its own: pty.c. So are virtual terminals
 * and serial lines, but for one that the program was started on: line.c. The console is refused.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "kinds/file_build.h"
#include "kinds/file_path.h"
#include "kinds/pty.h"
#include "proc/stat.h"

#include "terminal.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/major.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <termios.h>

#define MINOR_TTY 0 /* /dev/tty, with TTYAUX_MAJOR */

static bool is_controlling(const struct sp_open_file *file)
{
	return file->stat.st_rdev == makedev(TTYAUX_MAJOR, MINOR_TTY);
}

static bool is_slave(const struct sp_open_file *file)
{
	return major(file->stat.st_rdev) == UNIX98_PTY_SLAVE_MAJOR;
}

/* The terminal that the program's session is on, whatever sort of device it is. */
static bool is_login(const struct sp_open_file *file)
{
	struct sp_stat stat;

	return !sp_stat_read(file->pid, file->pid, &stat, NULL) &&
	       (dev_t)stat.tty == file->stat.st_rdev;
}

static bool claims(const struct sp_open_file *file)
{
	unsigned device_major = major(file->stat.st_rdev);

	return S_ISCHR(file->stat.st_mode) &&
	       (device_major == TTY_MAJOR || device_major == TTYAUX_MAJOR || is_slave(file) ||
	        is_login(file));
}

static const struct sp_file_kind *resolve(const struct sp_file_table *table,
                                          const struct sp_open_file *file)
{
	if (sp_pty_is_hung_up(file) || sp_pty_find_master(table, sp_pty_terminal(file)))
		return &sp_kind_pty;
	return &sp_kind_terminal;
}

/* One that is no pseudoterminal, and line.c has left alone, can only be that of a login. */
static int check_hardware(const struct sp_open_file *file, struct sp_error *err)
{
	if (is_slave(file) || is_controlling(file) || is_login(file))
		return 0;
	return sp_fail(err, ENOTSUP,
	               "it is the console, which stays as it is when the program is gone; let the "
	               "program close it first");
}

/* The modes as a record, and what that points to. */
struct modes {
	struct termios termios;
	Sealpoint__Terminal__Modes record;
};

static void save_modes(int fd, Sealpoint__Terminal *message, struct modes *modes)
{
	if (tcgetattr(fd, &modes->termios))
		return;
	sealpoint__terminal__modes__init(&modes->record);
	modes->record.input = modes->termios.c_iflag;
	modes->record.output = modes->termios.c_oflag;
	modes->record.local = modes->termios.c_lflag;
	modes->record.characters.data = modes->termios.c_cc;
	modes->record.characters.len = sizeof(modes->termios.c_cc);
	message->modes = &modes->record;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Terminal message = SEALPOINT__TERMINAL__INIT;
	struct modes modes;

	if (check_hardware(file, err))
		return -ENOTSUP;
	if (!saver->options->shell_job)
		return sp_fail(err, ENOTSUP,
		               "the terminal belongs to somebody else; give --shell-job to let the "
		               "program have the terminal of the restore in its place, or start it "
		               "without one (setsid PROGRAM </dev/null >FILE 2>&1)");
	save_modes(file->fd, &message, &modes);
	message.path = file->link;
	message.controlling = is_controlling(file);
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__Terminal *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__terminal__descriptor, err);
}

/*
 * An open file of its own, so that its flags are not those of the shell. Returns -1 if there is
 * none.
 */
static int open_standard_terminal(int flags)
{
	for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
		if (isatty(number))
			return sp_reopen(number, flags | O_NOCTTY | O_NONBLOCK, NULL);
	return -1;
}

static int open_terminal(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                         struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Terminal *message = unpack(file->body, err);
	int flags = sp_file_path_flags(file);

	if (!message)
		return -EBADMSG;
	if (!message->controlling)
		*fd = open_standard_terminal(flags);
	if (*fd < 0)
		*fd = open("/dev/tty", flags | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (*fd < 0)
		*fd = open_standard_terminal(flags);
	if (*fd >= 0)
		return 0;
	return sp_fail(err, ENXIO,
	               "sealpoint has no terminal to give; restore from a terminal, or inside one "
	               "(script -c \"sealpoint restore DIR\")");
}

struct changed_modes {
	int fd; /* lives until the failed restore has been undone */
	struct termios before;
};

static void put_back_modes(void *context)
{
	const struct changed_modes *changed = context;

	tcsetattr(changed->fd, TCSANOW, &changed->before);
}

static int set_modes(struct sp_file_builder *builder, int fd,
                     const Sealpoint__Terminal__Modes *modes, struct sp_error *err)
{
	struct changed_modes *changed = sp_alloc(sizeof(*changed));
	struct termios termios;

	sp_file_builder_on_failure(builder, (struct sp_file_undo){put_back_modes, changed});
	changed->fd = fd;
	if (tcgetattr(fd, &changed->before))
		return sp_fail_errno(err, errno, "cannot read the modes of sealpoint's terminal");
	termios = changed->before;
	termios.c_iflag = modes->input;
	termios.c_oflag = modes->output;
	termios.c_lflag = modes->local;
	memcpy(termios.c_cc, modes->characters.data, modes->characters.len);
	if (tcsetattr(fd, TCSANOW, &termios))
		return sp_fail_errno(err, errno, "cannot set the modes of sealpoint's terminal");
	return 0;
}

/* A terminal that is not ours is nobody's to be asked; one that is, only while it is given to us. */
static bool may_set_modes(int fd)
{
	pid_t foreground = tcgetpgrp(fd);

	return foreground < 0 || foreground == getpgrp();
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Terminal *message = unpack(file->body, err);
	int fd = builder->fds[file->id];

	if (!message)
		return -EBADMSG;
	if (!message->modes || !builder->options->foreground || !may_set_modes(fd))
		return 0;
	return set_modes(builder, fd, message->modes, err);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Terminal *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	if (message->modes && message->modes->characters.len > sizeof((struct termios){}.c_cc))
		return sp_fail_damaged(err, "impossible modes");
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Terminal *message = unpack(body, NULL);

	if (message)
		snprintf(text, size, "%s, becomes the terminal of the restore", message->path);
}

const struct sp_file_kind sp_kind_terminal = {
        .name = "terminal",
        .title = "terminal",
        .claims = claims,
        .resolve = resolve,
        .save = save,
        .open = open_terminal,
        .settle = settle,
        .describe = describe,
        .check = check,
};
