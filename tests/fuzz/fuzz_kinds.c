/*
 * Fuzzes what the kinds read from an image without doing anything: the first byte chooses a row of
 * the registry, the rest is the body of its message.
 */
#include "base/error.h"
#include "image/checkpoint_parts.h"
#include "kinds/kind.h"

#include "input.h"

#include <string.h>

static void fuzz_file_kind(const struct sp_file_kind *kind, ProtobufCBinaryData body)
{
	struct sp_checkpoint *checkpoint = sp_checkpoint_new();
	Sealpoint__OpenFile file = SEALPOINT__OPEN_FILE__INIT;
	struct sp_error err = {0};
	char text[256] = "";

	file.id = 1;
	file.kind = (char *)kind->name;
	file.body = body;
	if (kind->describe)
		kind->describe(body, text, sizeof(text));
	if (kind->check)
		kind->check(checkpoint, &file, &err);
	sp_checkpoint_close(checkpoint);
}

static void fuzz_facet(const struct sp_facet *facet, ProtobufCBinaryData body)
{
	struct sp_error err = {0};
	char text[256] = "";

	if (facet->describe)
		facet->describe(body, text, sizeof(text));
	if (facet->check)
		facet->check(body, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	size_t row, kinds = 0, facets = 0;

	while (sp_file_kinds[kinds])
		kinds++;
	while (sp_facets[facets])
		facets++;
	if (size == 0)
		return 0;
	row = bytes[0] % (kinds + facets);
	if (row < kinds)
		fuzz_file_kind(sp_file_kinds[row],
		               (ProtobufCBinaryData){size - 1, (uint8_t *)bytes + 1});
	else
		fuzz_facet(sp_facets[row - kinds],
		           (ProtobufCBinaryData){size - 1, (uint8_t *)bytes + 1});
	return 0;
}
