/*
 * Merging: a checkpoint that stands on others becomes one that stands alone.
 *
 * Its records are copied as they are, its pages are looked up through the chain. It keeps its id,
 * because it says the same as before: so it can take the place of the one it was made from, and
 * younger checkpoints that stand on that find their parent still. That is done by an exchange of two
 * directories, so that at any time, also after a power cut, one of both forms is there.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "image/checkpoint.h"

#include <string.h>

static int copy_records(const struct sp_checkpoint *checkpoint, struct sp_record_writer *writer,
                        struct sp_error *err)
{
	struct sp_record_reader reader;
	struct sp_record record;
	int rc = sp_record_reader_open(&reader, checkpoint->dirfd, SP_IMAGE_RECORDS, err);

	if (rc < 0)
		return rc;
	while ((rc = sp_record_next(&reader, &record, err)) > 0) {
		rc = sp_record_write_packed(writer, record.type, record.payload, record.size, err);
		if (rc < 0)
			break;
	}
	sp_record_reader_close(&reader);
	return rc;
}

static Sealpoint__Manifest without_parent(const struct sp_checkpoint *checkpoint)
{
	Sealpoint__Manifest manifest = *checkpoint->manifest;

	manifest.parent_path = (char *)"";
	manifest.parent_id = (ProtobufCBinaryData){0};
	return manifest;
}

static int create(struct sp_checkpoint_writer *writer, const struct sp_checkpoint *checkpoint,
                  const struct sp_merge_options *options, struct sp_error *err)
{
	struct sp_page_stats all;
	struct sp_page_writer_options pages = {.level = options->compression, .log = options->log};

	sp_page_store_chain_stats(checkpoint->pages, &all);
	pages.expected_bytes = all.raw_bytes;
	return options->output ? sp_checkpoint_create(writer, options->output, &pages, err)
	                       : sp_checkpoint_create_over(writer, checkpoint->path, &pages, err);
}

static int write_merged(struct sp_checkpoint *checkpoint, const struct sp_merge_options *options,
                        struct sp_page_stats *stats, struct sp_error *err)
{
	const Sealpoint__Manifest manifest = without_parent(checkpoint);
	struct sp_checkpoint_writer writer;
	int rc = create(&writer, checkpoint, options, err);

	if (rc < 0)
		return rc;
	rc = copy_records(checkpoint, &writer.records, err);
	if (rc == 0)
		rc = sp_page_store_copy(checkpoint->pages, writer.pages, err);
	if (rc < 0) {
		sp_checkpoint_abandon(&writer);
		return rc;
	}
	return sp_checkpoint_commit(&writer, &manifest, stats, err);
}

int sp_merge(const struct sp_merge_options *options, struct sp_merge_result *result,
             struct sp_error *err)
{
	uint64_t started = sp_now_ns();
	struct sp_checkpoint *checkpoint;
	int rc = sp_checkpoint_open(&checkpoint, options->directory, err);

	*result = (struct sp_merge_result){0};
	if (rc < 0)
		return rc;
	for (const struct sp_checkpoint *member = checkpoint; member; member = member->parent)
		result->checkpoints++;
	rc = write_merged(checkpoint, options, &result->pages, err);
	sp_checkpoint_close(checkpoint);
	if (rc == -EINTR && sp_interrupt_check(err))
		return sp_error_context(err, "nothing was merged");
	if (rc < 0)
		return sp_error_context(err, "cannot merge %s", options->directory);
	result->image_bytes =
	        sp_checkpoint_size(options->output ? options->output : options->directory);
	result->total_ns = sp_now_ns() - started;
	return 0;
}
