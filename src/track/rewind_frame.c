/* Differences between captures: see rewind_frame.h. One zstd frame of records, each block after its number. */
#include "track/rewind_frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* Differences are mostly zeros; a fast level finds those as well as a slow one. */
#define LEVEL 1

struct record {
	uint32_t index;
	char difference[SP_REWIND_BLOCK];
};

/* --- writing --- */

static int make_room(struct sp_frame_writer *writer)
{
	size_t capacity = writer->capacity ? 2 * writer->capacity : ZSTD_CStreamOutSize();
	char *buffer;

	if (writer->capacity - writer->size >= SP_REWIND_BLOCK)
		return 0;
	buffer = realloc(writer->buffer, capacity);
	if (!buffer)
		return -ENOMEM;
	writer->buffer = buffer;
	writer->capacity = capacity;
	return 0;
}

static int compress(struct sp_frame_writer *writer, const void *data, size_t size,
                    ZSTD_EndDirective directive)
{
	ZSTD_inBuffer in = {data, size, 0};
	size_t left = 1;

	while (in.pos < in.size || (directive == ZSTD_e_end && left)) {
		ZSTD_outBuffer out;

		if (make_room(writer) < 0)
			return -ENOMEM;
		out = (ZSTD_outBuffer){writer->buffer, writer->capacity, writer->size};
		left = ZSTD_compressStream2(writer->zstd, &out, &in, directive);
		if (ZSTD_isError(left))
			return -ENOMEM; /* nothing else can go wrong */
		writer->size = out.pos;
	}
	return 0;
}

int sp_frame_begin(struct sp_frame_writer *writer)
{
	writer->size = writer->blocks = 0;
	if (!writer->zstd)
		writer->zstd = ZSTD_createCCtx();
	if (!writer->zstd)
		return -ENOMEM;
	ZSTD_CCtx_reset(writer->zstd, ZSTD_reset_session_only);
	ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_compressionLevel, LEVEL);
	return 0;
}

int sp_frame_add(struct sp_frame_writer *writer, uint32_t index, const char *was, const char *is,
                 size_t size)
{
	struct record record = {.index = index};

	for (size_t i = 0; i < size; i++)
		record.difference[i] = was[i] ^ is[i];
	writer->blocks++;
	return compress(writer, &record, sizeof(record), ZSTD_e_continue);
}

struct sp_rewind_frame *sp_frame_finish(struct sp_frame_writer *writer)
{
	struct sp_rewind_frame *frame;

	if (compress(writer, NULL, 0, ZSTD_e_end) < 0)
		return NULL;
	frame = malloc(sizeof(*frame) + writer->size);
	if (!frame)
		return NULL;
	*frame = (struct sp_rewind_frame){.blocks = writer->blocks, .size = writer->size};
	memcpy(frame->data, writer->buffer, writer->size);
	return frame;
}

void sp_frame_release(struct sp_frame_writer *writer)
{
	ZSTD_freeCCtx(writer->zstd);
	free(writer->buffer);
}

/* --- reading --- */

int sp_frame_apply(const struct sp_rewind_frame *frame,
                   void (*apply)(void *context, uint32_t index, const char *difference),
                   void *context)
{
	ZSTD_DCtx *zstd = ZSTD_createDCtx();
	ZSTD_inBuffer in = {frame->data, frame->size, 0};

	if (!zstd)
		return -ENOMEM;
	for (size_t i = 0; i < frame->blocks; i++) {
		struct record record;
		ZSTD_outBuffer out = {&record, sizeof(record), 0};

		while (out.pos < out.size)
			if (ZSTD_isError(ZSTD_decompressStream(zstd, &out, &in))) {
				ZSTD_freeDCtx(zstd);
				return -ENOMEM; /* it is our own frame */
			}
		apply(context, record.index, record.difference);
	}
	ZSTD_freeDCtx(zstd);
	return 0;
}
