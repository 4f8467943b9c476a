/*
 * What a process has forbidden for its address space: to be dumped or traced (dumpable), and to
 * gain executable memory (MDWE). Set last: a change of credentials makes a process undumpable, and
 * MDWE cannot be undone.
 */
#include "kinds/registry.h"

#include "base/kernel_abi.h"

#include "credentials.pb-c.h"

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	saver->asked->call = sp_batch_call(saver->remote, "read the dumpable flag", SYS_prctl,
	                                   PR_GET_DUMPABLE, 0, 0, 0, 0, 0);
	sp_batch_try(saver->remote, "read the MDWE bits", SYS_prctl, PR_GET_MDWE, 0, 0, 0, 0, 0);
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__Hardening message = SEALPOINT__HARDENING__INIT;
	int64_t mdwe = sp_batch_result(saver->remote, saver->asked->call + 1);

	message.dumpable = sp_batch_result(saver->remote, saver->asked->call) == 1;
	if (mdwe > 0)
		message.mdwe = (uint32_t)mdwe;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Hardening *message =
	        sp_blob_unpack(body, &sealpoint__hardening__descriptor, err);

	if (!message)
		return -EBADMSG;
	sp_batch_call(builder->remote, "set the dumpable flag", SYS_prctl, PR_SET_DUMPABLE,
	              message->dumpable, 0, 0, 0, 0);
	if (message->mdwe)
		sp_batch_call(builder->remote, "set the MDWE bits", SYS_prctl, PR_SET_MDWE,
		              message->mdwe, 0, 0, 0, 0);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Hardening *message =
	        sp_blob_unpack(body, &sealpoint__hardening__descriptor, NULL);

	if (message)
		snprintf(text, size, "%sdumpable%s", message->dumpable ? "" : "not ",
		         message->mdwe ? ", gains no executable memory" : "");
}

const struct sp_facet sp_facet_hardening = {
        .name = "hardening",
        .title = "address space hardening",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_PRIVILEGES,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
};
