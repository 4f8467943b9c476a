/*
 * Permission to use the large parts of the processor's extended state, AMX tiles, which an x86
 * program has to ask for (ARCH_REQ_XCOMP_PERM). Asked for by the stub before threads are cloned and
 * get their registers.
 */
#include "kinds/registry.h"

#include "base/kernel_abi.h"

#include "settings.pb-c.h"

#include <sys/syscall.h>

/* One's own: a kernel that does not know the call gives nothing to ask for. */
static uint64_t own_components(int option)
{
	uint64_t components = 0;

	return syscall(SYS_arch_prctl, option, &components) < 0 ? 0 : components;
}

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	remote_addr room = sp_batch_room(saver->remote, sizeof(uint64_t));

	*saver->asked = (struct sp_asked){
	        .room = room,
	        .call = sp_batch_try(saver->remote, "read the extended state permission",
	                             SYS_arch_prctl, ARCH_GET_XCOMP_PERM, room, 0, 0, 0, 0),
	};
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__XstatePermission message = SEALPOINT__XSTATE_PERMISSION__INIT;
	int rc;

	if (sp_batch_result(saver->remote, saver->asked->call) < 0)
		return 0;
	rc = sp_batch_read(saver->remote, saver->asked->room, &message.components,
	                   sizeof(message.components), err);
	message.components &= ~own_components(ARCH_GET_XCOMP_PERM);
	if (rc == 0 && message.components)
		sp_blob_pack(body, &message.base);
	return rc;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__XstatePermission *message =
	        sp_blob_unpack(body, &sealpoint__xstate_permission__descriptor, err);

	if (!message)
		return -EBADMSG;
	for (unsigned i = 0; i < 64; i++)
		if (message->components >> i & 1)
			sp_batch_call(builder->remote, "get the extended state permission",
			              SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, i, 0, 0, 0, 0);
	return 0;
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__XstatePermission *message =
	        sp_blob_unpack(body, &sealpoint__xstate_permission__descriptor, err);
	uint64_t missing;

	if (!message)
		return -EBADMSG;
	missing = message->components & ~own_components(ARCH_GET_XCOMP_SUPP);
	if (missing)
		return sp_fail(err, ENOTSUP,
		               "it uses extended processor state (components %#llx) that this "
		               "machine does not have; restore it on one with the same processor",
		               (unsigned long long)missing);
	return 0;
}

const struct sp_facet sp_facet_xstate_permission = {
        .name = "xstate_permission",
        .title = "extended state permission",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_STUB,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .check = check,
};
