/*
 * Virtual terminals and serial lines of this machine that a program has opened by itself: not the one that it was started
 * on (terminal.c). They are devices, which the restored program finds at their path, and get the modes and speeds
 * that they had. Refused is what a restore could not give: input that waits, another line discipline (PPP), the
 * graphics and the raw keyboard of a display server.
 */
#include "kinds/registry.h"

#include "kinds/file_build.h"
#include "kinds/file_path.h"
#include "proc/stat.h"

#include "line.pb-c.h"

#include <asm/termbits.h>
#include <linux/kd.h>
#include <linux/major.h>
#include <linux/vt.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#define FIRST_SERIAL_MINOR \
	64 /* with TTY_MAJOR; below it are virtual terminals, 0 is the visible one */

/* Serial lines, beside those of TTY_MAJOR (Documentation/admin-guide/devices.txt). */
static const unsigned serial_majors[] = {166, 188, 204, 229};

static bool is_line(dev_t device)
{
	for (size_t i = 0; i < SP_COUNT_OF(serial_majors); i++)
		if (major(device) == serial_majors[i])
			return true;
	return major(device) == TTY_MAJOR && minor(device);
}

static bool claims(const struct sp_open_file *file)
{
	dev_t device = file->stat.st_rdev;
	struct sp_stat stat;

	return S_ISCHR(file->stat.st_mode) && is_line(device) &&
	       (sp_stat_read(file->pid, file->pid, &stat, NULL) || (dev_t)stat.tty != device);
}

/* --- saving --- */

/* A serial line has no such modes, and fails. */
static int refuse_display(int fd, struct sp_error *err)
{
	struct vt_mode switching = {0};
	int graphics = KD_TEXT, keyboard = K_XLATE;

	ioctl(fd, KDGETMODE, &graphics);
	ioctl(fd, KDGKBMODE, &keyboard);
	ioctl(fd, VT_GETMODE, &switching);
	if (graphics == KD_TEXT && switching.mode == VT_AUTO &&
	    (keyboard == K_XLATE || keyboard == K_UNICODE))
		return 0;
	return sp_fail(err, ENOTSUP,
	               "a display server has its graphics or its keyboard; save its clients on "
	               "another one (Xvfb), or end it first");
}

static int check_state(int fd, const struct termios2 *modes, struct sp_error *err)
{
	int waiting = 0;

	if (modes->c_line)
		return sp_fail(
		        err, ENOTSUP,
		        "something else than a terminal goes through it (line discipline %u, "
		        "as of PPP); end that first",
		        modes->c_line);
	if (!ioctl(fd, FIONREAD, &waiting) && waiting)
		return sp_fail(err, SP_NOT_YET, "input waits in it; let the program read it first");
	return refuse_display(fd, err);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Line message = SEALPOINT__LINE__INIT;
	sp_cleanup_free char *path = NULL;
	struct termios2 modes;
	int exclusive = 0;

	if (ioctl(file->fd, TCGETS2, &modes) < 0)
		return sp_fail_errno(err, errno, "cannot read its modes");
	if (check_state(file->fd, &modes, err) < 0 || sp_file_path_find(file, &path, err) < 0)
		return -err->code;
	ioctl(file->fd, TIOCGEXCL, &exclusive);
	message.path = path;
	message.device = file->stat.st_rdev;
	message.modes.data = (uint8_t *)&modes;
	message.modes.len = sizeof(modes);
	message.exclusive = exclusive;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- rebuilding --- */

struct changed_modes {
	int fd; /* lives until the failed restore has been undone */
	struct termios2 before;
};

static void put_back_modes(void *context)
{
	struct changed_modes *changed = context;

	ioctl(changed->fd, TCSETS2, &changed->before);
}

static int set_modes(struct sp_file_builder *builder, int fd, const Sealpoint__Line *message,
                     struct sp_error *err)
{
	struct changed_modes *changed = sp_alloc(sizeof(*changed));
	struct termios2 modes;

	sp_file_builder_on_failure(builder, (struct sp_file_undo){put_back_modes, changed});
	changed->fd = fd;
	memcpy(&modes, message->modes.data, sizeof(modes));
	if (ioctl(fd, TCGETS2, &changed->before) < 0 || ioctl(fd, TCSETS2, &modes) < 0 ||
	    (message->exclusive && ioctl(fd, TIOCEXCL) < 0))
		return sp_fail_errno(err, errno, "cannot set the modes of %s", message->path);
	return 0;
}

static int open_line(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                     struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Line *message =
	        sp_blob_unpack(file->body, &sealpoint__line__descriptor, err);
	sp_cleanup_close int opened = -1;
	struct stat stat;

	if (!message)
		return -EBADMSG;
	opened = sp_file_path_open(message->path, sp_file_path_flags(file), S_IFCHR, err);
	if (opened < 0)
		return opened;
	if (fstat(opened, &stat) || stat.st_rdev != message->device)
		return sp_fail(err, ENODEV, "%s is another device now", message->path);
	*fd = sp_steal_fd(&opened);
	return 0;
}

/* Late: nobody else is to see other modes if the restore fails. */
static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Line *message =
	        sp_blob_unpack(file->body, &sealpoint__line__descriptor, err);

	return message ? set_modes(builder, builder->fds[file->id], message, err) : -EBADMSG;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Line *message =
	        sp_blob_unpack(body, &sealpoint__line__descriptor, NULL);

	if (message)
		snprintf(text, size, "%s%s", message->path,
		         message->exclusive ? ", exclusive" : "");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Line *message =
	        sp_blob_unpack(file->body, &sealpoint__line__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (message->modes.len != sizeof(struct termios2))
		return sp_fail_damaged(err, "impossible modes of a line");
	return sp_file_path_check(message->path, err);
}

const struct sp_file_kind sp_kind_line = {
        .name = "line",
        .title = "virtual terminal or serial line",
        .claims = claims,
        .save = save,
        .open = open_line,
        .settle = settle,
        .describe = describe,
        .check = check,
};
