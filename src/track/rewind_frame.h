/*
 * The difference between two captures: blocks of memory that differ, each as the exclusive or of both
 * sides, compressed. It leads back as well as forth, and what did not change within a block is zeros,
 * which cost next to nothing.
 */
#ifndef SEALPOINT_TRACK_REWIND_FRAME_H
#define SEALPOINT_TRACK_REWIND_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define SP_REWIND_BLOCK 4096

struct sp_rewind_frame {
	struct sp_rewind_frame *older, *newer;
	size_t blocks;
	size_t size; /* of `data` */
	char data[];
};

/** Makes frames; what it needs is kept from one to the next. Zeroed at first. */
struct sp_frame_writer {
	struct ZSTD_CCtx_s *zstd;
	char *buffer;
	size_t size, capacity, blocks;
};

/** -ENOMEM, as all that follow. */
int sp_frame_begin(struct sp_frame_writer *writer);
/** Adds block number `index`: what it was and what it is. `size` is at most SP_REWIND_BLOCK. */
int sp_frame_add(struct sp_frame_writer *writer, uint32_t index, const char *was, const char *is,
                 size_t size);
/** The finished frame, the caller's to free; NULL: out of memory. */
struct sp_rewind_frame *sp_frame_finish(struct sp_frame_writer *writer);
void sp_frame_release(struct sp_frame_writer *writer);

/** Gives the blocks of a frame to `apply`: the exclusive or, SP_REWIND_BLOCK bytes. */
int sp_frame_apply(const struct sp_rewind_frame *frame,
                   void (*apply)(void *context, uint32_t index, const char *difference),
                   void *context);

#endif
