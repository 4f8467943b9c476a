/*
 * Addresses that a thread has given to the kernel: its alternate signal stack, its list of robust
 * futexes, and the word that is cleared when it ends. Only the thread itself can ask for two of
 * them, and set any.
 *
 * A thread that runs on its alternate stack keeps doing so: the kernel tells that from the stack
 * pointer alone.
 */
#include "kinds/registry.h"

#include "thread.pb-c.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* What only the thread itself can tell. */
struct own {
	stack_t stack;
	uint64_t clear_tid;
};

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	remote_addr room = sp_batch_room(saver->remote, sizeof(struct own));

	sp_batch_call(saver->remote, "read the alternate signal stack", SYS_sigaltstack, 0,
	              room + offsetof(struct own, stack), 0, 0, 0, 0);
	sp_batch_call(saver->remote, "read the clear_child_tid", SYS_prctl, PR_GET_TID_ADDRESS,
	              room + offsetof(struct own, clear_tid), 0, 0, 0, 0);
	saver->asked->room = room;
	return 0;
}

/*
 * The kernel writes to the futexes in the list, at this distance from its entries, when the thread
 * ends. What cannot be read is no list.
 */
static void note_futexes(struct sp_array *last_words, pid_t pid, remote_addr list)
{
	struct {
		remote_addr next;
		int64_t distance;
		remote_addr pending;
	} head;
	remote_addr entry, word;

	if (!list || sp_process_read(pid, list, &head, sizeof(head), NULL) < 0)
		return;
	entry = head.next;
	for (int i = 0; entry && entry != list && i < ROBUST_LIST_LIMIT; i++) {
		word = (entry & ~1ULL) + (uint64_t)head.distance;
		sp_array_append(last_words, &word);
		if (sp_process_read(pid, entry & ~1ULL, &entry, sizeof(entry), NULL) < 0)
			break;
	}
	word = (head.pending & ~1ULL) + (uint64_t)head.distance;
	if (head.pending)
		sp_array_append(last_words, &word);
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__ThreadPointers message = SEALPOINT__THREAD_POINTERS__INIT;
	size_t robust_list_size = 0;
	void *robust_list = NULL;
	struct own own;
	int rc = sp_batch_read(saver->remote, saver->asked->room, &own, sizeof(own), err);

	if (rc < 0)
		return rc;
	message.clear_tid = own.clear_tid;
	if (syscall(SYS_get_robust_list, saver->thread->tid, &robust_list, &robust_list_size) < 0)
		return sp_fail_errno(err, errno, "cannot read its list of robust futexes");
	if (robust_list) {
		message.robust_list = (uintptr_t)robust_list;
		message.robust_list_size = robust_list_size;
	}
	if (saver->last_words) {
		sp_array_append(saver->last_words, &message.clear_tid);
		note_futexes(saver->last_words, sp_process_living(saver->process),
		             message.robust_list);
	}
	if (!(own.stack.ss_flags & SS_DISABLE)) {
		message.stack = (uintptr_t)own.stack.ss_sp;
		message.stack_size = own.stack.ss_size;
		message.stack_flags = (uint32_t)own.stack.ss_flags & ~(uint32_t)SS_ONSTACK;
	}
	if (sealpoint__thread_pointers__get_packed_size(&message))
		sp_blob_pack(body, &message.base);
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ThreadPointers *message =
	        sp_blob_unpack(body, &sealpoint__thread_pointers__descriptor, err);
	struct sp_remote *remote = builder->remote;

	if (!message)
		return -EBADMSG;
	if (message->stack_size) {
		stack_t stack = {
		        .ss_sp = (void *)(uintptr_t)message->stack,
		        .ss_flags = (int)message->stack_flags,
		        .ss_size = message->stack_size,
		};

		sp_batch_call(remote, "set the alternate signal stack", SYS_sigaltstack,
		              sp_batch_put(remote, &stack, sizeof(stack)), 0, 0, 0, 0, 0);
	}
	if (message->robust_list)
		sp_batch_call(remote, "set the list of robust futexes", SYS_set_robust_list,
		              message->robust_list, message->robust_list_size, 0, 0, 0, 0);
	sp_batch_call(remote, "set the clear_child_tid", SYS_set_tid_address, message->clear_tid, 0,
	              0, 0, 0, 0);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__ThreadPointers *message =
	        sp_blob_unpack(body, &sealpoint__thread_pointers__descriptor, NULL);

	if (message && message->stack_size)
		snprintf(text, size, "alternate signal stack of %llu bytes",
		         (unsigned long long)message->stack_size);
}

const struct sp_facet sp_facet_thread_pointers = {
        .name = "thread_pointers",
        .title = "thread pointers",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_THREADS,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
};
