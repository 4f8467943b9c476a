/*
 * Makes a chain of a checkpoint: make_chain DIR OUT COUNT writes OUT/0, OUT/1 and so on, each
 * standing on the one before, of which the last says what DIR says.
 *
 * Each page gets its final state in one member, by a hash of its number. Before that one it is
 * something else, which must not be seen; behind it, it is PARENT. Every second member is written in
 * two layers, of which the lower has something else, too.
 */
#include "base/array.h"
#include "base/error.h"
#include "image/checkpoint_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct sp_error err;

static void must(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "make_chain: %s\n", err.message);
		exit(1);
	}
}

struct context {
	struct sp_checkpoint *checkpoint;
	struct sp_page_writer *writer;
	uint32_t object, source;
	unsigned member, count;
	bool lower; /* the lower one of two layers */
};

static unsigned hash(uint32_t object, uint64_t page)
{
	uint64_t mixed = (object * 1000003ULL + page / 3) * 0x9e3779b97f4a7c15ULL;

	return (unsigned)(mixed >> 40);
}

static int read_final(void *pointer, uint64_t offset, void *buffer, size_t size,
                      struct sp_error *error)
{
	const struct context *context = pointer;

	if (context->lower) {
		memset(buffer, 0xee, size);
		return 0;
	}
	return sp_page_store_read(context->checkpoint->pages, context->object, offset, buffer, size,
	                          error);
}

static int read_wrong(void *pointer, uint64_t offset, void *buffer, size_t size,
                      struct sp_error *error)
{
	memset(buffer, 0xdd, size);
	return 0;
}

/* The state of a page in this member, or SP_PAGE_STATES for none. */
static enum sp_page_state choose(const struct context *context, uint64_t page,
                                 enum sp_page_state final, uint32_t *source)
{
	static const enum sp_page_state wrong[] = {SP_PAGE_DATA, SP_PAGE_HOLE, SP_PAGE_ZERO,
	                                           SP_PAGE_FILE};
	unsigned number = hash(context->object, page), member = number % context->count;

	*source = context->source;
	if (context->lower && member != context->member)
		return SP_PAGE_STATES;
	if (member == context->member)
		return context->lower ? SP_PAGE_DATA : final;
	if (member < context->member)
		return SP_PAGE_PARENT;
	*source = context->source + 1;
	return wrong[(number / context->count + context->member) % 4];
}

static int add_run(void *pointer, const struct sp_page_run *run)
{
	struct context *context = pointer;
	struct sp_range page = {run->range.start, run->range.start + SP_PAGE_SIZE};

	for (; page.start < run->range.end; page.start += SP_PAGE_SIZE, page.end += SP_PAGE_SIZE) {
		uint32_t source;
		enum sp_page_state state =
		        choose(context, page.start / SP_PAGE_SIZE, run->state, &source);

		if (state != SP_PAGE_STATES)
			must(sp_page_writer_add(context->writer, context->object, page, state,
			                        source, &err));
	}
	return 0;
}

/* All objects; sources read what is the context's object, so each is drained. */
static void add_layer(struct context *context)
{
	const struct sp_range all = {0, SP_INDEX_PAGES_END * SP_PAGE_SIZE};
	const struct sp_array *runs = &context->checkpoint->pages->index.runs;
	uint32_t last = 0;

	for (size_t i = 0; i < runs->count; i++) {
		const struct sp_index_run *run = sp_array_at(runs, i);

		if (run->object == last)
			continue;
		last = context->object = run->object;
		must(sp_page_store_walk(context->checkpoint->pages, run->object, all, add_run,
		                        context, &err));
		must(sp_page_writer_drain(context->writer, &err));
	}
}

static void add_pages(struct context *context)
{
	const struct sp_array *runs = &context->checkpoint->pages->index.runs;
	const struct sp_index_run *last = sp_array_at(runs, runs->count - 1);

	while (sp_page_writer_new_object(context->writer) < last->object)
		;
	context->source = sp_page_writer_add_source(
	        context->writer, (struct sp_page_source){.read = read_final, .context = context});
	sp_page_writer_add_source(context->writer, (struct sp_page_source){.read = read_wrong});
	if (context->member % 2) {
		context->lower = true;
		add_layer(context);
		context->lower = false;
		must(sp_page_writer_next_layer(context->writer, &err));
	}
	add_layer(context);
}

static void add_records(const struct sp_checkpoint *checkpoint, struct sp_record_writer *writer)
{
	struct sp_record_reader reader;
	struct sp_record record;
	int rc;

	must(sp_record_reader_open(&reader, checkpoint->dirfd, SP_IMAGE_RECORDS, &err));
	while ((rc = sp_record_next(&reader, &record, &err)) > 0)
		must(sp_record_write_packed(writer, record.type, record.payload, record.size,
		                            &err));
	must(rc);
	sp_record_reader_close(&reader);
}

static void write_member(struct context *context, const char *directory)
{
	const struct sp_page_writer_options options = {.level = -5};
	Sealpoint__Manifest manifest = *context->checkpoint->manifest;
	uint8_t id[SP_CHECKPOINT_ID_SIZE] = "member", parent_id[SP_CHECKPOINT_ID_SIZE] = "member";
	char *path = sp_format("%s/%u", directory, context->member);
	char *parent = sp_format("../%u", context->member - 1);
	struct sp_checkpoint_writer writer;
	unsigned before = context->member - 1;

	memcpy(id + 8, &context->member, sizeof(context->member));
	memcpy(parent_id + 8, &before, sizeof(before));
	manifest.id = (ProtobufCBinaryData){sizeof(id), id};
	manifest.parent_id = (ProtobufCBinaryData){0};
	manifest.parent_path = (char *)"";
	if (context->member > 0) {
		manifest.parent_id = (ProtobufCBinaryData){sizeof(parent_id), parent_id};
		manifest.parent_path = parent;
	}
	must(sp_checkpoint_create(&writer, path, &options, &err));
	add_records(context->checkpoint, &writer.records);
	context->writer = writer.pages;
	add_pages(context);
	must(sp_checkpoint_commit(&writer, &manifest, NULL, &err));
	free(path);
	free(parent);
}

int main(int count, char **arguments)
{
	struct context context = {0};

	if (count != 4 || (context.count = (unsigned)atoi(arguments[3])) < 1) {
		fprintf(stderr, "usage: %s DIR OUT COUNT\n", arguments[0]);
		return 2;
	}
	must(sp_checkpoint_open(&context.checkpoint, arguments[1], &err));
	if (mkdir(arguments[2], 0700) < 0) {
		perror(arguments[2]);
		return 1;
	}
	for (; context.member < context.count; context.member++)
		write_member(&context, arguments[2]);
	sp_checkpoint_close(context.checkpoint);
	return 0;
}
