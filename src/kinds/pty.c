/*
 * Pseudoterminals whose master is held by the program itself: tmux, sshd, script. Those that only have
 * their slave belong to somebody else (terminal.c).
 *
 * A pair is made anew, with the number that it had: /dev/pts/N is a name that programs know. The kernel
 * gives the lowest number that is free, so masters are opened until it comes. A master is one
 * open file (opening /dev/ptmx makes another pair); its record has what belongs to the pair, and it makes
 * all slaves that are open, or, of a pair without one, the first slave does.
 *
 * Slaves are opened by TIOCGPTPEER, which needs no path. One that was opened as /dev/tty can only be opened
 * by a process with that controlling terminal: one that lives for this only, and shares our
 * descriptors. A slave that is dead, because its master was closed or by vhangup(2), is hung up
 * again.
 *
 * Whose controlling terminal it is, and which group is in its foreground, is a matter of
 * the processes: engine/restore_tree.c.
 */
#include "kinds/pty.h"

#include "base/cleanup.h"
#include "kinds/file_build.h"
#include "kinds/file_path.h"
#include "kinds/file_table.h"
#include "kinds/pty_build.h"
#include "kinds/pty_contents.h"
#include "kinds/pty_holders.h"
#include "kinds/registry.h"
#include "proc/fdinfo.h"

#include <fcntl.h>
#include <linux/major.h>
#include <linux/tty.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#define MINOR_TTY 0  /* /dev/tty, with TTYAUX_MAJOR */
#define MINOR_PTMX 2 /* /dev/ptmx, with TTYAUX_MAJOR */

#define OPEN_FLAGS (O_NOCTTY | O_NONBLOCK | O_CLOEXEC)

/* --- what a file is --- */

bool sp_pty_is_master(const struct sp_open_file *file)
{
	return S_ISCHR(file->stat.st_mode) &&
	       file->stat.st_rdev == makedev(TTYAUX_MAJOR, MINOR_PTMX);
}

bool sp_pty_is_hung_up(const struct sp_open_file *file)
{
	struct termios2 modes;

	return major(file->stat.st_rdev) == UNIX98_PTY_SLAVE_MAJOR &&
	       ioctl(file->fd, TCGETS2, &modes) && errno == EIO;
}

dev_t sp_pty_terminal(const struct sp_open_file *file)
{
	unsigned device;

	if (file->stat.st_rdev != makedev(TTYAUX_MAJOR, MINOR_TTY))
		return file->stat.st_rdev;
	return ioctl(file->fd, TIOCGDEV, &device) ? 0 : device;
}

static bool has_number(const struct sp_open_file *master, unsigned number)
{
	uint64_t own;

	return sp_pty_is_master(master) &&
	       !sp_fdinfo_number(master->fdinfo, "tty-index:", 10, &own, NULL) && own == number;
}

const struct sp_open_file *sp_pty_find_master(const struct sp_file_table *table, dev_t slave)
{
	if (major(slave) != UNIX98_PTY_SLAVE_MAJOR)
		return NULL;
	for (uint32_t id = 1; id <= table->files.count; id++)
		if (has_number(sp_file_table_at(table, id), minor(slave)))
			return sp_file_table_at(table, id);
	return NULL;
}

static bool claims(const struct sp_open_file *file)
{
	return sp_pty_is_master(file);
}

/* --- dump --- */

static bool master_has(int master, unsigned long request)
{
	int value = 0;

	return !ioctl(master, request, &value) && value;
}

static short events(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLPRI};

	poll(&poll_fd, 1, 0);
	return poll_fd.revents;
}

static bool has_living_slave(const struct sp_file_table *table, const struct sp_open_file *master)
{
	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_open_file *file = sp_file_table_at(table, id);
		dev_t terminal = S_ISCHR(file->stat.st_mode) ? sp_pty_terminal(file) : 0;

		if (file != master && major(terminal) == UNIX98_PTY_SLAVE_MAJOR &&
		    has_number(master, minor(terminal)) && !sp_pty_is_hung_up(file))
			return true;
	}
	return false;
}

/* A pair as its record, and what that points to. */
struct pair {
	Sealpoint__Pty__Pair record;
	Sealpoint__Pty__Modes modes_record;
	Sealpoint__Pty__Size size_record;
	struct sp_pty pty;
	struct sp_pty_contents contents;
};

static void release_pair(struct pair *pair)
{
	sp_pty_contents_release(&pair->contents);
	if (pair->pty.slave >= 0)
		close(pair->pty.slave);
}

static int save_modes(struct pair *pair, struct sp_error *err)
{
	struct termios2 *modes = &pair->pty.modes;
	Sealpoint__Pty__Modes *record = &pair->modes_record;
	struct winsize size;

	if (ioctl(pair->pty.master, TCGETS2, modes) || ioctl(pair->pty.master, TIOCGWINSZ, &size))
		return sp_fail_errno(err, errno, "cannot read its modes and size");
	sealpoint__pty__modes__init(record);
	record->input = modes->c_iflag;
	record->output = modes->c_oflag;
	record->control = modes->c_cflag;
	record->local = modes->c_lflag;
	record->characters.data = modes->c_cc;
	record->characters.len = sizeof(modes->c_cc);
	record->input_speed = modes->c_ispeed;
	record->output_speed = modes->c_ospeed;
	pair->record.modes = record;
	sealpoint__pty__size__init(&pair->size_record);
	pair->size_record.rows = size.ws_row;
	pair->size_record.columns = size.ws_col;
	pair->size_record.width = size.ws_xpixel;
	pair->size_record.height = size.ws_ypixel;
	pair->record.size = &pair->size_record;
	return 0;
}

/* The slave's node, which is there whether somebody can open it or not. */
static int save_node(struct pair *pair, struct sp_error *err)
{
	sp_cleanup_close int node = ioctl(pair->pty.master, TIOCGPTPEER, O_PATH | O_CLOEXEC);
	struct stat stat;

	if (node < 0 || fstat(node, &stat))
		return sp_fail_errno(err, errno, "cannot examine its slave");
	pair->record.mode = stat.st_mode & 07777;
	pair->record.uid = stat.st_uid;
	pair->record.gid = stat.st_gid;
	return 0;
}

/* Even one that is locked now. */
static int open_slave(int master, bool locked, struct sp_error *err)
{
	int off = 0, on = 1, slave, code;

	if (locked)
		ioctl(master, TIOCSPTLCK, &off);
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | OPEN_FLAGS);
	code = errno;
	if (locked)
		ioctl(master, TIOCSPTLCK, &on);
	return slave < 0 ? sp_fail_errno(err, code, "cannot open its slave") : slave;
}

static int check_discipline(int fd, struct sp_error *err)
{
	int discipline = N_TTY;

	if (ioctl(fd, TIOCGETD, &discipline) || discipline == N_TTY)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "its line discipline is %d, which makes something else of it than a "
	               "terminal; let the program end that first (SLIP, PPP and the like)",
	               discipline);
}

static int save_contents(struct pair *pair, struct sp_error *err)
{
	int off = 0, on = 1, rc;

	/* Status that waits for the master would be lost, and will soon have been read. */
	if (pair->record.packets && events(pair->pty.master) & POLLPRI)
		return sp_fail(err, SP_NOT_YET,
		               "a change of state waits in it for the master, in packet mode; let "
		               "the program read it first");
	if (pair->record.packets)
		ioctl(pair->pty.master, TIOCPKT, &off);
	rc = sp_pty_contents_save(&pair->pty, &pair->contents, err);
	if (pair->record.packets)
		ioctl(pair->pty.master, TIOCPKT, &on);
	pair->record.contents = &pair->contents.message;
	return rc;
}

/* A slave that nobody has ever opened is not opened by us, because the master would notice. */
static int save_opened(struct sp_file_saver *saver, struct pair *pair, struct sp_error *err)
{
	int waiting = 0, rc;

	if (!pair->record.opened) {
		ioctl(pair->pty.master, FIONREAD, &waiting);
		if (!waiting)
			return 0;
		return sp_fail(err, ENOTSUP,
		               "something was written to it before anybody has opened the slave; "
		               "let a program open that first");
	}
	pair->pty.slave = open_slave(pair->pty.master, pair->record.locked, err);
	if (pair->pty.slave < 0)
		return pair->pty.slave;
	pair->record.exclusive = master_has(pair->pty.slave, TIOCGEXCL);
	rc = check_discipline(pair->pty.slave, err);
	return rc || !saver->pages ? rc : save_contents(pair, err);
}

static int save_pair(struct sp_file_saver *saver, const struct sp_open_file *master,
                     struct pair *pair, struct sp_error *err)
{
	int rc;

	sealpoint__pty__pair__init(&pair->record);
	sp_pty_contents_init(&pair->contents);
	pair->pty = (struct sp_pty){.master = master->fd, .slave = -1};
	pair->record.locked = master_has(master->fd, TIOCGPTLCK);
	pair->record.master_exclusive = master_has(master->fd, TIOCGEXCL);
	pair->record.packets = master_has(master->fd, TIOCGPKT);
	pair->record.opened =
	        has_living_slave(saver->table, master) || events(master->fd) & POLLHUP;
	rc = check_discipline(master->fd, err);
	if (!rc)
		rc = save_modes(pair, err);
	if (!rc)
		rc = save_node(pair, err);
	return rc ? rc : save_opened(saver, pair, err);
}

static int save_master(struct sp_file_saver *saver, const struct sp_open_file *file,
                       Sealpoint__Pty *message, struct sp_blob *body, struct sp_error *err)
{
	sp_cleanup(release_pair) struct pair pair = {.pty.slave = -1};
	sp_cleanup_free char *path = NULL;
	uint64_t number;
	bool is_first = sp_file_table_same_inode(saver->table, file, NULL) == file;
	int rc = is_first ? sp_pty_check_holders(saver, err) : 0;

	if (!rc)
		rc = sp_fdinfo_number(file->fdinfo, "tty-index:", 10, &number, err);
	if (!rc)
		rc = sp_file_path_find(file, &path, err);
	if (!rc)
		rc = save_pair(saver, file, &pair, err);
	if (rc)
		return rc;
	message->end = SEALPOINT__PTY__END__MASTER;
	message->number = (uint32_t)number;
	message->path = path;
	message->pair = &pair.record;
	sp_blob_pack(body, &message->base);
	return 0;
}

static int save_slave(struct sp_file_saver *saver, const struct sp_open_file *file,
                      Sealpoint__Pty *message, struct sp_blob *body, struct sp_error *err)
{
	dev_t terminal = sp_pty_terminal(file);
	bool gone = file->stat.st_nlink == 0;
	const struct sp_open_file *master =
	        gone ? NULL : sp_pty_find_master(saver->table, terminal);

	if (!terminal)
		return sp_fail(err, ENOTSUP,
		               "its terminal is gone, and nobody can tell which it was; let the "
		               "program close it first");
	message->end = terminal == file->stat.st_rdev ? SEALPOINT__PTY__END__SLAVE
	                                              : SEALPOINT__PTY__END__CONTROLLING;
	message->number = minor(terminal);
	message->path = file->link;
	message->master = master ? master->id : 0;
	message->hung_up = sp_pty_is_hung_up(file);
	sp_blob_pack(body, &message->base);
	return 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Pty message = SEALPOINT__PTY__INIT;

	if (sp_pty_is_master(file))
		return save_master(saver, file, &message, body, err);
	return save_slave(saver, file, &message, body, err);
}

/* --- restore --- */

static int open_pty(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                    struct sp_error *err)
{
	return sp_pty_open(builder, file, err);
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Pty *message = sp_pty_unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	return message->pair ? sp_pty_settle(builder->fds[file->id], message->pair, err) : 0;
}

/* --- looking --- */

static bool is_pair_sound(const Sealpoint__Pty *message)
{
	const Sealpoint__Pty__Pair *pair = message->pair;

	return pair && pair->modes && pair->size && message->path[0] == '/' &&
	       pair->modes->characters.len == sizeof((struct termios2){}.c_cc) &&
	       (pair->opened || !pair->contents);
}

static bool is_master_of(const struct sp_checkpoint *checkpoint, uint32_t id, uint32_t number)
{
	const Sealpoint__OpenFile *file = sp_checkpoint_file(checkpoint, id);
	sp_cleanup_message Sealpoint__Pty *message = NULL;

	if (file && !strcmp(file->kind, sp_kind_pty.name))
		message = sp_pty_unpack(file->body, NULL);
	return message && message->pair && message->number == number;
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Pty *message = sp_pty_unpack(file->body, err);
	bool sound;

	if (!message)
		return -EBADMSG;
	if (message->end == SEALPOINT__PTY__END__MASTER)
		sound = is_pair_sound(message) && !message->master && !message->hung_up;
	else if (message->master)
		sound = !message->pair &&
		        is_master_of(checkpoint, message->master, message->number);
	else
		sound = !message->pair && message->hung_up;
	return sound ? 0 : sp_fail_damaged(err, "an impossible pseudoterminal");
}

static void describe_pair(const Sealpoint__Pty *message, char *text, size_t size)
{
	const Sealpoint__Pty__Pair *pair = message->pair;
	const Sealpoint__Pty__Contents *contents = pair->contents;
	size_t typed = contents ? contents->input.len + contents->unseen.len : 0;

	for (size_t i = 0; contents && i < contents->n_lines; i++)
		typed += contents->lines[i].len;
	snprintf(text, size, "/dev/pts/%u, its master, %u x %u, %zu bytes to read, %zu written%s%s",
	         message->number, pair->size ? pair->size->columns : 0,
	         pair->size ? pair->size->rows : 0, contents ? contents->output.len : 0, typed,
	         pair->locked ? ", locked" : "", pair->packets ? ", in packet mode" : "");
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Pty *message = sp_pty_unpack(body, NULL);

	if (message && message->pair)
		describe_pair(message, text, size);
	else if (message)
		snprintf(text, size, "/dev/pts/%u%s%s", message->number,
		         message->end == SEALPOINT__PTY__END__CONTROLLING ? ", as /dev/tty" : "",
		         message->hung_up ? ", hung up" : "");
}

const struct sp_file_kind sp_kind_pty = {
        .name = "pty",
        .title = "pseudoterminal",
        .claims = claims,
        .save = save,
        .open = open_pty,
        .settle = settle,
        .describe = describe,
        .check = check,
};
