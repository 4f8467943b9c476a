/* Helpers for kinds: packing and unpacking of their messages, and look-up in the registry. */
#include "kinds/kind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sp_blob_pack(struct sp_blob *blob, const ProtobufCMessage *message)
{
	sp_blob_release(blob);
	blob->size = protobuf_c_message_get_packed_size(message);
	blob->bytes = sp_alloc(blob->size);
	protobuf_c_message_pack(message, blob->bytes);
}

void sp_blob_release(struct sp_blob *blob)
{
	free(blob->bytes);
	blob->bytes = NULL;
	blob->size = 0;
}

void *sp_blob_unpack(ProtobufCBinaryData body, const ProtobufCMessageDescriptor *descriptor,
                     struct sp_error *err)
{
	ProtobufCMessage *message =
	        protobuf_c_message_unpack(descriptor, NULL, body.len, body.data);

	if (!message)
		sp_fail_damaged(err, "no valid %s message", descriptor->name);
	return message;
}

const struct sp_file_kind *sp_file_kind_by_name(const char *name)
{
	for (size_t i = 0; sp_file_kinds[i]; i++)
		if (!strcmp(sp_file_kinds[i]->name, name))
			return sp_file_kinds[i];
	return NULL;
}

void sp_tell_kinds(struct sp_log *log, const struct sp_array *kinds)
{
	for (size_t i = 0; sp_file_kinds[i]; i++) {
		size_t count = 0;

		for (size_t j = 0; j < kinds->count; j++)
			count += *(const struct sp_file_kind **)sp_array_at(kinds, j) ==
			         sp_file_kinds[i];
		if (count)
			sp_verbose(log, "descriptors of kind %s: %zu", sp_file_kinds[i]->title,
			           count);
	}
}

const struct sp_facet *sp_facet_by_name(const char *name)
{
	for (size_t i = 0; sp_facets[i]; i++)
		if (!strcmp(sp_facets[i]->name, name))
			return sp_facets[i];
	return NULL;
}
