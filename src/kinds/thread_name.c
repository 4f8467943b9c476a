/* The name of a thread: what prctl(PR_SET_NAME) gave it, up to 15 bytes of any kind. */
#include "kinds/registry.h"

#include "proc/file.h"

#include "thread.pb-c.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { NAME_SIZE = 16 }; /* TASK_COMM_LEN, with its NUL */

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__ThreadName message = SEALPOINT__THREAD_NAME__INIT;
	sp_cleanup_free char *name = NULL;
	size_t size;
	int rc = sp_proc_read_thread(saver->process->pid, saver->thread->tid, "comm", &name, &size,
	                             err);

	if (rc < 0)
		return rc;
	message.name.data = (uint8_t *)name;
	message.name.len = size ? size - 1 : 0; /* the newline is the file's */
	sp_blob_pack(body, &message.base);
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ThreadName *message =
	        sp_blob_unpack(body, &sealpoint__thread_name__descriptor, err);
	char name[NAME_SIZE] = "";

	if (!message)
		return -EBADMSG;
	if (message->name.len >= sizeof(name))
		return sp_fail_damaged(err, "a name of more than %d bytes", NAME_SIZE - 1);
	if (message->name.len)
		memcpy(name, message->name.data, message->name.len);
	sp_batch_call(builder->remote, "set the thread name", SYS_prctl, PR_SET_NAME,
	              sp_batch_put(builder->remote, name, sizeof(name)), 0, 0, 0, 0);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__ThreadName *message =
	        sp_blob_unpack(body, &sealpoint__thread_name__descriptor, NULL);

	if (message)
		snprintf(text, size, "%.*s", (int)message->name.len, (char *)message->name.data);
}

const struct sp_facet sp_facet_thread_name = {
        .name = "thread_name",
        .title = "name",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_THREADS,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
};
