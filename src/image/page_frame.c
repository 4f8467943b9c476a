/* Encoding and decoding of one frame of pages: see page_frame.h. */
#include "image/page_frame.h"

#include "base/array.h"
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h> /* the same XXH3 with the widest registers of this processor */
#else
#include <xxhash.h>
#endif

static void *checked(void *context)
{
	/* Running out of memory ends the program, as everywhere: base/array.h. */
	return context ? context : sp_alloc(SIZE_MAX);
}

static size_t raw_size(const struct sp_frame *frame)
{
	return frame->pages * SP_PAGE_SIZE;
}

int sp_frame_check(const struct sp_frame *frame, uint64_t file_size, struct sp_error *err)
{
	if (frame->pages == 0 || frame->pages > SP_FRAME_PAGES)
		return sp_fail(err, EBADMSG, "a frame has %u pages, not 1 to %llu", frame->pages,
		               SP_FRAME_PAGES);
	if (frame->offset > file_size || frame->size > file_size - frame->offset)
		return sp_fail(err, EBADMSG,
		               "a frame of %" PRIu32 " bytes at offset %" PRIu64
		               " lies outside of pages.img (%" PRIu64 " bytes)",
		               frame->size, frame->offset, file_size);
	switch (frame->encoding) {
	case SP_FRAME_RAW:
		if (frame->size == raw_size(frame) && frame->offset % SP_PAGE_SIZE == 0)
			return 0;
		break;
	case SP_FRAME_ZSTD:
		if (frame->size > 0 && frame->size <= SP_FRAME_STORED_MAX)
			return 0;
		break;
	default:
		return sp_fail(err, EBADMSG, "a frame has the unknown encoding %u",
		               frame->encoding);
	}
	return sp_fail(err, EBADMSG,
	               "the frame at offset %" PRIu64 " of pages.img has %u pages in %" PRIu32
	               " bytes, which cannot be",
	               frame->offset, frame->pages, frame->size);
}

/* --- encoding --- */

/*
 * What zstd takes for inputs of one frame, measured: 0.6 MB at level 1, 1.3 at 3, 9.7 from 13 on.
 */
size_t sp_frame_encoder_memory(int level)
{
	if (level == SP_COMPRESS_NONE)
		return 0;
	if (level <= 1)
		return SP_FRAME_SIZE + (1U << 20);
	return SP_FRAME_SIZE + (level <= 4 ? 2U << 20 : 10U << 20);
}

void sp_frame_encoder_init(struct sp_frame_encoder *encoder, int level)
{
	*encoder = (struct sp_frame_encoder){0};
	if (level == SP_COMPRESS_NONE)
		return;
	encoder->capacity = SP_FRAME_STORED_MAX;
	encoder->packed = sp_alloc(encoder->capacity);
	encoder->zstd = checked(ZSTD_createCCtx());
	ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_compressionLevel, level);
	ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_checksumFlag, 1);
}

void sp_frame_encoder_release(struct sp_frame_encoder *encoder)
{
	ZSTD_freeCCtx(encoder->zstd);
	free(encoder->packed);
	*encoder = (struct sp_frame_encoder){0};
}

int sp_frame_encode(struct sp_frame_encoder *encoder, const void *pages, struct sp_frame *frame,
                    const void **stored, struct sp_error *err)
{
	size_t size = raw_size(frame);

	frame->encoding = SP_FRAME_RAW;
	*stored = pages;
	if (encoder->zstd) {
		frame->encoding = SP_FRAME_ZSTD;
		*stored = encoder->packed;
		size = ZSTD_compress2(encoder->zstd, encoder->packed, encoder->capacity, pages,
		                      size);
		if (ZSTD_isError(size))
			return sp_fail(err, EIO, "cannot compress pages: %s",
			               ZSTD_getErrorName(size));
	}
	frame->size = (uint32_t)size;
	frame->checksum = XXH3_64bits(*stored, size);
	return 0;
}

/* --- decoding --- */

void sp_frame_decoder_init(struct sp_frame_decoder *decoder)
{
	decoder->zstd = checked(ZSTD_createDCtx());
	decoder->pages = sp_alloc_pages(SP_FRAME_SIZE);
	decoder->stored = sp_alloc_pages(SP_FRAME_STORED_MAX);
}

void sp_frame_decoder_release(struct sp_frame_decoder *decoder)
{
	ZSTD_freeDCtx(decoder->zstd);
	free(decoder->pages);
	free(decoder->stored);
	*decoder = (struct sp_frame_decoder){0};
}

int sp_frame_decode(struct sp_frame_decoder *decoder, const struct sp_frame *frame,
                    const void *stored, const uint8_t **pages, struct sp_error *err)
{
	size_t size;

	if (XXH3_64bits(stored, frame->size) != frame->checksum)
		return sp_fail(err, EBADMSG,
		               "pages.img is damaged: the frame at offset %" PRIu64
		               " does not match its checksum",
		               frame->offset);
	*pages = stored;
	if (frame->encoding == SP_FRAME_RAW)
		return 0;
	*pages = decoder->pages;
	size = ZSTD_decompressDCtx(decoder->zstd, decoder->pages, raw_size(frame), stored,
	                           frame->size);
	if (ZSTD_isError(size))
		return sp_fail(err, EBADMSG,
		               "cannot decompress the frame at offset %" PRIu64 " of pages.img: %s",
		               frame->offset, ZSTD_getErrorName(size));
	if (size != raw_size(frame))
		return sp_fail(err, EBADMSG,
		               "the frame at offset %" PRIu64
		               " of pages.img holds %zu bytes instead of %zu",
		               frame->offset, size, raw_size(frame));
	return 0;
}
