/*
 * One frame of page data: up to SP_FRAME_SIZE of pages, compressed or raw, with a checksum over the
 * bytes as they are stored. Frames are independent of each other.
 */
#ifndef SEALPOINT_IMAGE_PAGE_FRAME_H
#define SEALPOINT_IMAGE_PAGE_FRAME_H

#include "image/pages.h"

#include <stdint.h>
#include <zstd.h>

struct sp_error;

#define SP_FRAME_PAGES (SP_FRAME_SIZE / SP_PAGE_SIZE)
#define SP_FRAME_STORED_MAX ZSTD_COMPRESSBOUND(SP_FRAME_SIZE)

enum sp_frame_encoding {
	SP_FRAME_ZSTD = 1, /* one zstd frame with content checksum and content size */
	SP_FRAME_RAW = 2,  /* the pages themselves, at a multiple of the page size */
};

struct sp_frame {
	uint64_t offset; /* in pages.img */
	uint64_t checksum;
	uint32_t size; /* in pages.img */
	uint16_t pages;
	uint8_t encoding; /* enum sp_frame_encoding */
};

/** Fails unless the numbers of a frame fit each other and a pages.img of `file_size` bytes. */
int sp_frame_check(const struct sp_frame *frame, uint64_t file_size, struct sp_error *err);

struct sp_frame_encoder {
	ZSTD_CCtx *zstd; /* NULL: raw */
	uint8_t *packed;
	size_t capacity;
};

/** Memory that an encoder of this level takes at most, about. */
size_t sp_frame_encoder_memory(int level);
void sp_frame_encoder_init(struct sp_frame_encoder *encoder, int level);
void sp_frame_encoder_release(struct sp_frame_encoder *encoder);
/**
 * Encodes `frame->pages` pages. Sets encoding, size and checksum of the frame; `*stored` is what
 * has to be written, valid until the next call (or `pages` themselves).
 */
int sp_frame_encode(struct sp_frame_encoder *encoder, const void *pages, struct sp_frame *frame,
                    const void **stored, struct sp_error *err);

struct sp_frame_decoder {
	ZSTD_DCtx *zstd;
	uint8_t *pages;  /* room for one frame */
	uint8_t *stored; /* room for any frame as it is stored */
};

void sp_frame_decoder_init(struct sp_frame_decoder *decoder);
void sp_frame_decoder_release(struct sp_frame_decoder *decoder);
/**
 * Checks the stored bytes and decodes them. `*pages` is valid until the next call, or `stored`
 * itself for a raw frame.
 */
int sp_frame_decode(struct sp_frame_decoder *decoder, const struct sp_frame *frame,
                    const void *stored, const uint8_t **pages, struct sp_error *err);

#endif
