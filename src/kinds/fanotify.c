/*
 * fanotify(7): marks on inodes, mounts and file systems, and a queue of events.
 *
 * As with inotify, marks are saved by a path to what they are on, and events that wait in the queue cannot be kept:
 * the restored program reads FAN_Q_OVERFLOW instead. A group whose queue has no limit cannot have an overflow, so its
 * events are waited for. Marks are made late in a restore (settle), because what sealpoint itself does are events, too.
 *
 * Refused: marks that ask for permission. While the program stands still, whoever touches such a file waits for an
 * answer of the program's, and sealpoint may be who touches it. Whether a group was made without privileges, and
 * so does not learn who caused an event, the kernel does not tell: a restored one learns it.
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "kinds/watched_inode.h"
#include "proc/fdinfo.h"

#include "fanotify.pb-c.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

/* linux/fanotify.h, of newer kernels than Debian 12's headers */
#ifndef FAN_MARK_EVICTABLE
#define FAN_MARK_EVICTABLE 0x200
#endif
#ifndef FAN_MARK_IGNORE
#define FAN_MARK_IGNORE 0x400
#endif
#ifndef FAN_EVENT_INFO_TYPE_PIDFD
#define FAN_EVENT_INFO_TYPE_PIDFD 4
#endif
#define FAN_PRE_ACCESS 0x100000

#define PERMISSION_EVENTS (FAN_OPEN_PERM | FAN_ACCESS_PERM | FAN_OPEN_EXEC_PERM | FAN_PRE_ACCESS)
#define IGNORE_FLAGS (FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY)
#define MARK_FLAGS (FAN_MARK_EVICTABLE | IGNORE_FLAGS)

static bool claims(const struct sp_open_file *file)
{
	return !strcmp(file->link, "anon_inode:[fanotify]");
}

/* --- saving --- */

/* The part of a line that all marks have. */
static int parse_masks(const char **text, Sealpoint__FanotifyMark *mark, struct sp_error *err)
{
	uint64_t flags;

	if (!sp_fdinfo_field(text, "mflags:", 16, &flags) ||
	    !sp_fdinfo_field(text, "mask:", 16, &mark->mask) ||
	    !sp_fdinfo_field(text, "ignored_mask:", 16, &mark->ignored))
		return sp_fail(err, ENODATA, "its fdinfo has a mark that sealpoint cannot read");
	mark->flags = (uint32_t)flags;
	if ((mark->mask | mark->ignored) & PERMISSION_EVENTS)
		return sp_fail(err, ENOTSUP,
		               "it is asked for permission, so that others would wait for it while "
		               "it stands still; let the program remove its marks first");
	return 0;
}

/* A line of fdinfo: "ino:N sdev:N ... " of an inode, "mnt_id:N ..." of a mount, "sdev:N ..." of a file system. */
static int save_mark(struct sp_file_saver *saver, struct sp_watched_mount *mount, const char *text,
                     Sealpoint__FanotifyMark *mark, struct sp_error *err)
{
	struct sp_watched_inode inode = {0};
	uint64_t number;

	if (sp_fdinfo_field(&text, "ino:", 16, &inode.number) &&
	    sp_fdinfo_field(&text, "sdev:", 16, &number)) {
		inode.device = sp_device_of_kernel(number);
		if (parse_masks(&text, mark, err) < 0)
			return -err->code;
		inode.handle = text;
		mark->path = sp_watched_inode_path(saver, mount, &inode, err);
		return mark->path ? 0 : -err->code;
	}
	if (sp_fdinfo_field(&text, "mnt_id:", 16, &number)) {
		mark->type = SEALPOINT__FANOTIFY_MARK__TYPE__MOUNT;
		mark->path = sp_mount_path(0, (int)number, NULL);
	} else if (sp_fdinfo_field(&text, "sdev:", 16, &number)) {
		mark->type = SEALPOINT__FANOTIFY_MARK__TYPE__FILESYSTEM;
		mark->path = sp_mount_path(sp_device_of_kernel(number), -1, NULL);
	} else {
		return sp_fail(err, ENOTSUP,
		               "it watches more than files, mounts and file systems; let the "
		               "program close it first");
	}
	if (!mark->path)
		return sp_fail(err, ENOENT,
		               "no path leads to a mount or file system that it watches; let the "
		               "program remove that mark first");
	return parse_masks(&text, mark, err);
}

static int save_queue(struct sp_file_saver *saver, const struct sp_open_file *file,
                      Sealpoint__Fanotify *message, struct sp_error *err)
{
	int queued;

	if (ioctl(file->fd, FIONREAD, &queued) < 0)
		return sp_fail_errno(err, errno, "cannot ask for its queued events");
	if (!queued)
		return 0;
	if (message->flags & FAN_UNLIMITED_QUEUE)
		return sp_fail(err, SP_NOT_YET,
		               "events wait in it that were not read yet, and its queue cannot "
		               "overflow; let the program read them first");
	sp_verbose(saver->log,
	           "descriptor %d of process %d (fanotify): %zu events were not read yet; the "
	           "restored program is told of an overflow instead",
	           file->number, file->pid, (size_t)queued / FAN_EVENT_METADATA_LEN);
	message->events_lost = true;
	return 0;
}

static void free_marks(struct sp_array *marks)
{
	for (size_t i = 0; i < marks->count; i++)
		protobuf_c_message_free_unpacked(sp_array_pointer(marks, i), NULL);
	sp_array_release(marks);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	static const char key[] = "fanotify ";
	Sealpoint__Fanotify message = SEALPOINT__FANOTIFY__INIT;
	struct sp_array marks sp_cleanup(free_marks) = SP_ARRAY_OF(Sealpoint__FanotifyMark *);
	struct sp_watched_mount mount sp_cleanup(sp_watched_mount_close) = {.fd = -1};
	const char *line = sp_fdinfo_find(file->fdinfo, key);
	uint64_t flags, event_flags;

	if (!line || !sp_fdinfo_field(&line, "flags:", 16, &flags) ||
	    !sp_fdinfo_field(&line, "event-flags:", 16, &event_flags))
		return sp_fail(err, ENODATA, "the kernel does not tell its flags in fdinfo");
	message.flags = (uint32_t)flags;
	message.event_flags = (uint32_t)event_flags;
	while ((line = sp_fdinfo_find(line, key))) {
		Sealpoint__FanotifyMark *mark = sp_alloc(sizeof(*mark));

		sealpoint__fanotify_mark__init(mark);
		sp_array_append(&marks, &mark);
		if (save_mark(saver, &mount, line, mark, err) < 0)
			return -err->code;
	}
	if (save_queue(saver, file, &message, err) < 0)
		return -err->code;
	message.marks = marks.items;
	message.n_marks = marks.count;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- an overflow --- */

/* A file system of our own, in memory and without a path, where nothing happens but what we do. */
static int make_file_system(struct sp_error *err)
{
	sp_cleanup_close int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int mount = -1;

	if (context >= 0 && !fsconfig(context, FSCONFIG_SET_STRING, "nr_inodes", "0", 0) &&
	    !fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		mount = fsmount(context, FSMOUNT_CLOEXEC, 0);
	return mount < 0 ? sp_fail_errno(err, errno, "cannot make a file system in memory") : mount;
}

/* An event for each of more files than the queue takes: those of one file would be merged. */
static int fill_queue(int mount, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int limit;
	char name[16];

	if (sp_read_file(AT_FDCWD, "/proc/sys/fs/fanotify/max_queued_events", &text, NULL, err) < 0)
		return -err->code;
	limit = atoi(text);
	for (int i = 0; i <= limit; i++) {
		sp_cleanup_close int fd = -1;

		snprintf(name, sizeof(name), "%010d", i);
		fd = openat(mount, name, O_CREAT | O_RDONLY | O_CLOEXEC, 0600);
		if (fd < 0)
			return sp_fail_errno(err, errno, "cannot make a file in memory");
	}
	return 0;
}

/* Closes what comes with an event: a descriptor of the file, one of who did it. */
static void close_event(const struct fanotify_event_metadata *event)
{
	const uint8_t *end = (const uint8_t *)event + event->event_len;

	if (event->fd >= 0)
		close(event->fd);
	for (const uint8_t *each = (const uint8_t *)event + event->metadata_len; each < end;) {
		const struct fanotify_event_info_header *header = (const void *)each;
		int pidfd;

		if (!header->len)
			return;
		memcpy(&pidfd, header + 1, sizeof(pidfd));
		if (header->info_type == FAN_EVENT_INFO_TYPE_PIDFD && pidfd >= 0)
			close(pidfd);
		each += header->len;
	}
}

/*
 * Reads all events but the last. Here all have the same size, which is found by trying: a read that has no room for
 * one event fails, and one with room for just one takes no other.
 */
static int drain_queue(int group, struct sp_error *err)
{
	union {
		struct fanotify_event_metadata event;
		uint8_t bytes[1024];
	} buffer;
	size_t size = FAN_EVENT_METADATA_LEN;
	int left;

	while (!ioctl(group, FIONREAD, &left) && (size_t)left > FAN_EVENT_METADATA_LEN) {
		ssize_t got = read(group, &buffer, size);

		if (got < 0 && errno == EINVAL && size < sizeof(buffer))
			size += 4;
		else if (got < 0)
			return sp_fail_errno(err, errno, "cannot read its events");
		else
			close_event(&buffer.event);
	}
	return 0;
}

/* Brings about an overflow by the only means there is: more events than the queue takes. */
static int overflow_queue(int group, struct sp_error *err)
{
	sp_cleanup_close int mount = make_file_system(err);

	if (mount < 0)
		return mount;
	if (fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, mount, ".") < 0)
		return sp_fail_errno(err, errno, "cannot watch a file system of our own");
	if (fill_queue(mount, err) < 0)
		return -err->code;
	if (fanotify_mark(group, FAN_MARK_FLUSH | FAN_MARK_FILESYSTEM, 0, mount, ".") < 0)
		return sp_fail_errno(err, errno, "cannot stop watching it");
	return drain_queue(group, err);
}

/* --- rebuilding --- */

static int open_fanotify(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                         struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Fanotify *message =
	        sp_blob_unpack(file->body, &sealpoint__fanotify__descriptor, err);
	sp_cleanup_close int made = -1;

	if (!message)
		return -EBADMSG;
	/* It remembers its flags, so ours are not given along. */
	made = fanotify_init(message->flags, message->event_flags);
	if (made < 0 || fcntl(made, F_SETFD, FD_CLOEXEC) < 0)
		return sp_fail_errno(err, errno, "cannot make a fanotify group");
	if (message->events_lost && overflow_queue(made, err) < 0)
		return sp_error_context(err, "cannot queue an overflow");
	*fd = sp_steal_fd(&made);
	return 0;
}

static int add_mark(int fd, const Sealpoint__FanotifyMark *mark, unsigned flags, uint64_t mask,
                    struct sp_error *err)
{
	static const unsigned types[] = {FAN_MARK_INODE, FAN_MARK_MOUNT, FAN_MARK_FILESYSTEM};

	/* The path was the inode's own: if it is a symbolic link, then the link is what is watched. */
	flags |= FAN_MARK_ADD | FAN_MARK_DONT_FOLLOW | types[mark->type] |
	         (mark->flags & FAN_MARK_EVICTABLE);
	if (fanotify_mark(fd, flags, mask, AT_FDCWD, mark->path) < 0)
		return sp_fail_errno(err, errno, "cannot watch %s", mark->path);
	return 0;
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Fanotify *message =
	        sp_blob_unpack(file->body, &sealpoint__fanotify__descriptor, err);
	int fd = builder->fds[file->id];

	if (!message)
		return -EBADMSG;
	/* The kernel tells the newest first. */
	for (size_t i = message->n_marks; i-- > 0;) {
		const Sealpoint__FanotifyMark *mark = message->marks[i];
		unsigned ignore = mark->flags & IGNORE_FLAGS;

		if (!(ignore & FAN_MARK_IGNORE))
			ignore |= FAN_MARK_IGNORED_MASK;
		if (mark->mask && add_mark(fd, mark, 0, mark->mask, err) < 0)
			return -err->code;
		if (mark->ignored && add_mark(fd, mark, ignore, mark->ignored, err) < 0)
			return -err->code;
	}
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Fanotify *message =
	        sp_blob_unpack(body, &sealpoint__fanotify__descriptor, NULL);

	if (message)
		snprintf(text, size, "%zu marks%s%s%s", message->n_marks,
		         message->n_marks ? ", the first on " : "",
		         message->n_marks ? message->marks[0]->path : "",
		         message->events_lost ? ", events lost" : "");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Fanotify *message =
	        sp_blob_unpack(file->body, &sealpoint__fanotify__descriptor, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_marks; i++) {
		const Sealpoint__FanotifyMark *mark = message->marks[i];

		if (mark->type > SEALPOINT__FANOTIFY_MARK__TYPE__FILESYSTEM ||
		    mark->flags & ~(uint32_t)MARK_FLAGS || mark->path[0] != '/' ||
		    (mark->mask | mark->ignored) & PERMISSION_EVENTS)
			return sp_fail_damaged(err, "an impossible mark (%s)", mark->path);
	}
	return 0;
}

const struct sp_file_kind sp_kind_fanotify = {
        .name = "fanotify",
        .title = "fanotify group",
        .claims = claims,
        .save = save,
        .open = open_fanotify,
        .settle = settle,
        .describe = describe,
        .check = check,
};
