/*
 * inotify(7): watches on inodes, and a queue of events.
 *
 * The kernel tells a watch by inode and device; a path is found for it, first among the program's
 * open files, then by the file handle that fdinfo gives. Restored watches get their old numbers
 * (INOTIFY_IOC_SETNEXTWD).
 *
 * Events that wait in the queue cannot be read without taking them from the program, nor could they
 * be put into another queue. inotify has a word for just this: the restored program reads
 * IN_Q_OVERFLOW ("events were lost, look for yourself"), which every user of inotify has to expect.
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "kinds/watched_inode.h"
#include "proc/fdinfo.h"

#include "inotify.pb-c.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#ifndef INOTIFY_IOC_SETNEXTWD
#define INOTIFY_IOC_SETNEXTWD _IOW('I', 0, int32_t) /* linux/inotify.h, 4.17 */
#endif

static bool claims(const struct sp_open_file *file)
{
	return !strcmp(file->link, "anon_inode:inotify");
}

/* --- saving --- */

/* A watch as a line of fdinfo tells it. */
static int parse_watch(const char *text, Sealpoint__InotifyWatch *watch,
                       struct sp_watched_inode *inode, struct sp_error *err)
{
	uint64_t number, device, mask, ignored;

	if (!sp_fdinfo_field(&text, "", 16, &number) ||
	    !sp_fdinfo_field(&text, "ino:", 16, &inode->number) ||
	    !sp_fdinfo_field(&text, "sdev:", 16, &device) ||
	    !sp_fdinfo_field(&text, "mask:", 16, &mask) ||
	    !sp_fdinfo_field(&text, "ignored_mask:", 16, &ignored))
		return sp_fail(err, ENODATA, "its fdinfo has a watch that sealpoint cannot read");
	watch->number = (uint32_t)number;
	watch->mask = (uint32_t)mask;
	inode->device = sp_device_of_kernel(device);
	inode->handle = text;
	return 0;
}

static int save_watch(struct sp_file_saver *saver, struct sp_watched_mount *mount, const char *line,
                      Sealpoint__InotifyWatch *watch, struct sp_error *err)
{
	struct sp_watched_inode inode;

	if (parse_watch(line, watch, &inode, err) < 0)
		return -err->code;
	watch->path = sp_watched_inode_path(saver, mount, &inode, err);
	if (!watch->path)
		return sp_error_context(err, "watch %u", watch->number);
	return 0;
}

static int compare_watches(const void *a, const void *b)
{
	const Sealpoint__InotifyWatch *const *one = a, *const *other = b;

	return sp_compare((*one)->number, (*other)->number);
}

static void free_watches(struct sp_array *watches)
{
	for (size_t i = 0; i < watches->count; i++)
		protobuf_c_message_free_unpacked(sp_array_pointer(watches, i), NULL);
	sp_array_release(watches);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	static const char key[] = "inotify wd:";
	Sealpoint__Inotify message = SEALPOINT__INOTIFY__INIT;
	struct sp_array watches sp_cleanup(free_watches) = SP_ARRAY_OF(Sealpoint__InotifyWatch *);
	struct sp_watched_mount mount sp_cleanup(sp_watched_mount_close) = {.fd = -1};
	int queued;

	for (const char *line = sp_fdinfo_find(file->fdinfo, key); line;
	     line = sp_fdinfo_find(line, key)) {
		Sealpoint__InotifyWatch *watch = sp_alloc(sizeof(*watch));

		sealpoint__inotify_watch__init(watch);
		sp_array_append(&watches, &watch);
		if (save_watch(saver, &mount, line, watch, err) < 0)
			return -err->code;
	}
	sp_array_sort(&watches, compare_watches);
	if (ioctl(file->fd, FIONREAD, &queued) < 0)
		return sp_fail_errno(err, errno, "cannot ask for its queued events");
	if (queued)
		sp_verbose(saver->log,
		           "descriptor %d of process %d (inotify): %d bytes of events were not "
		           "read yet; the restored program is told of an overflow instead",
		           file->number, file->pid, queued);
	message.events_lost = queued > 0;
	message.watches = watches.items;
	message.n_watches = watches.count;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- rebuilding --- */

static int add_watch(int fd, const Sealpoint__InotifyWatch *watch, struct sp_error *err)
{
	int32_t number = (int32_t)watch->number;
	int got;

	if (ioctl(fd, INOTIFY_IOC_SETNEXTWD, number) < 0)
		return sp_fail_errno(err, errno,
		                     "cannot choose watch number %d (this takes a kernel with "
		                     "CONFIG_CHECKPOINT_RESTORE)",
		                     number);
	/*
	 * The path was the inode's own: if it is a symbolic link, then the link is what is watched.
	 */
	got = inotify_add_watch(fd, watch->path, watch->mask | IN_DONT_FOLLOW);
	if (got < 0)
		return sp_fail_errno(err, errno, "cannot watch %s", watch->path);
	if (got != number)
		return sp_fail(err, EEXIST,
		               "%s is watched twice now: it got number %d instead of %d",
		               watch->path, got, number);
	return 0;
}

static int queue_limit(struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;

	if (sp_read_file(AT_FDCWD, "/proc/sys/fs/inotify/max_queued_events", &text, NULL, err) < 0)
		return -err->code;
	return atoi(text);
}

/*
 * Fills the queue with events of the file `fd` refers to, by changing between two that do not
 * merge.
 */
static void fill_queue(int fd, int limit)
{
	const struct timespec access_now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};

	for (int i = 0; i <= limit; i += 2) {
		fchmod(fd, 0600);
		futimens(fd, access_now);
	}
}

/*
 * Reads all events but the last. One without a name, as all of these are, has the size of its
 * header.
 */
static int drain_queue(int inotify, int limit, struct sp_error *err)
{
	struct inotify_event events[256];
	const int size = sizeof(events[0]);
	int left;

	if (ioctl(inotify, FIONREAD, &left) < 0)
		return sp_fail_errno(err, errno, "cannot ask for queued events");
	if (left / size != limit + 1)
		return sp_fail(err, EIO, "%d events were queued instead of %d", left / size,
		               limit + 1);
	while (left > size) {
		int wanted = left - size < (int)sizeof(events) ? left - size : (int)sizeof(events);

		if (read(inotify, events, (size_t)wanted) != wanted)
			return sp_fail_errno(err, errno, "cannot read them");
		left -= wanted;
	}
	return 0;
}

/*
 * Brings about an overflow by the only means there is: more events than the queue takes. They come
 * from a file of our own, whose watch is removed while the queue is still full, so that this leaves
 * no event either; then all are read again but the last, which is the overflow.
 */
static int overflow_queue(int inotify, struct sp_error *err)
{
	sp_cleanup_close int fd = memfd_create("sealpoint-inotify", MFD_CLOEXEC);
	sp_cleanup_free char *path = sp_format("/proc/self/fd/%d", fd);
	int limit = queue_limit(err);
	int watch;

	if (limit < 0)
		return limit;
	watch = inotify_add_watch(inotify, path, IN_ATTRIB | IN_ACCESS);
	if (watch >= 0)
		fill_queue(fd, limit);
	if (watch < 0 || inotify_rm_watch(inotify, watch) < 0)
		return sp_fail_errno(err, errno, "cannot watch a file of our own");
	return drain_queue(inotify, limit, err);
}

static int open_inotify(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                        struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Inotify *message =
	        sp_blob_unpack(file->body, &sealpoint__inotify__descriptor, err);
	sp_cleanup_close int made = -1;

	if (!message)
		return -EBADMSG;
	made = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (made < 0)
		return sp_fail_errno(err, errno, "cannot make an inotify instance");
	if (message->events_lost && overflow_queue(made, err) < 0)
		return sp_error_context(err, "cannot queue an overflow");
	for (size_t i = 0; i < message->n_watches; i++)
		if (add_watch(made, message->watches[i], err) < 0)
			return -err->code;
	*fd = sp_steal_fd(&made);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Inotify *message =
	        sp_blob_unpack(body, &sealpoint__inotify__descriptor, NULL);

	if (message)
		snprintf(text, size, "%zu watches%s%s%s", message->n_watches,
		         message->n_watches ? ", the first on " : "",
		         message->n_watches ? message->watches[0]->path : "",
		         message->events_lost ? ", events lost" : "");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Inotify *message =
	        sp_blob_unpack(file->body, &sealpoint__inotify__descriptor, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_watches; i++) {
		const Sealpoint__InotifyWatch *watch = message->watches[i];

		if (!watch->number || watch->number > INT32_MAX || watch->path[0] != '/')
			return sp_fail_damaged(err, "an impossible watch (number %u)",
			                       watch->number);
	}
	return 0;
}

const struct sp_file_kind sp_kind_inotify = {
        .name = "inotify",
        .title = "inotify",
        .claims = claims,
        .save = save,
        .open = open_inotify,
        .describe = describe,
        .check = check,
};
