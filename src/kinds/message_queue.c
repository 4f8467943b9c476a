/*
 * POSIX message queues (mq_overview(7)): descriptors of files on a file system of the kernel's own.
 *
 * A queue with a name lives until somebody unlinks it, whoever has it open; other programs send to it, and
 * receive from it. So it is treated as a file with a name is: the restored program finds it where it was,
 * with the messages that it has by then. One that is gone is made again, unless there were messages in it.
 *
 * One that was unlinked goes with its last descriptor and is made anew. Messages can only be read by
 * receiving them, and would be lost if sealpoint was killed before it had sent them back: so the dump
 * waits until there are none. Nor does anything tell what a program that is to be notified of a message
 * will be told (sigev_value of mq_notify(3)).
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "kinds/file_build.h"
#include "kinds/file_table.h"

#include "message_queue.pb-c.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <mqueue.h>
#include <string.h>
#include <sys/vfs.h>

#define MQUEUE_MAGIC 0x19800202    /* ipc/mqueue.c */
#define MQUEUE_SIZE 80             /* st_size of each: most other files need not be asked further */
#define KERNEL_O_LARGEFILE 0100000 /* which is 0 to the C library */

static bool claims(const struct sp_open_file *file)
{
	struct statfs fs;

	return S_ISREG(file->stat.st_mode) && file->stat.st_size == MQUEUE_SIZE &&
	       fstatfs(file->fd, &fs) == 0 && fs.f_type == MQUEUE_MAGIC;
}

/* --- saving --- */

/* "/name", also of one that was opened by a path: "/dev/mqueue/name". */
static char *queue_name(const struct sp_open_file *file)
{
	const char *name = strrchr(file->link, '/'), *end = strrchr(name, ' ');
	bool unlinked = !file->stat.st_nlink && end && !strcmp(end, " (deleted)");

	return sp_format("%.*s", (int)(unlinked ? (size_t)(end - name) : strlen(name)), name);
}

/* The name leads to this queue, and not to one that has taken it since, or in another namespace. */
static int check_name(const struct sp_open_file *file, const char *name, struct sp_error *err)
{
	sp_cleanup_close int fd = mq_open(name, O_RDONLY | O_CLOEXEC);
	struct stat stat;

	if (fd >= 0 && fstat(fd, &stat) == 0 && stat.st_dev == file->stat.st_dev &&
	    stat.st_ino == file->stat.st_ino)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "its name %s does not lead to it: it belongs to another IPC namespace; let "
	               "the program close it first",
	               name);
}

static bool has_descriptor(const struct sp_file_table *table, const struct sp_open_file *file,
                           pid_t pid)
{
	for (size_t i = 0; i < table->descriptors.count; i++) {
		const struct sp_descriptor *descriptor = sp_array_at(&table->descriptors, i);
		const struct stat *stat = &sp_file_table_at(table, descriptor->file)->stat;

		if (descriptor->pid == pid && stat->st_dev == file->stat.st_dev &&
		    stat->st_ino == file->stat.st_ino)
			return true;
	}
	return false;
}

/* A queue reads as "QSIZE:0          NOTIFY:0     SIGNO:10    NOTIFY_PID:4242  ". */
static int check_notification(const struct sp_file_table *table, const struct sp_open_file *file,
                              struct sp_error *err)
{
	sp_cleanup_close int fd = sp_reopen(file->fd, O_RDONLY, err);
	char text[MQUEUE_SIZE + 1] = "";
	const char *found;
	pid_t pid;

	if (fd < 0)
		return fd;
	if (sp_pread_full(fd, text, MQUEUE_SIZE, 0) < 0)
		return sp_fail_errno(err, errno, "cannot read its state");
	found = strstr(text, "NOTIFY_PID:");
	pid = found ? atoi(found + strlen("NOTIFY_PID:")) : 0;
	if (!pid || !has_descriptor(table, file, pid))
		return 0;
	return sp_fail(err, ENOTSUP,
	               "process %d waits to be notified of a message in it (mq_notify(3)), and "
	               "nothing tells what it will be told; let it end that before the dump "
	               "(mq_notify with NULL)",
	               pid);
}

static int save_queue(const struct sp_file_saver *saver, const struct sp_open_file *file,
                      Sealpoint__MessageQueue__Queue *queue, struct sp_error *err)
{
	struct mq_attr attributes;

	if (check_notification(saver->table, file, err))
		return -err->code;
	if (mq_getattr(file->fd, &attributes))
		return sp_fail_errno(err, errno, "cannot read its attributes");
	queue->unlinked = !file->stat.st_nlink;
	queue->mode = file->stat.st_mode & 0777;
	queue->uid = file->stat.st_uid;
	queue->gid = file->stat.st_gid;
	queue->max_messages = (uint64_t)attributes.mq_maxmsg;
	queue->max_size = (uint64_t)attributes.mq_msgsize;
	queue->messages = (uint64_t)attributes.mq_curmsgs;
	if (!queue->unlinked)
		return check_name(file, queue->name, err);
	if (queue->messages)
		return sp_fail(err, SP_NOT_YET,
		               "it has been unlinked and holds %" PRIu64
		               " messages, which can only "
		               "be read by taking them away; let the program receive them first",
		               queue->messages);
	return 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__MessageQueue message = SEALPOINT__MESSAGE_QUEUE__INIT;
	Sealpoint__MessageQueue__Queue queue = SEALPOINT__MESSAGE_QUEUE__QUEUE__INIT;
	sp_cleanup_free char *name = queue_name(file);

	message.position = file->position;
	if (sp_file_table_same_inode(saver->table, file, NULL) == file) {
		queue.name = name;
		message.queue = &queue;
		if (save_queue(saver, file, &queue, err))
			return -err->code;
	}
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- opening --- */

static void unlink_queue(void *name)
{
	mq_unlink(name);
}

/* Makes a queue with this name, which must be free. Returns a descriptor of it, or a negative errno. */
static int make_queue(const Sealpoint__MessageQueue__Queue *queue, const char *name,
                      struct sp_error *err)
{
	struct mq_attr attributes = {
	        .mq_maxmsg = (long)queue->max_messages,
	        .mq_msgsize = (long)queue->max_size,
	};
	sp_cleanup_close int fd =
	        mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &attributes);

	if (fd < 0)
		return sp_fail_errno(err, errno,
		                     "cannot make a queue for %" PRIu64 " messages of %" PRIu64
		                     " bytes (sysctl fs.mqueue, and RLIMIT_MSGQUEUE, set bounds)",
		                     queue->max_messages, queue->max_size);
	if (fchown(fd, queue->uid, queue->gid) || fchmod(fd, queue->mode)) {
		sp_fail_errno(err, errno, "cannot give it to user %u, group %u", queue->uid,
		              queue->gid);
		mq_unlink(name);
		return -err->code;
	}
	return sp_steal_fd(&fd);
}

static int make_named(struct sp_file_builder *builder, const Sealpoint__MessageQueue__Queue *queue,
                      struct sp_error *err)
{
	sp_cleanup_close int fd = -1;

	if (queue->messages)
		return sp_fail(err, ENOENT,
		               "the queue is gone, and the %" PRIu64
		               " messages in it with it; make "
		               "a queue with that name and them first",
		               queue->messages);
	fd = make_queue(queue, queue->name, err);
	if (fd < 0)
		return fd;
	sp_file_builder_on_failure(builder,
	                           (struct sp_file_undo){unlink_queue, sp_strdup(queue->name)});
	return 0;
}

static int check_queue(const Sealpoint__MessageQueue__Queue *queue, int fd, struct sp_error *err)
{
	struct mq_attr attributes;

	if (mq_getattr(fd, &attributes))
		return sp_fail_errno(err, errno, "cannot read its attributes");
	if (attributes.mq_maxmsg == (long)queue->max_messages &&
	    attributes.mq_msgsize == (long)queue->max_size)
		return 0;
	return sp_fail(
	        err, EEXIST,
	        "another queue has its name by now, for %ld messages of %ld bytes instead of "
	        "%" PRIu64 " of %" PRIu64 "; remove that first (rm /dev/mqueue%s)",
	        attributes.mq_maxmsg, attributes.mq_msgsize, queue->max_messages, queue->max_size,
	        queue->name);
}

/* Makes the queue, or finds it. `*name` becomes the one that leads to it for now. */
static int get_queue(struct sp_file_builder *builder, const Sealpoint__MessageQueue__Queue *queue,
                     char **name, struct sp_error *err)
{
	sp_cleanup_close int fd = -1;

	/* An unlinked one: the name that it had may be another one's by now. */
	*name = queue->unlinked ? sp_format("/sealpoint.%d", getpid()) : sp_strdup(queue->name);
	if (queue->unlinked) {
		fd = make_queue(queue, *name, err);
		return fd < 0 ? fd : 0;
	}
	fd = mq_open(*name, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return make_named(builder, queue, err);
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot open the queue");
	return check_queue(queue, fd, err);
}

/* The kernel tells by O_LARGEFILE that a path was opened, and not a name by mq_open(3). */
static int open_view(const Sealpoint__OpenFile *file, const char *name, int *fd,
                     struct sp_error *err)
{
	sp_cleanup_message Sealpoint__MessageQueue *message =
	        sp_blob_unpack(file->body, &sealpoint__message_queue__descriptor, err);
	sp_cleanup_close int view = -1, path = -1;
	int access = (int)file->flags & O_ACCMODE;

	if (!message)
		return -EBADMSG;
	/* Close-on-exec in any case; said aloud, it would stay in the flags of the open file. */
	path = mq_open(name, access);
	if (path < 0)
		return sp_fail_errno(err, errno, "cannot open the queue");
	view = file->flags & KERNEL_O_LARGEFILE ? sp_reopen(path, access, err) : sp_steal_fd(&path);
	if (view < 0)
		return view;
	if (message->position && lseek(view, message->position, SEEK_SET) < 0)
		return sp_fail_errno(err, errno, "cannot set its position to %" PRId64,
		                     message->position);
	*fd = sp_steal_fd(&view);
	return 0;
}

/* With the first open file of a queue all are opened, as long as it has a name. */
static int open_views(struct sp_file_builder *builder, const Sealpoint__OpenFile *first,
                      const char *name, struct sp_error *err)
{
	const struct sp_array *files = &builder->checkpoint->files;
	int rc = open_view(first, name, &builder->fds[first->id], err);

	for (size_t i = first->id; i < files->count && !rc; i++) {
		const Sealpoint__OpenFile *file = sp_array_pointer(files, i);

		if (file->same_inode == first->id && !strcmp(file->kind, first->kind))
			rc = open_view(file, name, &builder->fds[file->id], err);
	}
	return rc;
}

static int open_queue(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                      struct sp_error *err)
{
	sp_cleanup_message Sealpoint__MessageQueue *message =
	        sp_blob_unpack(file->body, &sealpoint__message_queue__descriptor, err);
	sp_cleanup_free char *name = NULL;
	int rc;

	if (!message || !message->queue)
		return sp_fail_damaged(err, "a message queue that is described nowhere");
	rc = get_queue(builder, message->queue, &name, err);
	if (rc)
		return rc;
	rc = open_views(builder, file, name, err);
	if (message->queue->unlinked)
		mq_unlink(name);
	*fd = builder->fds[file->id];
	return rc;
}

/* --- records --- */

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__MessageQueue *message =
	        sp_blob_unpack(body, &sealpoint__message_queue__descriptor, NULL);

	if (message && message->queue)
		snprintf(text, size, "%s%s, %" PRIu64 " of %" PRIu64 " messages",
		         message->queue->name, message->queue->unlinked ? " (unlinked)" : "",
		         message->queue->messages, message->queue->max_messages);
	else if (message)
		snprintf(text, size, "another view");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__MessageQueue *message =
	        sp_blob_unpack(file->body, &sealpoint__message_queue__descriptor, err);
	const Sealpoint__MessageQueue__Queue *queue = message ? message->queue : NULL;

	(void)checkpoint;
	if (!message)
		return -EBADMSG;
	if (!queue != !!file->same_inode || message->position < 0)
		return sp_fail_damaged(err, "a message queue that is described nowhere");
	if (queue &&
	    (queue->name[0] != '/' || strchr(queue->name + 1, '/') ||
	     queue->max_messages > LONG_MAX || queue->max_size > LONG_MAX || queue->mode > 0777))
		return sp_fail_damaged(err, "an impossible name, size or mode");
	return 0;
}

const struct sp_file_kind sp_kind_message_queue = {
        .name = "message_queue",
        .title = "message queue",
        .claims = claims,
        .save = save,
        .open = open_queue,
        .describe = describe,
        .check = check,
};
