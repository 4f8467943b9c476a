/*
 * The landmarks of an address space: where code, data, heap, stack, arguments and environment lie,
 * the auxiliary vector, and which file /proc/PID/exe is. What ps(1) shows and what brk(2) goes on
 * from.
 *
 * All is set at once (PR_SET_MM_MAP), when the mappings are in place and sealpoint's own executable
 * is no longer among them: the kernel does not replace an executable that is mapped.
 */
#include "kinds/registry.h"

#include "proc/file.h"
#include "proc/stat.h"

#include "settings.pb-c.h"

#include <elf.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { AUXV_MAX = 4096 }; /* bytes; the kernel's own bound is lower and differs by version */

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	saver->asked->call =
	        sp_batch_call(saver->remote, "read the end of the heap", SYS_brk, 0, 0, 0, 0, 0, 0);
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__MemoryLayout message = SEALPOINT__MEMORY_LAYOUT__INIT;
	sp_cleanup_free char *auxv = NULL;
	pid_t pid = sp_process_living(saver->process);
	struct sp_stat stat;
	int rc = sp_proc_read(pid, "auxv", &auxv, &message.auxv.len, err);

	if (rc == 0)
		rc = sp_stat_read(pid, pid, &stat, err);
	if (rc < 0)
		return rc;
	message.start_code = stat.start_code;
	message.end_code = stat.end_code;
	message.start_data = stat.start_data;
	message.end_data = stat.end_data;
	message.start_brk = stat.start_brk;
	message.brk = (uint64_t)sp_batch_result(saver->remote, saver->asked->call);
	message.start_stack = stat.start_stack;
	message.arg_start = stat.arg_start;
	message.arg_end = stat.arg_end;
	message.env_start = stat.env_start;
	message.env_end = stat.env_end;
	message.auxv.data = (uint8_t *)auxv;
	sp_blob_pack(body, &message.base);
	return 0;
}

static struct prctl_mm_map to_map(const Sealpoint__MemoryLayout *message)
{
	return (struct prctl_mm_map){
	        .start_code = message->start_code,
	        .end_code = message->end_code,
	        .start_data = message->start_data,
	        .end_data = message->end_data,
	        .start_brk = message->start_brk,
	        .brk = message->brk,
	        .start_stack = message->start_stack,
	        .arg_start = message->arg_start,
	        .arg_end = message->arg_end,
	        .env_start = message->env_start,
	        .env_end = message->env_end,
	        .auxv_size = (uint32_t)message->auxv.len,
	        .exe_fd = (uint32_t)-1,
	};
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__MemoryLayout *message =
	        sp_blob_unpack(body, &sealpoint__memory_layout__descriptor, err);
	uint32_t executable = builder->process->executable_file;
	struct sp_remote *remote = builder->remote;
	struct prctl_mm_map map;

	if (!message)
		return -EBADMSG;
	if (message->auxv.len > AUXV_MAX)
		return sp_fail_damaged(err, "an auxiliary vector of %zu bytes", message->auxv.len);
	map = to_map(message);
	if (executable)
		map.exe_fd = (uint32_t)builder->fds[executable];
	if (message->auxv.len)
		map.auxv = (__u64 *)(uintptr_t)sp_batch_put(remote, message->auxv.data,
		                                            message->auxv.len);
	sp_batch_call(remote, "set the memory layout and executable", SYS_prctl, PR_SET_MM,
	              PR_SET_MM_MAP, sp_batch_put(remote, &map, sizeof(map)), sizeof(map), 0, 0);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__MemoryLayout *message =
	        sp_blob_unpack(body, &sealpoint__memory_layout__descriptor, NULL);

	if (message)
		snprintf(text, size, "heap %#llx to %#llx", (unsigned long long)message->start_brk,
		         (unsigned long long)message->brk);
}

/* Debuggers find out from the auxiliary vector where the program and its vDSO were loaded. */
static int core_note(ProtobufCBinaryData body, uint32_t *type, struct sp_blob *note,
                     struct sp_error *err)
{
	sp_cleanup_message Sealpoint__MemoryLayout *message =
	        sp_blob_unpack(body, &sealpoint__memory_layout__descriptor, err);

	if (!message)
		return -EBADMSG;
	*type = NT_AUXV;
	note->size = message->auxv.len;
	note->bytes = sp_alloc(note->size);
	if (note->size)
		memcpy(note->bytes, message->auxv.data, note->size);
	return 0;
}

const struct sp_facet sp_facet_memory_layout = {
        .name = "memory_layout",
        .title = "memory layout",
        .scope = SP_FACET_PROCESS,
        .shared = SP_SHARED_WITH_MEMORY,
        .phase = SP_PHASE_MEMORY,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .core_note = core_note,
};
