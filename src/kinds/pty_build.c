/*
 * Making pseudoterminals anew at restore: the second half of pty.c, which tells the idea.
 */
#include "kinds/pty_build.h"

#include "base/cleanup.h"
#include "kinds/file_build.h"
#include "kinds/file_path.h"
#include "kinds/pty_contents.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define OPEN_FLAGS (O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
#define KERNEL_LARGEFILE 0100000 /* open(2) sets it, and the C library does not tell */
#define ANY_PTMX "/dev/ptmx"

Sealpoint__Pty *sp_pty_unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__pty__descriptor, err);
}

/* The next record of a pseudoterminal from index `*next` on, and its message; NULL: none. */
static const Sealpoint__OpenFile *next_pty(const struct sp_file_builder *builder, size_t *next,
                                           Sealpoint__Pty **message)
{
	const struct sp_array *files = &builder->checkpoint->files;

	while (*next < files->count) {
		const Sealpoint__OpenFile *file = sp_array_pointer(files, (*next)++);

		if (strcmp(file->kind, "pty"))
			continue;
		*message = sp_pty_unpack(file->body, NULL);
		if (*message)
			return file;
	}
	return NULL;
}

/* --- numbers --- */

static bool is_needed(const struct sp_file_builder *builder, unsigned number)
{
	bool needed = false;
	size_t next = 0;

	while (!needed) {
		sp_cleanup_message Sealpoint__Pty *message = NULL;

		if (!next_pty(builder, &next, &message))
			break;
		needed = message->pair && message->number == number;
	}
	return needed;
}

static int refuse_number(unsigned number, struct sp_error *err)
{
	return sp_fail(
	        err, EEXIST,
	        "/dev/pts/%u is another terminal now, and the program may know its own by that "
	        "name; close that one (ps -t pts/%u), or restore where terminals are numbered "
	        "anew (unshare --mount sh -c \"mount -t devpts -o ptmxmode=666 devpts "
	        "/dev/pts && sealpoint restore ...\")",
	        number, number);
}

static void close_all(struct sp_array *fds)
{
	for (size_t i = 0; i < fds->count; i++)
		close(*(int *)sp_array_at(fds, i));
	sp_array_release(fds);
}

/*
 * Opens masters until the one with the number comes, each the lowest that is free. A pair that is dead
 * anyway may have another number, but none that is needed. Returns the descriptor.
 */
static int open_master(const struct sp_file_builder *builder, const Sealpoint__Pty *message,
                       const char *path, int flags, struct sp_error *err)
{
	sp_cleanup(close_all) struct sp_array others = SP_ARRAY_OF(int);

	for (;;) {
		int fd = sp_file_path_open(path, flags, S_IFCHR, err);
		unsigned number;

		if (fd < 0)
			return fd;
		sp_array_append(&others, &fd);
		if (ioctl(fd, TIOCGPTN, &number))
			return sp_fail_errno(err, errno, "%s makes no pseudoterminals", path);
		if (number == message->number ||
		    (!message->pair && number > message->number && !is_needed(builder, number)))
			break;
		if (message->pair && number > message->number)
			return refuse_number(message->number, err);
	}
	return *(int *)sp_array_at(&others, --others.count);
}

/* --- slaves --- */

struct controlling {
	int master, flags; /* in */
	int fd, code;      /* out */
};

/* Runs in a process of its own, which shares our memory and descriptors. */
static int open_controlling(void *argument)
{
	struct controlling *controlling = argument;

	controlling->fd = -1;
	if (setsid() >= 0 && !ioctl(controlling->master, TIOCSCTTY, 0))
		controlling->fd = open("/dev/tty", controlling->flags | OPEN_FLAGS);
	controlling->code = errno;
	return 0;
}

static int open_as_controlling(int master, int flags, struct sp_error *err)
{
	_Alignas(16) char stack[16384];
	struct controlling controlling = {.master = master, .flags = flags, .fd = -1};
	sigset_t all, before;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before); /* it gets SIGHUP when it ends */
	pid = clone(open_controlling, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | CLONE_FILES,
	            &controlling);
	if (pid < 0)
		controlling.code = errno;
	else
		waitpid(pid, NULL, __WALL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (controlling.fd >= 0)
		return controlling.fd;
	return sp_fail_errno(err, controlling.code, "cannot open it as /dev/tty");
}

static int open_slave(int master, const Sealpoint__OpenFile *file, const Sealpoint__Pty *message,
                      struct sp_error *err)
{
	int flags = sp_file_path_flags(file), fd;

	if (message->end == SEALPOINT__PTY__END__CONTROLLING)
		return open_as_controlling(master, flags, err);
	/* The open file would keep O_CLOEXEC, which is a descriptor's. */
	flags |= (int)file->flags & KERNEL_LARGEFILE;
	fd = ioctl(master, TIOCGPTPEER, flags | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC))
		return sp_fail_errno(err, errno, "cannot open its slave");
	return fd;
}

/*
 * Opens those slaves of `master` (0: of the pair whose first dead slave is `first`) that are hung up, or those
 * that are not. `*last` gets one of them.
 */
static int open_slaves(struct sp_file_builder *builder, int fd, uint32_t master, uint32_t first,
                       bool hung_up, int *last, struct sp_error *err)
{
	size_t next = 0;
	int rc = 0;

	while (!rc) {
		sp_cleanup_message Sealpoint__Pty *message = NULL;
		const Sealpoint__OpenFile *file = next_pty(builder, &next, &message);

		if (!file)
			break;
		if (message->end == SEALPOINT__PTY__END__MASTER || message->master != master ||
		    message->hung_up != hung_up)
			continue;
		if (!master && file->id != first && file->same_inode != first)
			continue;
		rc = open_slave(fd, file, message, err);
		*last = builder->fds[file->id] = rc < 0 ? -1 : rc;
		rc = rc < 0 ? rc : 0;
	}
	return rc;
}

/* --- a pair --- */

static void read_modes(const Sealpoint__Pty__Modes *record, struct termios2 *modes)
{
	*modes = (struct termios2){
	        .c_iflag = record->input,
	        .c_oflag = record->output,
	        .c_cflag = record->control,
	        .c_lflag = record->local,
	        .c_ispeed = record->input_speed,
	        .c_ospeed = record->output_speed,
	};
	memcpy(modes->c_cc, record->characters.data, sizeof(modes->c_cc));
}

static int set_node(int master, const Sealpoint__Pty__Pair *pair, struct sp_error *err)
{
	sp_cleanup_close int node = ioctl(master, TIOCGPTPEER, O_PATH | O_CLOEXEC);
	sp_cleanup_free char *path = sp_format("/proc/self/fd/%d", node);

	if (node < 0 || fchownat(node, "", pair->uid, pair->gid, AT_EMPTY_PATH) ||
	    chmod(path, pair->mode))
		return sp_fail_errno(err, errno, "cannot set owner and mode of its slave");
	return 0;
}

static int set_size(int master, const Sealpoint__Pty__Size *record, struct sp_error *err)
{
	const struct winsize size = {
	        .ws_row = (unsigned short)record->rows,
	        .ws_col = (unsigned short)record->columns,
	        .ws_xpixel = (unsigned short)record->width,
	        .ws_ypixel = (unsigned short)record->height,
	};

	return ioctl(master, TIOCSWINSZ, &size) ? sp_fail_errno(err, errno, "cannot set its size")
	                                        : 0;
}

/* What a slave that was opened notices: modes and contents. */
static int fill(int master, const Sealpoint__Pty__Pair *pair, struct sp_error *err)
{
	struct sp_pty pty = {.master = master, .slave = -1};
	sp_cleanup_close int slave = -1;

	read_modes(pair->modes, &pty.modes);
	if (pair->opened)
		pty.slave = slave = ioctl(master, TIOCGPTPEER, O_RDWR | OPEN_FLAGS);
	if (pair->opened && slave < 0)
		return sp_fail_errno(err, errno, "cannot open its slave");
	if (pair->contents)
		return sp_pty_contents_put(&pty, pair->contents, err);
	return ioctl(master, TCSETS2, &pty.modes)
	               ? sp_fail_errno(err, errno, "cannot set its modes")
	               : 0;
}

static int hang_up(int slave, struct sp_error *err)
{
	if (slave < 0 || !ioctl(slave, TIOCVHANGUP))
		return 0;
	return sp_fail_errno(err, errno, "cannot hang it up again");
}

static int make_pair(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Pty *message = sp_pty_unpack(file->body, err);
	const Sealpoint__Pty__Pair *pair = message ? message->pair : NULL;
	int off = 0, dead = -1, last = -1, fd, rc;

	if (!message)
		return -EBADMSG;
	fd = open_master(builder, message, message->path, sp_file_path_flags(file), err);
	if (fd < 0)
		return fd;
	builder->fds[file->id] = fd;
	if (ioctl(fd, TIOCSPTLCK, &off))
		return sp_fail_errno(err, errno, "cannot unlock it");
	rc = set_node(fd, pair, err);
	if (!rc)
		rc = open_slaves(builder, fd, file->id, 0, true, &dead, err);
	if (!rc)
		rc = hang_up(dead, err);
	if (!rc)
		rc = set_size(fd, pair->size, err);
	if (!rc)
		rc = fill(fd, pair, err);
	return rc ? rc : open_slaves(builder, fd, file->id, 0, false, &last, err);
}

/* All slaves of a pair whose master was closed. Closing it hangs them up. */
static int make_dead(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     const Sealpoint__Pty *message, struct sp_error *err)
{
	sp_cleanup_close int master = open_master(builder, message, ANY_PTMX, O_RDWR, err);
	int off = 0, last = -1;

	if (master < 0)
		return master;
	if (ioctl(master, TIOCSPTLCK, &off))
		return sp_fail_errno(err, errno, "cannot unlock it");
	return open_slaves(builder, master, 0, file->id, true, &last, err);
}

int sp_pty_open(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Pty *message = sp_pty_unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	if (message->pair)
		return make_pair(builder, file, err);
	if (message->master)
		return make_pair(builder, sp_checkpoint_file(builder->checkpoint, message->master),
		                 err);
	return make_dead(builder, file, message, err);
}

/* --- settling --- */

static int set(int fd, unsigned long request, bool wanted, const char *what, struct sp_error *err)
{
	int on = 1;

	if (!wanted || !ioctl(fd, request, &on))
		return 0;
	return sp_fail_errno(err, errno, "cannot %s", what);
}

/* What would be in the way before: it keeps others from opening it. */
int sp_pty_settle(int master, const Sealpoint__Pty__Pair *pair, struct sp_error *err)
{
	sp_cleanup_close int slave = -1;
	int rc;

	if (pair->exclusive)
		slave = ioctl(master, TIOCGPTPEER, O_RDWR | OPEN_FLAGS);
	rc = set(slave, TIOCEXCL, pair->exclusive, "make the slave exclusive", err);
	if (!rc)
		rc = set(master, TIOCEXCL, pair->master_exclusive, "make it exclusive", err);
	if (!rc)
		rc = set(master, TIOCPKT, pair->packets, "set packet mode", err);
	return rc ? rc : set(master, TIOCSPTLCK, pair->locked, "lock it", err);
}
