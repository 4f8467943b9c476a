/*
 * Open files that the dump was told to leave to somebody else (`--external`): nothing of them is saved but the name by
 * which a restore is given another one in their place (inherit.h).
 */
#include "kinds/registry.h"

#include "kinds/inherit.h"

#include "external.pb-c.h"

/* None by itself: it takes the user's word (file_save.c). */
static bool claims(const struct sp_open_file *file)
{
	return false;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__External message = SEALPOINT__EXTERNAL__INIT;

	message.name = file->link;
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__External *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__external__descriptor, err);
}

static int open_external(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                         struct sp_error *err)
{
	sp_cleanup_message Sealpoint__External *message = unpack(file->body, err);

	return message ? sp_refuse_not_inherited(message->name, err) : -EBADMSG;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__External *message = unpack(body, NULL);

	if (message)
		snprintf(text, size, "%s, to be given to the restore", message->name);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__External *message = unpack(file->body, err);

	return message ? 0 : -EBADMSG;
}

const struct sp_file_kind sp_kind_external = {
        .name = "external",
        .title = "somebody else's",
        .claims = claims,
        .save = save,
        .open = open_external,
        .describe = describe,
        .check = check,
};
