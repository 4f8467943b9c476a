/*
 * eventfd(2): a counter. Count and mode stand in fdinfo; the count is written into the new one.
 *
 * Linux tells the mode since 6.5. Before that a semaphore cannot be told from a plain counter
 * without reading it, and the far more frequent plain counter is assumed, with a warning.
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "proc/fdinfo.h"

#include "eventfd.pb-c.h"

#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>

static bool claims(const struct sp_open_file *file)
{
	return !strcmp(file->link, "anon_inode:[eventfd]");
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Eventfd message = SEALPOINT__EVENTFD__INIT;
	uint64_t semaphore = 0;

	if (sp_fdinfo_number(file->fdinfo, "eventfd-count:", 16, &message.count, err) < 0)
		return -err->code;
	if (message.count == UINT64_MAX)
		return sp_fail(err, EOVERFLOW,
		               "its counter has overflowed, which no write can bring about again; "
		               "let the program read it first");
	if (sp_fdinfo_find(file->fdinfo, "eventfd-semaphore:"))
		sp_fdinfo_number(file->fdinfo, "eventfd-semaphore:", 10, &semaphore, NULL);
	else
		sp_warn(saver->log,
		        "descriptor %d of process %d (eventfd): this kernel does not tell whether "
		        "it is a semaphore; saved as a plain counter",
		        file->number, file->pid);
	message.semaphore = semaphore;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int open_eventfd(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                        struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Eventfd *message =
	        sp_blob_unpack(file->body, &sealpoint__eventfd__descriptor, err);
	sp_cleanup_close int made = -1;
	int code;

	if (!message)
		return -EBADMSG;
	made = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | (message->semaphore ? EFD_SEMAPHORE : 0));
	if (made < 0)
		return sp_fail_errno(err, errno, "cannot make an eventfd");
	code = sp_write_full(made, &message->count, sizeof(message->count));
	if (code < 0)
		return sp_fail_errno(err, -code, "cannot set the count to %" PRIu64,
		                     message->count);
	*fd = sp_steal_fd(&made);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Eventfd *message =
	        sp_blob_unpack(body, &sealpoint__eventfd__descriptor, NULL);

	if (message)
		snprintf(text, size, "count %" PRIu64 "%s", message->count,
		         message->semaphore ? ", semaphore" : "");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Eventfd *message =
	        sp_blob_unpack(file->body, &sealpoint__eventfd__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (message->count == UINT64_MAX)
		return sp_fail_damaged(err, "an impossible eventfd count");
	return 0;
}

const struct sp_file_kind sp_kind_eventfd = {
        .name = "eventfd",
        .title = "eventfd",
        .claims = claims,
        .save = save,
        .open = open_eventfd,
        .describe = describe,
        .check = check,
};
