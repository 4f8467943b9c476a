/*
 * Writing the page store: see pages.h. The caller's thread gathers pieces into batches and reads
 * them; workers compress and write them, each frame behind the one before when it is ready; the chunks
 * of the index are written in the order of the batches. So nothing grows with what is saved.
 *
 * Memory that is touched for the first time costs twice what it costs to read a page into it. So few
 * batches go round, and the disk is set to work as soon as there is something for it. Only if a frozen
 * program is to run on when it has been read (`read_ahead`), there is another measure: reading is an
 * order of magnitude faster than compressing, so there is room for a small program to be read before
 * it is compressed, and nobody waits for the disk; a large one is read at the speed of the workers.
 */
#include "image/checkpoint.h"
#include "image/page_batch.h"
#include "image/page_index.h"
#include "image/pages.h"
#include "image/pool.h"
#include "image/record.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>

/* What all encoders together may take; strong levels need much, and get fewer workers. */
#define ENCODERS_MEMORY_MAX (36U << 20)
/* How many frames may have been read and wait for a worker: 4 MiB. */
#define BATCHES 8
/* And how many more in a freeze: 22 MiB. */
#define BATCHES_AHEAD 44
/* The kernel begins to write pages.img back by pieces of this size. */
#define WRITE_BACK_SIZE (4U << 20)

struct object {
	uint64_t end; /* of what this layer has of it */
	uint32_t origin;
};

struct sp_page_writer {
	int dirfd;
	int fd; /* pages.img */
	bool read_ahead;
	struct sp_record_writer index;
	struct sp_log *log;
	uint64_t expected_bytes;
	uint64_t added_bytes;

	struct sp_array objects; /* struct object, of number i + 1 */
	uint32_t layer;
	struct sp_array sources; /* struct sp_page_source *: batches refer to them */
	struct sp_page_batch *filling;

	struct sp_pool *pool;
	struct sp_frame_encoder *encoders; /* one for each worker */
	unsigned worker_count;
	struct sp_array *room;   /* left by a writer before, or NULL */
	struct sp_array buffers; /* uint8_t *: the frames of the batches, made when first needed */

	pthread_mutex_t lock; /* of the end of pages.img: who has it writes there */
	uint64_t end;

	struct sp_page_stats stats; /* of the completed batches, whatever their layer */
};

const char *sp_page_state_name(enum sp_page_state state)
{
	static const char *const names[SP_PAGE_STATES] = {
	        [SP_PAGE_HOLE] = "hole",     [SP_PAGE_DATA] = "data", [SP_PAGE_PARENT] = "parent",
	        [SP_PAGE_ZERO] = "zero",     [SP_PAGE_FILE] = "file", [SP_PAGE_GUARD] = "guard",
	        [SP_PAGE_COMMON] = "common",
	};

	return (unsigned)state < SP_PAGE_STATES ? names[state] : "unknown";
}

/* --- what a worker does --- */

/*
 * Writes at the end of pages.img. Several at once would only wait for each other in the kernel, and
 * turn processors while they do.
 */
static int append(struct sp_page_writer *writer, const void *stored, struct sp_frame *frame)
{
	int rc;

	pthread_mutex_lock(&writer->lock);
	frame->offset = writer->end;
	rc = sp_pwrite_full(writer->fd, stored, frame->size, (off_t)frame->offset);
	writer->end += frame->size;
	pthread_mutex_unlock(&writer->lock);
	return rc;
}

/* Of all that lies before the end of a frame: the pieces that became complete with it. */
static void write_back(const struct sp_page_writer *writer, const struct sp_frame *frame)
{
	uint64_t begin = frame->offset / WRITE_BACK_SIZE * WRITE_BACK_SIZE;
	uint64_t end = (frame->offset + frame->size) / WRITE_BACK_SIZE * WRITE_BACK_SIZE;

	if (begin < end)
		sync_file_range(writer->fd, (off_t)begin, (off_t)(end - begin),
		                SYNC_FILE_RANGE_WRITE);
}

static int write_frame(struct sp_page_writer *writer, struct sp_frame_encoder *encoder,
                       struct sp_page_batch *batch, struct sp_error *err)
{
	struct sp_frame *frame = &batch->frame;
	const void *stored;
	int rc = sp_frame_encode(encoder, batch->pages, frame, &stored, err);

	if (rc < 0)
		return rc;
	rc = append(writer, stored, frame);
	if (rc < 0)
		return sp_fail_errno(err, -rc, "cannot write %s", SP_IMAGE_PAGES);
	if (!writer->read_ahead)
		write_back(writer, frame);
	return 0;
}

static int run_batch(void *context, unsigned number, void *job, struct sp_error *err)
{
	struct sp_page_writer *writer = context;
	struct sp_page_batch *batch = job;

	if (sp_pool_failed(writer->pool))
		return 0;
	sp_page_batch_sort_out(batch);
	return batch->frame.pages > 0 ? write_frame(writer, &writer->encoders[number], batch, err)
	                              : 0;
}

static int complete_batch(void *context, void *job, struct sp_error *err)
{
	struct sp_page_writer *writer = context;
	struct sp_page_batch *batch = job;
	Sealpoint__PageIndex chunk;

	for (size_t i = 0; i < batch->run_count; i++)
		writer->stats.pages[batch->states[i]] += batch->lengths[i];
	writer->stats.raw_bytes += batch->frame.pages * SP_PAGE_SIZE;
	writer->stats.stored_bytes += batch->frame.size;
	writer->stats.frames += batch->frame.pages > 0;
	sp_page_batch_chunk(batch, &chunk);
	return sp_record_write(&writer->index, SP_RECORD_PAGE_INDEX, &chunk.base, err);
}

/* --- opening --- */

static int create_files(struct sp_page_writer *writer, int dirfd, struct sp_error *err)
{
	writer->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	if (writer->dirfd < 0)
		return sp_fail_errno(err, errno, "cannot create %s", SP_IMAGE_PAGES);
	writer->fd = openat(dirfd, SP_IMAGE_PAGES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (writer->fd < 0)
		return sp_fail_errno(err, errno, "cannot create %s", SP_IMAGE_PAGES);
	return sp_record_writer_open(&writer->index, dirfd, SP_IMAGE_PAGE_INDEX, err);
}

static int start_workers(struct sp_page_writer *writer,
                         const struct sp_page_writer_options *options, struct sp_error *err)
{
	bool ahead = options->read_ahead && options->level != SP_COMPRESS_NONE;
	struct sp_pool_work work = {
	        .context = writer,
	        .job_size = sizeof(struct sp_page_batch),
	        .places = BATCHES + (ahead ? BATCHES_AHEAD : 0),
	        .reserve = ahead ? BATCHES_AHEAD : 0,
	        .run = run_batch,
	        .complete = complete_batch,
	};
	size_t memory = sp_frame_encoder_memory(options->level);
	unsigned count = options->workers ? options->workers : sp_pool_default_workers();

	if (memory && count > ENCODERS_MEMORY_MAX / memory)
		count = ENCODERS_MEMORY_MAX / memory;
	writer->worker_count = count;
	writer->encoders = sp_alloc_zeroed(count, sizeof(*writer->encoders));
	for (unsigned i = 0; i < count; i++)
		sp_frame_encoder_init(&writer->encoders[i], options->level);
	return sp_pool_start(&writer->pool, &work, count, err);
}

int sp_page_writer_open(struct sp_page_writer **writer, int dirfd,
                        const struct sp_page_writer_options *options, struct sp_error *err)
{
	struct sp_page_writer *opened;
	int rc;

	if (options->level != SP_COMPRESS_NONE &&
	    (options->level < ZSTD_minCLevel() || options->level > ZSTD_maxCLevel()))
		return sp_fail(err, EINVAL,
		               "there is no compression level %d; use 1 (fast) to %d (small), a "
		               "negative one for speed, or none",
		               options->level, ZSTD_maxCLevel());
	opened = sp_alloc_zeroed(1, sizeof(*opened));
	opened->dirfd = opened->fd = -1;
	opened->read_ahead = options->read_ahead;
	opened->log = options->log;
	opened->expected_bytes = options->expected_bytes;
	opened->objects = SP_ARRAY_OF(struct object);
	opened->sources = SP_ARRAY_OF(struct sp_page_source *);
	pthread_mutex_init(&opened->lock, NULL);
	opened->room = options->room;
	opened->buffers = SP_ARRAY_OF(uint8_t *);
	rc = create_files(opened, dirfd, err);
	if (rc == 0)
		rc = start_workers(opened, options, err);
	if (rc < 0)
		sp_page_writer_abandon(opened);
	else
		*writer = opened;
	return rc;
}

uint32_t sp_page_writer_new_object(struct sp_page_writer *writer)
{
	sp_array_push(&writer->objects);
	return (uint32_t)writer->objects.count;
}

void sp_page_writer_use_object(struct sp_page_writer *writer, uint32_t object)
{
	while (writer->objects.count < object)
		sp_array_push(&writer->objects);
}

static struct object *find_object(struct sp_page_writer *writer, uint32_t object)
{
	return sp_array_at(&writer->objects, object - 1);
}

void sp_page_writer_set_origin(struct sp_page_writer *writer, uint32_t object, uint32_t origin)
{
	find_object(writer, object)->origin = origin;
}

uint32_t sp_page_writer_add_source(struct sp_page_writer *writer, struct sp_page_source source)
{
	struct sp_page_source *kept = sp_alloc(sizeof(*kept));

	*kept = source;
	sp_array_append(&writer->sources, &kept);
	return (uint32_t)writer->sources.count;
}

/* --- adding --- */

static uint8_t *frame_buffer(struct sp_page_writer *writer)
{
	if (writer->room && writer->room->count)
		return sp_array_pointer(writer->room, --writer->room->count);
	return aligned_alloc(SP_PAGE_SIZE, SP_FRAME_SIZE);
}

/* A batch to fill in; one that is used for the first time gets its room for contents. */
static int claim(struct sp_page_writer *writer, struct sp_error *err)
{
	struct sp_page_batch *batch = sp_pool_claim(writer->pool);

	if (!batch->pages) {
		batch->pages = frame_buffer(writer);
		if (!batch->pages)
			return sp_fail_errno(err, ENOMEM, "cannot save pages");
		sp_array_append(&writer->buffers, &batch->pages);
	}
	sp_page_batch_clear(batch);
	batch->layer = writer->layer;
	writer->filling = batch;
	return 0;
}

/* Reads the batch that is being filled, and hands it to the workers. */
static int submit(struct sp_page_writer *writer, struct sp_error *err)
{
	struct sp_page_batch *batch = writer->filling;
	struct sp_error failure = {0};

	if (!batch)
		return sp_pool_error(writer->pool, err);
	writer->filling = NULL;
	if (sp_page_batch_read(batch, &failure) == 0)
		sp_pool_submit(writer->pool);
	else
		sp_pool_fail(writer->pool, &failure);
	return sp_pool_error(writer->pool, err);
}

static int check_addition(struct sp_page_writer *writer, uint32_t object, struct sp_range range,
                          enum sp_page_state state, uint32_t source, struct sp_error *err)
{
	uint64_t end;

	if (object == 0 || object > writer->objects.count)
		return sp_fail(err, EINVAL, "there is no object %" PRIu32 " in the page store",
		               object);
	if (state == SP_PAGE_DATA && (source == 0 || source > writer->sources.count))
		return sp_fail(err, EINVAL, "there is no page source %" PRIu32, source);
	if (state == SP_PAGE_COMMON && find_object(writer, object)->origin == 0)
		return sp_fail(err, EINVAL, "object %" PRIu32 " has no origin", object);
	end = find_object(writer, object)->end;
	if ((unsigned)state >= SP_PAGE_STATES || range.start >= range.end || range.start < end ||
	    range.start % SP_PAGE_SIZE || range.end % SP_PAGE_SIZE ||
	    range.end / SP_PAGE_SIZE > SP_INDEX_PAGES_END)
		return sp_fail(err, EINVAL,
		               "%s pages at %#" PRIx64 "-%#" PRIx64 " of object %" PRIu32
		               " cannot be added behind %#" PRIx64,
		               sp_page_state_name(state), range.start, range.end, object, end);
	return 0;
}

int sp_page_writer_add(struct sp_page_writer *writer, uint32_t object, struct sp_range range,
                       enum sp_page_state state, uint32_t source, struct sp_error *err)
{
	int rc = check_addition(writer, object, range, state, source, err);
	struct sp_page_piece piece = {
	        .page = range.start / SP_PAGE_SIZE,
	        .pages = sp_range_size(range) / SP_PAGE_SIZE,
	        .object = object,
	        .state = state,
	};

	if (rc < 0)
		return rc;
	find_object(writer, object)->end = range.end;
	piece.origin = find_object(writer, object)->origin;
	if (state == SP_PAGE_DATA)
		piece.source = sp_array_pointer(&writer->sources, source - 1);
	while (piece.pages > 0) {
		uint64_t taken;

		if (!writer->filling && (rc = claim(writer, err)) < 0)
			return rc;
		taken = sp_page_batch_add(writer->filling, &piece);
		piece.page += taken;
		piece.pages -= taken;
		if (piece.pages > 0 && (rc = submit(writer, err)) < 0)
			return rc;
		if (sp_pool_failed(writer->pool))
			return sp_pool_error(writer->pool, err);
		if (state == SP_PAGE_DATA) {
			writer->added_bytes += taken * SP_PAGE_SIZE;
			sp_progress(writer->log, "saving memory", writer->added_bytes,
			            writer->expected_bytes);
		}
	}
	return 0;
}

int sp_page_writer_next_layer(struct sp_page_writer *writer, struct sp_error *err)
{
	if (writer->layer + 1 == SP_PAGE_LAYERS)
		return sp_fail(err, EOVERFLOW,
		               "pages were saved in %d rounds, and cannot be in more",
		               SP_PAGE_LAYERS);
	writer->layer++;
	for (size_t i = 0; i < writer->objects.count; i++)
		find_object(writer, (uint32_t)i + 1)->end = 0;
	return submit(writer, err);
}

int sp_page_writer_drain(struct sp_page_writer *writer, struct sp_error *err)
{
	return submit(writer, err);
}

/* A frame takes about 2 ms at the usual level. */
#define PAUSE_PATIENCE_NS (3 * SP_NS_PER_MS)

void sp_page_writer_pause(struct sp_page_writer *writer)
{
	sp_pool_pause(writer->pool, PAUSE_PATIENCE_NS);
}

void sp_page_writer_resume(struct sp_page_writer *writer)
{
	sp_pool_resume(writer->pool);
}

/* --- the end --- */

static void release_sources(struct sp_page_writer *writer)
{
	for (size_t i = 0; i < writer->sources.count; i++) {
		struct sp_page_source *source = sp_array_pointer(&writer->sources, i);

		if (source->release)
			source->release(source->context);
		free(source);
	}
	sp_array_release(&writer->sources);
}

void sp_page_room_free(struct sp_array *room)
{
	for (size_t i = 0; i < room->count; i++)
		free(sp_array_pointer(room, i));
	sp_array_release(room);
}

/* Frees the writer, whose pool has ended. */
static void writer_free(struct sp_page_writer *writer)
{
	release_sources(writer);
	for (unsigned i = 0; i < writer->worker_count; i++)
		sp_frame_encoder_release(&writer->encoders[i]);
	free(writer->encoders);
	for (size_t i = 0; i < writer->buffers.count && writer->room; i++)
		sp_array_append(writer->room, sp_array_at(&writer->buffers, i));
	if (writer->room)
		sp_array_release(&writer->buffers);
	else
		sp_page_room_free(&writer->buffers);
	sp_record_writer_abandon(&writer->index);
	sp_close_scope(&writer->fd);
	sp_close_scope(&writer->dirfd);
	sp_array_release(&writer->objects);
	pthread_mutex_destroy(&writer->lock);
	free(writer);
}

static int finish_files(struct sp_page_writer *writer, struct sp_error *err)
{
	submit(writer, NULL);
	if (sp_pool_finish(writer->pool, err) < 0)
		return -err->code;
	return sp_record_writer_finish(&writer->index, err);
}

/* What the topmost layers say, which only the finished index tells. */
static int read_stats(struct sp_page_writer *writer, struct sp_error *err)
{
	struct sp_page_index index;
	int rc;

	sp_page_index_init(&index, writer->end);
	rc = sp_page_index_read_file(&index, writer->dirfd, err);
	if (rc == 0)
		sp_page_index_stats(&index, &writer->stats);
	sp_page_index_release(&index);
	return rc;
}

int sp_page_writer_finish(struct sp_page_writer *writer, struct sp_page_stats *stats,
                          struct sp_error *err)
{
	struct sp_error own = {0};
	int rc = finish_files(writer, &own);

	sp_progress_end(writer->log);
	if (rc == 0 && stats && writer->layer > 0)
		rc = read_stats(writer, &own);
	if (rc < 0 && err)
		*err = own;
	if (rc == 0 && stats)
		*stats = writer->stats;
	writer_free(writer);
	return rc;
}

void sp_page_writer_abandon(struct sp_page_writer *writer)
{
	struct sp_error reason = {.code = ECANCELED, .message = "saving was given up"};

	if (writer->pool) {
		sp_pool_fail(writer->pool, &reason);
		sp_pool_finish(writer->pool, NULL);
	}
	sp_progress_end(writer->log);
	writer_free(writer);
}
