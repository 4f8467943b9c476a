/*
 * Fuzzes the records of a checkpoint: each item is a record, the manifest among them. They are
 * written with right checksums, read again and checked; what passes must be usable.
 */
#include "base/error.h"
#include "image/checkpoint_parts.h"
#include "image/page_store.h"

#include "input.h"

#include <stdlib.h>

static const ProtobufCMessageDescriptor *descriptor_of(uint8_t type)
{
	switch (type) {
	case SP_RECORD_MANIFEST:
		return &sealpoint__manifest__descriptor;
	case SP_RECORD_PROCESS:
		return &sealpoint__process__descriptor;
	case SP_RECORD_THREAD:
		return &sealpoint__thread__descriptor;
	case SP_RECORD_VMA:
		return &sealpoint__vma__descriptor;
	case SP_RECORD_OPEN_FILE:
		return &sealpoint__open_file__descriptor;
	case SP_RECORD_DESCRIPTOR:
		return &sealpoint__descriptor__descriptor;
	case SP_RECORD_PAGE_INDEX:
		return &sealpoint__page_index__descriptor;
	default:
		return NULL;
	}
}

static void add_pages(struct sp_checkpoint *checkpoint, const Sealpoint__PageIndex *chunk)
{
	struct sp_error err = {0};

	/* a chunk that is refused half way leaves runs behind: none of them may matter */
	if (chunk->frame_size == 0)
		sp_page_index_add(&checkpoint->pages->index, chunk, &err);
}

static void add_item(struct sp_checkpoint *checkpoint, struct sp_record_writer *records,
                     const struct fuzz_item *item)
{
	const ProtobufCMessageDescriptor *descriptor = descriptor_of(item->type);
	ProtobufCMessage *message;
	struct sp_error err = {0};

	if (!descriptor)
		return;
	message = protobuf_c_message_unpack(descriptor, NULL, item->size, item->bytes);
	if (!message)
		return;
	if (item->type == SP_RECORD_MANIFEST && !checkpoint->manifest) {
		checkpoint->manifest = (Sealpoint__Manifest *)message;
		return;
	}
	if (item->type == SP_RECORD_PAGE_INDEX)
		add_pages(checkpoint, (Sealpoint__PageIndex *)message);
	else if (sp_record_write(records, item->type, message, &err) < 0)
		abort();
	protobuf_c_message_free_unpacked(message, NULL);
}

/* What restore takes for granted. */
static void use(const struct sp_checkpoint *checkpoint)
{
	const Sealpoint__Process *root = sp_checkpoint_root(checkpoint);
	const Sealpoint__Thread *leader = sp_array_pointer(&checkpoint->threads, 0);

	if (root->pid != checkpoint->manifest->root_pid || checkpoint->threads.count == 0 ||
	    leader->tid != leader->pid)
		abort();
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);

		if (vma->start >= vma->end ||
		    (vma->file && !sp_checkpoint_file(checkpoint, vma->file)))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct sp_checkpoint *checkpoint = sp_checkpoint_new();
	struct fuzz_input input = {bytes, size};
	struct sp_record_writer records = {.name = "fuzz"};
	struct sp_record_reader reader;
	struct sp_error err = {0};
	struct fuzz_item item;
	char *written = NULL;
	size_t length = 0;

	checkpoint->pages = sp_alloc_zeroed(1, sizeof(struct sp_page_store));
	sp_page_index_init(&checkpoint->pages->index, 0);
	records.file = open_memstream(&written, &length);
	if (!records.file)
		abort();
	while (fuzz_next(&input, &item))
		add_item(checkpoint, &records, &item);
	sp_record_writer_abandon(&records);

	sp_record_reader_memory(&reader, "fuzz", (uint8_t *)written, length);
	if (sp_checkpoint_read_records(checkpoint, &reader, &err) == 0 && checkpoint->manifest &&
	    sp_manifest_check(checkpoint->manifest, "fuzz", &err) == 0 &&
	    sp_page_index_complete(&checkpoint->pages->index, &err) == 0 &&
	    sp_checkpoint_check(checkpoint, &err) == 0)
		use(checkpoint);
	sp_checkpoint_close(checkpoint);
	sp_record_reader_close(&reader);
	free(written);
	return 0;
}
