/*
 * A terminal that the program was started on. It belongs to somebody else: a terminal emulator, an
 * ssh server, a getty. So it is not saved; at restore the program gets the terminal of whoever
 * restores it, with the settings that it has. For that the user says at the dump that this is
 * wanted (--shell-job).
 *
 * The master of a pseudoterminal is refused: whoever holds it is such a somebody.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "kinds/file_build.h"
#include "kinds/file_path.h"

#include "terminal.pb-c.h"

#include <fcntl.h>
#include <linux/major.h>
#include <sys/sysmacros.h>

#define MINOR_TTY 0  /* /dev/tty, with TTYAUX_MAJOR */
#define MINOR_PTMX 2 /* /dev/ptmx, with TTYAUX_MAJOR */

static bool is_auxiliary(const struct sp_open_file *file, unsigned device_minor)
{
	return major(file->stat.st_rdev) == TTYAUX_MAJOR &&
	       minor(file->stat.st_rdev) == device_minor;
}

static bool claims(const struct sp_open_file *file)
{
	unsigned device_major = major(file->stat.st_rdev);

	if (!S_ISCHR(file->stat.st_mode))
		return false;
	return device_major == TTY_MAJOR || device_major == TTYAUX_MAJOR ||
	       (device_major >= UNIX98_PTY_SLAVE_MAJOR &&
	        device_major < UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Terminal message = SEALPOINT__TERMINAL__INIT;

	if (is_auxiliary(file, MINOR_PTMX))
		return sp_fail(
		        err, EOPNOTSUPP,
		        "it is the master of a pseudoterminal, which sealpoint cannot save yet: "
		        "dump the program that runs in the terminal, not the one that draws it");
	if (!saver->options->shell_job)
		return sp_fail(err, EOPNOTSUPP,
		               "the terminal belongs to somebody else: give --shell-job to let the "
		               "program have the terminal of the restore in its place, or start it "
		               "without one (setsid PROGRAM </dev/null >FILE 2>&1)");
	message.path = file->link;
	message.controlling = is_auxiliary(file, MINOR_TTY);
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
	               "sealpoint has no terminal to give: restore from a terminal, or inside one "
	               "(script -c \"sealpoint restore DIR\")");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Terminal *message = unpack(file->body, err);

	return message ? 0 : -EBADMSG;
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
        .save = save,
        .open = open_terminal,
        .describe = describe,
        .check = check,
};
