/*
 * Rewind: a copy of memory and state as of the last capture, and a list of differences that leads from
 * there into the past. See include/sealpoint/rewind.h for the contract.
 *
 * The copy decides what has changed: a page that was written with what it held before costs nothing.
 * Between calls, memory differs from the copy at most where the watch says written.
 */
#include "sealpoint/rewind.h"

#include "track/rewind_frame.h"
#include "track/rewind_save.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK SP_REWIND_BLOCK
#define BATCH 128

struct sp_rewind {
	struct sp_write_watch *watch;
	struct sp_span memory;
	char *copy; /* of the memory, then of the state */
	size_t size, copy_size;
	void *state;
	size_t state_size;
	size_t limit;
	uint64_t *changed; /* a bit for each block */
	struct sp_frame_writer writer;
	struct sp_rewind_frame *newest, *oldest;
	struct sp_rewind_stats stats;
};

/* --- opening and closing --- */

static int open_parts(struct sp_rewind *rewind, enum sp_write_watch_backend backend)
{
	int rc = sp_write_watch_open(&rewind->watch, rewind->memory, backend);

	if (rc < 0)
		return rc;
	rewind->copy_size = rewind->size + BLOCK;
	rewind->copy = mmap(NULL, rewind->copy_size, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	rewind->changed = calloc(rewind->size / BLOCK / 64 + 1, sizeof(*rewind->changed));
	if (rewind->copy == MAP_FAILED || !rewind->changed)
		return -ENOMEM;
	memcpy(rewind->copy, rewind->memory.start, rewind->size);
	if (rewind->state_size)
		memcpy(rewind->copy + rewind->size, rewind->state, rewind->state_size);
	return 0;
}

int sp_rewind_open(struct sp_rewind **rewind, struct sp_span memory, void *state, size_t state_size,
                   size_t limit, enum sp_write_watch_backend backend)
{
	struct sp_rewind *made;
	int rc;

	*rewind = NULL;
	if (state_size > BLOCK || memory.end < memory.start)
		return -EINVAL;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->memory = memory;
	made->size = (size_t)(memory.end - memory.start);
	made->state = state;
	made->state_size = state_size;
	made->limit = limit;
	made->copy = MAP_FAILED;
	rc = open_parts(made, backend);
	if (rc < 0)
		sp_rewind_close(made);
	else
		*rewind = made;
	return rc;
}

static void drop(struct sp_rewind *rewind, struct sp_rewind_frame *frame)
{
	if (frame->newer)
		frame->newer->older = frame->older;
	else
		rewind->newest = frame->older;
	if (frame->older)
		frame->older->newer = frame->newer;
	else
		rewind->oldest = frame->newer;
	rewind->stats.frames--;
	rewind->stats.bytes -= sizeof(*frame) + frame->size;
	free(frame);
}

void sp_rewind_close(struct sp_rewind *rewind)
{
	if (!rewind)
		return;
	while (rewind->oldest)
		drop(rewind, rewind->oldest);
	sp_write_watch_close(rewind->watch);
	if (rewind->copy != MAP_FAILED)
		munmap(rewind->copy, rewind->copy_size);
	free(rewind->changed);
	sp_frame_release(&rewind->writer);
	free(rewind);
}

/* --- what was written since the last capture --- */

typedef int block_visitor(struct sp_rewind *rewind, size_t block);

/* Visits the blocks that differ from the copy, of those that the watch calls written. */
static int visit_different(struct sp_rewind *rewind, block_visitor *visit)
{
	struct sp_span left = rewind->memory, ranges[BATCH];

	while (left.start < left.end) {
		ssize_t count = sp_write_watch_ranges(rewind->watch, &left, 0, ranges, BATCH);

		if (count < 0)
			return (int)count;
		for (ssize_t i = 0; i < count; i++)
			for (const char *at = ranges[i].start; at < ranges[i].end; at += BLOCK) {
				size_t offset = (size_t)(at - rewind->memory.start);
				int rc = memcmp(at, rewind->copy + offset, BLOCK)
				                 ? visit(rewind, offset / BLOCK)
				                 : 0;

				if (rc < 0)
					return rc;
			}
	}
	return 0;
}

static int note_changed(struct sp_rewind *rewind, size_t block)
{
	rewind->changed[block / 64] |= 1ULL << block % 64;
	return 0;
}

static int add_to_frame(struct sp_rewind *rewind, size_t block)
{
	size_t offset = block * BLOCK;

	return sp_frame_add(&rewind->writer, (uint32_t)block, rewind->copy + offset,
	                    rewind->memory.start + offset, BLOCK);
}

static int copy_block(struct sp_rewind *rewind, size_t block)
{
	memcpy(rewind->copy + block * BLOCK, rewind->memory.start + block * BLOCK, BLOCK);
	return note_changed(rewind, block);
}

static int take_back_block(struct sp_rewind *rewind, size_t block)
{
	memcpy(rewind->memory.start + block * BLOCK, rewind->copy + block * BLOCK, BLOCK);
	return note_changed(rewind, block);
}

/* --- capturing --- */

static void keep(struct sp_rewind *rewind, struct sp_rewind_frame *frame)
{
	frame->older = rewind->newest;
	if (frame->older)
		frame->older->newer = frame;
	else
		rewind->oldest = frame;
	rewind->newest = frame;
	rewind->stats.frames++;
	rewind->stats.bytes += sizeof(*frame) + frame->size;
	rewind->stats.last_bytes = sizeof(*frame) + frame->size;
	rewind->stats.last_blocks = frame->blocks;
	while (rewind->oldest && rewind->stats.bytes > rewind->limit)
		drop(rewind, rewind->oldest);
}

/* The state is the block behind the memory. */
static struct sp_rewind_frame *make_frame(struct sp_rewind *rewind, int *rc)
{
	const char *state = rewind->copy + rewind->size;

	*rc = sp_frame_begin(&rewind->writer);
	if (*rc == 0)
		*rc = visit_different(rewind, add_to_frame);
	if (*rc == 0 && rewind->state_size && memcmp(state, rewind->state, rewind->state_size) != 0)
		*rc = sp_frame_add(&rewind->writer, (uint32_t)(rewind->size / BLOCK), state,
		                   rewind->state, rewind->state_size);
	if (*rc < 0)
		return NULL;
	return sp_frame_finish(&rewind->writer);
}

/* The copy is changed only when the frame that leads back from it is complete. */
int sp_rewind_capture(struct sp_rewind *rewind)
{
	int rc;
	struct sp_rewind_frame *frame = make_frame(rewind, &rc);

	if (!frame)
		return rc < 0 ? rc : -ENOMEM;
	visit_different(rewind, copy_block);
	if (rewind->state_size)
		memcpy(rewind->copy + rewind->size, rewind->state, rewind->state_size);
	keep(rewind, frame);
	return sp_write_watch_reset(rewind->watch, rewind->memory);
}

/* --- going back --- */

static void undo_block(void *context, uint32_t index, const char *difference)
{
	struct sp_rewind *rewind = context;
	char *copy = rewind->copy + (size_t)index * BLOCK;

	for (size_t i = 0; i < BLOCK; i++)
		copy[i] ^= difference[i];
	if ((size_t)index * BLOCK < rewind->size)
		take_back_block(rewind, index);
}

int sp_rewind_back(struct sp_rewind *rewind, size_t frames)
{
	int rc;

	if (frames > rewind->stats.frames)
		return -ERANGE;
	rc = visit_different(rewind, take_back_block);
	while (rc == 0 && frames--) {
		rc = sp_frame_apply(rewind->newest, undo_block, rewind);
		if (rc == 0)
			drop(rewind, rewind->newest);
	}
	if (rc < 0)
		return rc;
	if (rewind->state_size)
		memcpy(rewind->state, rewind->copy + rewind->size, rewind->state_size);
	return sp_write_watch_reset(rewind->watch, rewind->memory);
}

/* --- what has changed --- */

static bool take_changed(struct sp_rewind *rewind, const char *at, unsigned flags)
{
	size_t block = (size_t)(at - rewind->memory.start) / BLOCK;
	uint64_t *word = &rewind->changed[block / 64], bit = 1ULL << block % 64;
	bool changed = *word & bit;

	if (flags & SP_WRITE_WATCH_RESET)
		*word &= ~bit;
	return changed;
}

ssize_t sp_rewind_changed(struct sp_rewind *rewind, struct sp_span *left, unsigned flags,
                          struct sp_span *ranges, size_t room)
{
	size_t filled = 0;

	if (!room || flags & ~SP_WRITE_WATCH_RESET || left->start < rewind->memory.start ||
	    left->end > rewind->memory.end || left->start > left->end ||
	    (left->start - rewind->memory.start) % BLOCK || (left->end - left->start) % BLOCK)
		return -EINVAL;
	for (; left->start < left->end; left->start += BLOCK) {
		bool joins = filled && ranges[filled - 1].end == left->start;

		if (!joins && filled == room)
			break;
		if (!take_changed(rewind, left->start, flags))
			continue;
		if (!joins)
			ranges[filled++].start = left->start;
		ranges[filled - 1].end = left->start + BLOCK;
	}
	return (ssize_t)filled;
}

/* --- save-states --- */

int sp_rewind_save(struct sp_rewind *rewind, int fd)
{
	return sp_state_save(fd, rewind->copy, rewind->size, rewind->state_size);
}

static void put_block(struct sp_rewind *rewind, const char *saved, size_t offset)
{
	char *memory = rewind->memory.start + offset;

	if (memcmp(memory, saved + offset, BLOCK) != 0)
		memcpy(memory, saved + offset, BLOCK);
}

int sp_rewind_load(struct sp_rewind *rewind, int fd)
{
	const struct sp_span nothing = {rewind->memory.start, rewind->memory.start};
	char *saved = mmap(NULL, rewind->copy_size, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (saved == MAP_FAILED)
		return -ENOMEM;
	rc = (int)sp_write_watch_count(rewind->watch, nothing, 0); /* -ECHILD? */
	if (rc == 0)
		rc = sp_state_load(fd, saved, rewind->size, rewind->state_size);
	if (rc == 0) {
		for (size_t offset = 0; offset < rewind->size; offset += BLOCK)
			put_block(rewind, saved, offset);
		if (rewind->state_size)
			memcpy(rewind->state, saved + rewind->size, rewind->state_size);
		rc = sp_rewind_capture(rewind);
	}
	munmap(saved, rewind->copy_size);
	return rc;
}

/* --- about it --- */

void sp_rewind_stats(const struct sp_rewind *rewind, struct sp_rewind_stats *stats)
{
	*stats = rewind->stats;
}

unsigned sp_rewind_guarantees(const struct sp_rewind *rewind)
{
	return sp_write_watch_guarantees(rewind->watch);
}
