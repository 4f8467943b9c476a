/* Locking TCP connections with nftables: see connection_lock.h. */
#include "kinds/connection_lock.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <stdio.h>

/*
 * At the priority "raw", before anybody else has an opinion of these packets. The sets hold both ends
 * as an arriving packet names them. What leaves is only looked at where it leaves, and what arrives
 * where it arrives: of a connection between two programs of this machine, one end alone may be locked.
 */
static const char table_format[] =
        "add table inet %1$s { %2$s comment \"%3$s\"; }\n"
        "add set inet %1$s v4 { type ipv4_addr . inet_service . ipv4_addr . inet_service; }\n"
        "add set inet %1$s v6 { type ipv6_addr . inet_service . ipv6_addr . inet_service; }\n"
        "add chain inet %1$s arriving { type filter hook input priority raw; }\n"
        "add chain inet %1$s leaving { type filter hook output priority raw; }\n"
        "add rule inet %1$s arriving meta mark %4$u accept\n"
        "add rule inet %1$s leaving meta mark %4$u accept\n"
        "add rule inet %1$s arriving ip saddr . tcp sport . ip daddr . tcp dport @v4 drop\n"
        "add rule inet %1$s leaving ip daddr . tcp dport . ip saddr . tcp sport @v4 drop\n"
        "add rule inet %1$s arriving ip6 saddr . tcp sport . ip6 daddr . tcp dport @v6 drop\n"
        "add rule inet %1$s leaving ip6 daddr . tcp dport . ip6 saddr . tcp sport @v6 drop\n";

/* --- tables --- */

static void print_end(FILE *out, const union sp_inet_address *address)
{
	char host[INET6_ADDRSTRLEN];

	if (address->any.sa_family == AF_INET)
		inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
	else if (sp_inet_address_is_v4(address))
		inet_ntop(AF_INET, &address->v6.sin6_addr.s6_addr[12], host, sizeof(host));
	else
		inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
	/* The port is at the same place in both. */
	fprintf(out, "%s . %u", host, ntohs(address->v4.sin_port));
}

/* In one command, not in one for each: that is twice as fast. */
static void print_connections(FILE *out, const struct sp_connection_lock *lock, const char *table,
                              bool v4)
{
	size_t printed = 0;

	for (size_t i = 0; i < lock->connections.count; i++) {
		const struct sp_connection *connection = sp_array_at(&lock->connections, i);

		if (sp_inet_address_is_v4(&connection->peer) != v4)
			continue;
		if (!printed++)
			fprintf(out, "add element inet %s %s { ", table, v4 ? "v4" : "v6");
		else
			fputs(", ", out);
		print_end(out, &connection->peer);
		fputs(" . ", out);
		print_end(out, &connection->local);
	}
	if (printed)
		fputs(" }\n", out);
}

/* The caller's to free. */
static char *commands_for(const struct sp_connection_lock *lock, const char *table, bool owned)
{
	char *commands = NULL;
	size_t size;
	FILE *out = open_memstream(&commands, &size);

	if (!out)
		return NULL;
	fprintf(out, table_format, table, owned ? "flags owner;" : "",
	        owned ? "connections that sealpoint is working on"
	              : "connections of a saved program, until it is restored",
	        SP_CONNECTION_MARK);
	print_connections(out, lock, table, true);
	print_connections(out, lock, table, false);
	return fclose(out) ? NULL : commands;
}

static char *table_of(const uint8_t id[SP_CHECKPOINT_ID_SIZE])
{
	sp_cleanup_free char *hex = sp_format_hex(id, SP_CHECKPOINT_ID_SIZE);

	return sp_format("sealpoint-%s", hex);
}

/* --- the lock while we work --- */

void sp_connection_lock_add(struct sp_connection_lock *lock, const struct sp_connection *connection)
{
	sp_array_append(&lock->connections, connection);
}

int sp_connection_lock_prepare(struct sp_connection_lock *lock, struct sp_error *err)
{
	if (sp_nft_start(&lock->owner, err))
		return sp_error_context(err, "cannot lock TCP connections");
	return 0;
}

int sp_connection_lock_take(struct sp_connection_lock *lock, struct sp_error *err)
{
	sp_cleanup_free char *table =
	        sp_format("sealpoint-working-%d-%llx", getpid(), (unsigned long long)sp_now_ns());
	sp_cleanup_free char *commands = NULL;

	if (!lock->connections.count)
		return 0;
	commands = commands_for(lock, table, true);
	if (!commands)
		return sp_fail_errno(err, ENOMEM, "cannot lock TCP connections");
	if (sp_connection_lock_prepare(lock, err))
		return -err->code;
	if (sp_nft_run(&lock->owner, commands, err))
		return sp_error_context(err, "cannot lock TCP connections");
	lock->unlock = sp_format("delete table inet %s", table);
	return 0;
}

void sp_connection_lock_begin_lift(struct sp_connection_lock *lock)
{
	if (!lock->unlock || lock->unlocking)
		return;
	lock->unlocking = true;
	if (sp_nft_send(&lock->owner, lock->unlock, NULL))
		sp_nft_end(&lock->owner);
}

void sp_connection_lock_lift(struct sp_connection_lock *lock)
{
	sp_connection_lock_begin_lift(lock);
	/* Should that fail, the table goes with its owner. */
	if (lock->unlock && lock->owner.pid && sp_nft_wait(&lock->owner, NULL))
		sp_nft_end(&lock->owner);
	free(sp_steal_ptr(&lock->unlock));
}

void sp_connection_lock_release(struct sp_connection_lock *lock)
{
	sp_nft_end(&lock->owner);
	free(sp_steal_ptr(&lock->unlock));
	sp_array_release(&lock->connections);
}

/* --- the lock between dump and restore --- */

int sp_connection_lock_keep(const struct sp_connection_lock *lock,
                            const uint8_t id[SP_CHECKPOINT_ID_SIZE], struct sp_error *err)
{
	sp_cleanup_free char *table = table_of(id);
	sp_cleanup_free char *commands = NULL;

	if (!lock->connections.count)
		return 0;
	commands = commands_for(lock, table, false);
	if (!commands)
		return sp_fail_errno(err, ENOMEM, "cannot lock TCP connections");
	if (sp_nft_run_once(commands, err))
		return sp_error_context(err, "cannot lock TCP connections");
	return 0;
}

bool sp_connection_is_locked(const uint8_t id[SP_CHECKPOINT_ID_SIZE])
{
	sp_cleanup_free char *table = table_of(id);
	sp_cleanup_free char *command = sp_format("list table inet %s", table);

	return !sp_nft_run_once(command, NULL);
}

int sp_connection_unlock(const uint8_t id[SP_CHECKPOINT_ID_SIZE], struct sp_error *err)
{
	sp_cleanup_free char *table = table_of(id);
	sp_cleanup_free char *command = sp_format("delete table inet %s", table);

	return sp_nft_run_once(command, err);
}

void sp_connections_silence(const struct sp_connection_lock *lock)
{
	for (size_t i = 0; i < lock->connections.count; i++) {
		const struct sp_connection *connection = sp_array_at(&lock->connections, i);

		connection->silence(connection->fd);
	}
}

int sp_connection_lock_try(struct sp_error *err)
{
	struct sp_connection_lock lock = SP_CONNECTION_LOCK_NONE;
	struct sp_connection nobody = {.local.v4 = {.sin_family = AF_INET},
	                               .peer.v4 = {.sin_family = AF_INET}};
	int rc;

	sp_connection_lock_add(&lock, &nobody);
	rc = sp_connection_lock_take(&lock, err);
	sp_connection_lock_release(&lock);
	return rc;
}
