/*
 * Who a thread is and what it may do: ids, groups, capabilities, securebits, no_new_privs, and the
 * parent-death signal, which a change of identity resets. Each thread has its own and takes them on
 * itself, with raw system calls.
 *
 * The order is dictated by what each step needs and takes away. The stub begins with sealpoint's
 * capabilities; SECBIT_NO_SETUID_FIXUP makes it keep them through the change of user. Inheritable
 * ones come before the bounding set shrinks, ambient ones before a securebit may forbid them,
 * securebits before CAP_SETPCAP goes, and permitted and effective ones last.
 */
#include "kinds/registry.h"

#include "proc/capability.h"
#include "proc/status.h"

#include "credentials.pb-c.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { IDS = 4, GROUPS_MAX = 65536 };

/* --- saving --- */

static int read_identity(const char *status, uint32_t *ids, uint32_t *groups,
                         Sealpoint__Credentials *message, struct sp_error *err)
{
	int rc = sp_status_numbers(status, "Uid", ids, IDS, &message->n_uids, err);

	if (rc == 0)
		rc = sp_status_numbers(status, "Gid", ids + IDS, IDS, &message->n_gids, err);
	if (rc == 0)
		rc = sp_status_numbers(status, "Groups", groups, GROUPS_MAX, &message->n_groups,
		                       err);
	message->uids = ids;
	message->gids = ids + IDS;
	message->groups = groups;
	return rc;
}

static int read_capabilities(const char *status, Sealpoint__Credentials *message,
                             struct sp_error *err)
{
	const struct {
		const char *name;
		uint64_t *set;
	} sets[] = {
	        {"CapInh", &message->inheritable}, {"CapPrm", &message->permitted},
	        {"CapEff", &message->effective},   {"CapBnd", &message->bounding},
	        {"CapAmb", &message->ambient},
	};

	for (size_t i = 0; i < SP_COUNT_OF(sets); i++) {
		int rc = sp_status_number(status, sets[i].name, 16, sets[i].set, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static struct sp_asked ask_settings(struct sp_remote *remote)
{
	struct sp_asked asked = {.room = sp_batch_room(remote, sizeof(int))};

	asked.call = sp_batch_call(remote, "read the securebits", SYS_prctl, PR_GET_SECUREBITS, 0,
	                           0, 0, 0, 0);
	sp_batch_call(remote, "read the parent-death signal", SYS_prctl, PR_GET_PDEATHSIG,
	              asked.room, 0, 0, 0, 0);
	return asked;
}

static int read_settings(struct sp_remote *remote, const struct sp_asked *asked,
                         Sealpoint__Credentials *message, struct sp_error *err)
{
	int signal = 0;
	int rc = sp_batch_read(remote, asked->room, &signal, sizeof(signal), err);

	if (rc < 0)
		return rc;
	message->securebits = (uint32_t)sp_batch_result(remote, asked->call);
	message->parent_death_signal = (uint32_t)signal;
	return 0;
}

/* The credentials of a thread, with the memory for their lists. */
struct credentials {
	Sealpoint__Credentials message;
	uint32_t ids[2 * IDS];
	uint32_t groups[GROUPS_MAX];
};

static int read_all(const char *status, struct sp_remote *remote, const struct sp_asked *asked,
                    struct credentials *credentials, struct sp_error *err)
{
	Sealpoint__Credentials *message = &credentials->message;
	int rc;

	sealpoint__credentials__init(message);
	rc = read_identity(status, credentials->ids, credentials->groups, message, err);
	if (rc == 0)
		rc = read_capabilities(status, message, err);
	if (rc == 0)
		rc = read_settings(remote, asked, message, err);
	message->no_new_privileges = sp_status_is(status, "NoNewPrivs", "1");
	return rc;
}

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	*saver->asked = ask_settings(saver->remote);
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	sp_cleanup_free struct credentials *own = sp_alloc(sizeof(*own));
	int rc = read_all(saver->status, saver->remote, saver->asked, own, err);

	if (rc == 0)
		sp_blob_pack(body, &own->message.base);
	return rc;
}

/* --- rebuilding --- */

static Sealpoint__Credentials *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Credentials *message =
	        sp_blob_unpack(body, &sealpoint__credentials__descriptor, err);

	if (message &&
	    (message->n_uids != IDS || message->n_gids != IDS || message->n_groups > GROUPS_MAX)) {
		sp_fail_damaged(err, "an incomplete identity");
		return NULL;
	}
	return sp_steal_ptr(&message);
}

static void add_capset(struct sp_remote *remote, const char *label, uint64_t inheritable,
                       uint64_t permitted, uint64_t effective)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];

	for (int i = 0; i < 2; i++)
		sets[i] = (struct __user_cap_data_struct){
		        .inheritable = (uint32_t)(inheritable >> 32 * i),
		        .permitted = (uint32_t)(permitted >> 32 * i),
		        .effective = (uint32_t)(effective >> 32 * i),
		};
	sp_batch_call(remote, label, SYS_capset, sp_batch_put(remote, &header, sizeof(header)),
	              sp_batch_put(remote, sets, sizeof(sets)), 0, 0, 0, 0);
}

static void add_identity(struct sp_remote *remote, const Sealpoint__Credentials *message)
{
	const uint32_t *uids = message->uids, *gids = message->gids;

	sp_batch_call(
	        remote, "set the groups", SYS_setgroups, message->n_groups,
	        sp_batch_put(remote, message->groups, message->n_groups * sizeof(*message->groups)),
	        0, 0, 0, 0);
	sp_batch_call(remote, "set the group ids", SYS_setresgid, gids[0], gids[1], gids[2], 0, 0,
	              0);
	sp_batch_call(remote, "set the file system group", SYS_setfsgid, gids[3], 0, 0, 0, 0, 0);
	sp_batch_call(remote, "set the user ids", SYS_setresuid, uids[0], uids[1], uids[2], 0, 0,
	              0);
	sp_batch_call(remote, "set the file system user", SYS_setfsuid, uids[3], 0, 0, 0, 0, 0);
}

static void add_bounding(struct sp_remote *remote, uint64_t drop)
{
	for (unsigned i = 0; i < 64; i++)
		if (drop >> i & 1)
			sp_batch_call(remote, "shrink the capability bounding set", SYS_prctl,
			              PR_CAPBSET_DROP, i, 0, 0, 0, 0);
}

static void add_ambient(struct sp_remote *remote, uint64_t ambient)
{
	sp_batch_call(remote, "clear the ambient capabilities", SYS_prctl, PR_CAP_AMBIENT,
	              PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0);
	for (unsigned i = 0; i < 64; i++)
		if (ambient >> i & 1)
			sp_batch_call(remote, "raise an ambient capability", SYS_prctl,
			              PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0, 0);
}

static void warn_of_losses(struct sp_facet_builder *builder, const Sealpoint__Credentials *stub,
                           const Sealpoint__Credentials *message)
{
	char missing[256];

	sp_capability_names(message->bounding & ~stub->bounding, missing, sizeof(missing));
	if (*missing)
		sp_warn(builder->log,
		        "thread %u can no longer gain %s through an exec: sealpoint's own bounding "
		        "set lacks it",
		        builder->thread->tid, missing);
	if (!message->no_new_privileges && stub->no_new_privileges)
		sp_warn(builder->log,
		        "thread %u can no longer gain privileges through an exec: sealpoint itself "
		        "runs with no_new_privs",
		        builder->thread->tid);
}

/* A user who restores a program of theirs needs no capability: nothing has to be changed then. */
static bool is_already(Sealpoint__Credentials *stub, const Sealpoint__Credentials *message,
                       ProtobufCBinaryData body)
{
	struct sp_blob packed = {};
	bool same;

	stub->no_new_privileges = message->no_new_privileges;
	stub->parent_death_signal = message->parent_death_signal;
	sp_blob_pack(&packed, &stub->base);
	same = packed.size == body.len && !memcmp(packed.bytes, body.data, body.len);
	sp_blob_release(&packed);
	return same;
}

static void add_change(struct sp_remote *remote, const Sealpoint__Credentials *stub,
                       const Sealpoint__Credentials *message)
{
	sp_batch_call(remote, "keep the capabilities for now", SYS_prctl, PR_SET_SECUREBITS,
	              SECBIT_NO_SETUID_FIXUP, 0, 0, 0, 0);
	add_identity(remote, message);
	add_capset(remote, "set the inheritable capabilities", message->inheritable,
	           stub->permitted, stub->permitted);
	add_bounding(remote, stub->bounding & ~message->bounding);
	add_ambient(remote, message->ambient);
	sp_batch_call(remote, "set the securebits", SYS_prctl, PR_SET_SECUREBITS,
	              message->securebits, 0, 0, 0, 0);
	add_capset(remote, "set the capabilities", message->inheritable, message->permitted,
	           message->effective);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_free struct credentials *stub = sp_alloc(sizeof(*stub));
	sp_cleanup_message Sealpoint__Credentials *message = unpack(body, err);
	struct sp_remote *remote = builder->remote;
	sp_cleanup_free char *status = NULL;
	struct sp_asked asked;
	int rc;

	if (!message)
		return -EBADMSG;
	asked = ask_settings(remote);
	rc = sp_batch_run(remote, err);
	if (rc == 0)
		rc = sp_status_read((pid_t)builder->process->pid, (pid_t)builder->thread->tid,
		                    &status, err);
	if (rc == 0)
		rc = read_all(status, remote, &asked, stub, err);
	if (rc < 0)
		return rc;
	warn_of_losses(builder, &stub->message, message);
	if (!is_already(&stub->message, message, body))
		add_change(remote, &stub->message, message);
	if (message->no_new_privileges)
		sp_batch_call(remote, "set no_new_privs", SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0,
		              0, 0);
	sp_batch_call(remote, "set the parent-death signal", SYS_prctl, PR_SET_PDEATHSIG,
	              message->parent_death_signal, 0, 0, 0, 0);
	return 0;
}

/* --- before and after --- */

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Credentials *message = unpack(body, err);
	char missing[256];

	if (!message)
		return -EBADMSG;
	sp_capability_names((message->permitted | message->inheritable) &
	                            ~sp_capability_permitted(),
	                    missing, sizeof(missing));
	if (*missing)
		return sp_fail(err, EPERM,
		               "it has %s, which sealpoint itself lacks and cannot hand on; run "
		               "sealpoint with it, or let the program give it up before the dump",
		               missing);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Credentials *message = unpack(body, NULL);
	char names[128];

	if (!message)
		return;
	sp_capability_names(message->effective, names, sizeof(names));
	snprintf(text, size, "user %u, group %u, %d capabilities%s%.100s%s", message->uids[1],
	         message->gids[1], __builtin_popcountll(message->effective), *names ? ": " : "",
	         names, message->no_new_privileges ? ", no_new_privs" : "");
}

const struct sp_facet sp_facet_credentials = {
        .name = "credentials",
        .title = "credentials",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_PRIVILEGES,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
