/*
 * Fuzzes the reader of records: the input is a file of records. As no fuzzer guesses a checksum, it
 * is also taken as the payload of every type of record.
 */
#include "base/error.h"
#include "image/record.h"

#include "file.pb-c.h"
#include "input.h"
#include "manifest.pb-c.h"
#include "memory.pb-c.h"
#include "page_index.pb-c.h"
#include "process.pb-c.h"

static void unpack_as_everything(struct sp_record_reader *reader, const struct sp_record *record)
{
	static const ProtobufCMessageDescriptor *const descriptors[] = {
	        &sealpoint__manifest__descriptor,   &sealpoint__process__descriptor,
	        &sealpoint__thread__descriptor,     &sealpoint__vma__descriptor,
	        &sealpoint__open_file__descriptor,  &sealpoint__descriptor__descriptor,
	        &sealpoint__page_index__descriptor,
	};
	struct sp_error err = {0};

	for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); i++) {
		ProtobufCMessage *message = sp_record_unpack(reader, record, descriptors[i], &err);

		if (message)
			protobuf_c_message_free_unpacked(message, NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct sp_record whole = {SP_RECORD_PROCESS, bytes, size, 0};
	struct sp_record_reader reader;
	struct sp_record record;
	struct sp_error err = {0};

	sp_record_reader_memory(&reader, "fuzz", (uint8_t *)bytes, size);
	while (sp_record_next(&reader, &record, &err) > 0)
		unpack_as_everything(&reader, &record);
	unpack_as_everything(&reader, &whole);
	sp_record_reader_close(&reader);
	return 0;
}
