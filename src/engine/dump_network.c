/*
 * The network of a dump: connections are locked while they are read, and, if the program is ended, until they
 * are restored. See dump_parts.h; which open files are connections the kinds know.
 */
#include "engine/dump_parts.h"

#include "base/error.h"

/* One who has failed to lock it may have done a part of that. */
int sp_dump_lock_network(struct dump *dump, struct sp_error *err)
{
	dump->network_locked = true;
	return sp_hook_call(&dump->options->hook, SP_MOMENT_NETWORK_LOCK, dump->options->pid, err);
}

void sp_dump_unlock_network(struct dump *dump)
{
	struct sp_error late = {0};

	sp_connection_lock_lift(&dump->files.lock);
	if (dump->network_locked &&
	    sp_hook_call(&dump->options->hook, SP_MOMENT_NETWORK_UNLOCK, dump->options->pid, &late))
		sp_warn(dump->options->log, "%s", late.message);
	dump->network_locked = false;
}

/*
 * From now on the connections belong to the checkpoint. If they cannot be locked for it, there is none.
 */
int sp_dump_hand_over_connections(struct dump *dump, struct sp_error *err)
{
	const struct sp_connection_lock *lock = &dump->files.lock;
	uint8_t id[SP_CHECKPOINT_ID_SIZE];
	int rc;

	if (!lock->connections.count || dump->options->after != SP_RELEASE_KILL)
		return 0;
	dump->result->connections = (unsigned)lock->connections.count;
	rc = sp_checkpoint_read_id(dump->writer.path, id, err);
	if (!rc)
		rc = sp_connection_lock_keep(lock, id, err);
	if (rc)
		sp_checkpoint_withdraw(&dump->writer);
	return rc;
}

void sp_dump_silence_connections(struct dump *dump)
{
	if (dump->options->after == SP_RELEASE_KILL)
		sp_connections_silence(&dump->files.lock);
}
