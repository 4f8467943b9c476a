/*
 * What a process does on each signal: rt_sigaction(2) with the kernel's own structure, because the
 * C library's has other fields and hides SA_RESTORER. All signals are set when it is rebuilt, those
 * with the default action too: the stub begins with what sealpoint ignores.
 */
#include "kinds/registry.h"

#include "signals.pb-c.h"

#include <signal.h>
#include <sys/syscall.h>

enum { SIGNALS = 64 };

struct kernel_sigaction {
	uint64_t handler;
	uint64_t flags;
	uint64_t restorer;
	uint64_t mask;
};

static bool can_be_set(unsigned signal)
{
	return signal >= 1 && signal <= SIGNALS && signal != SIGKILL && signal != SIGSTOP;
}

static bool is_default(const struct kernel_sigaction *action)
{
	return !action->handler && !action->flags && !action->mask;
}

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	const size_t size = sizeof(struct kernel_sigaction);
	remote_addr room = sp_batch_room(saver->remote, (SIGNALS + 1) * size);

	for (unsigned i = 1; i <= SIGNALS; i++)
		if (can_be_set(i))
			sp_batch_call(saver->remote, "read the signal actions", SYS_rt_sigaction, i,
			              0, room + i * size, sizeof(uint64_t), 0, 0);
	saver->asked->room = room;
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__SignalActions message = SEALPOINT__SIGNAL_ACTIONS__INIT;
	Sealpoint__SignalAction items[SIGNALS], *pointers[SIGNALS];
	struct kernel_sigaction actions[SIGNALS + 1];
	int rc = sp_batch_read(saver->remote, saver->asked->room, actions, sizeof(actions), err);

	if (rc < 0)
		return rc;
	message.actions = pointers;
	for (unsigned i = 1; i <= SIGNALS; i++) {
		Sealpoint__SignalAction *item = &items[message.n_actions];

		if (!can_be_set(i) || is_default(&actions[i]))
			continue;
		sealpoint__signal_action__init(item);
		item->signal = i;
		item->handler = actions[i].handler;
		item->flags = actions[i].flags;
		item->restorer = actions[i].restorer;
		item->mask = actions[i].mask;
		pointers[message.n_actions++] = item;
	}
	sp_blob_pack(body, &message.base);
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SignalActions *message =
	        sp_blob_unpack(body, &sealpoint__signal_actions__descriptor, err);
	struct kernel_sigaction actions[SIGNALS + 1] = {};
	remote_addr room;

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_actions; i++) {
		const Sealpoint__SignalAction *item = message->actions[i];

		if (!can_be_set(item->signal))
			return sp_fail_damaged(err, "an action of signal %u, which cannot have one",
			                       item->signal);
		actions[item->signal] = (struct kernel_sigaction){item->handler, item->flags,
		                                                  item->restorer, item->mask};
	}
	room = sp_batch_put(builder->remote, actions, sizeof(actions));
	for (unsigned i = 1; i <= SIGNALS; i++)
		if (can_be_set(i))
			sp_batch_call(builder->remote, "set a signal action", SYS_rt_sigaction, i,
			              room + i * sizeof(*actions), 0, sizeof(uint64_t), 0, 0);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__SignalActions *message =
	        sp_blob_unpack(body, &sealpoint__signal_actions__descriptor, NULL);
	unsigned handled = 0, ignored = 0;

	for (size_t i = 0; message && i < message->n_actions; i++) {
		handled += message->actions[i]->handler > 1;
		ignored += message->actions[i]->handler == 1;
	}
	snprintf(text, size, "%u signals with a handler, %u ignored", handled, ignored);
}

const struct sp_facet sp_facet_signal_actions = {
        .name = "signal_actions",
        .title = "signal actions",
        .scope = SP_FACET_PROCESS,
        .shared = SP_SHARED_WITH_ACTIONS,
        .phase = SP_PHASE_DESCRIPTORS,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
};
