/*
 * signalfd(2): a set of signals to read. Nothing else is in it: the signals themselves stay pending
 * in the process or the thread.
 */
#include "kinds/registry.h"

#include "proc/fdinfo.h"

#include "signalfd.pb-c.h"

#include <inttypes.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

static bool claims(const struct sp_open_file *file)
{
	return !strcmp(file->link, "anon_inode:[signalfd]");
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Signalfd message = SEALPOINT__SIGNALFD__INIT;

	if (sp_fdinfo_number(file->fdinfo, "sigmask:", 16, &message.mask, err) < 0)
		return -err->code;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int open_signalfd(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                         struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Signalfd *message =
	        sp_blob_unpack(file->body, &sealpoint__signalfd__descriptor, err);

	if (!message)
		return -EBADMSG;
	/* The C library's sigset_t is larger than the kernel's, so the call is made without it. */
	*fd = (int)syscall(SYS_signalfd4, -1, &message->mask, sizeof(message->mask), SFD_CLOEXEC);
	if (*fd < 0)
		return sp_fail_errno(err, errno, "cannot make a signalfd");
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Signalfd *message =
	        sp_blob_unpack(body, &sealpoint__signalfd__descriptor, NULL);

	if (message)
		snprintf(text, size, "signals 0x%" PRIx64, message->mask);
}

const struct sp_file_kind sp_kind_signalfd = {
        .name = "signalfd",
        .title = "signalfd",
        .claims = claims,
        .save = save,
        .open = open_signalfd,
        .describe = describe,
};
