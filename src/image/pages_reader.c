/*
 * Reading the page store: opening, looking through a chain, walking, and reading single pieces;
 * see pages.h and page_store.h. Loading whole address spaces is pages_load.c.
 */
#include "image/checkpoint.h"
#include "image/page_store.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- opening --- */

static int open_pages(struct sp_page_store *store, int dirfd, struct sp_error *err)
{
	struct stat stat;

	store->fd = openat(dirfd, SP_IMAGE_PAGES, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (store->fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", SP_IMAGE_PAGES);
	if (fstat(store->fd, &stat) < 0)
		return sp_fail_errno(err, errno, "cannot read %s", SP_IMAGE_PAGES);
	if (!S_ISREG(stat.st_mode))
		return sp_fail(err, EINVAL, "cannot read %s: it is not a regular file",
		               SP_IMAGE_PAGES);
	store->device = stat.st_dev;
	store->inode = stat.st_ino;
	sp_page_index_init(&store->index, (uint64_t)stat.st_size);
	return 0;
}

int sp_page_store_open_alone(struct sp_page_store **store, int dirfd, struct sp_error *err)
{
	struct sp_page_store *opened = sp_alloc_zeroed(1, sizeof(*opened));
	int rc;

	opened->frames = SP_ARRAY_OF(struct sp_chain_frame);
	rc = open_pages(opened, dirfd, err);
	if (rc == 0)
		rc = sp_page_index_read_file(&opened->index, dirfd, err);
	if (rc < 0) {
		sp_page_store_close(opened);
		return rc;
	}
	for (size_t i = 0; i < opened->index.frames.count; i++) {
		struct sp_chain_frame frame = {opened, (uint32_t)i};

		sp_array_append(&opened->frames, &frame);
	}
	*store = opened;
	return 0;
}

int sp_page_store_open(struct sp_page_store **store, int dirfd, struct sp_page_store *parent,
                       struct sp_error *err)
{
	struct sp_page_store *opened;
	int rc = sp_page_store_open_alone(&opened, dirfd, err);

	if (rc < 0)
		return rc;
	if (parent)
		rc = sp_page_store_look_through(opened, parent, err);
	if (rc == 0)
		rc = sp_page_store_check_whole(opened, err);
	if (rc < 0)
		sp_page_store_close(opened);
	else
		*store = opened;
	return rc;
}

/* What the index says as long as it is only this store's. */
static void count(struct sp_page_store *store)
{
	if (!store->counted)
		sp_page_index_stats(&store->index, &store->stats);
	store->counted = true;
}

void sp_page_store_retire(struct sp_page_store *store)
{
	count(store);
	sp_array_release(&store->index.runs);
	sp_array_release(&store->frames);
}

void sp_page_store_close(struct sp_page_store *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < SP_CACHED_FRAMES; i++) {
		if (store->cache[i].used_before)
			sp_frame_decoder_release(&store->cache[i].decoder);
	}
	sp_close_scope(&store->fd);
	sp_array_release(&store->frames);
	sp_page_index_release(&store->index);
	free(store);
}

void sp_page_store_stats(struct sp_page_store *store, struct sp_page_stats *stats)
{
	count(store);
	*stats = store->stats;
}

void sp_page_store_chain_stats(const struct sp_page_store *store, struct sp_page_stats *stats)
{
	*stats = (struct sp_page_stats){0};
	sp_page_index_count_pages(&store->index, store->frames.count, stats);
}

/* --- the chain --- */

/* Appends what `below` says of a PARENT run, with its frames numbered from `base`. */
static int append_below(struct sp_array *runs, const struct sp_index_run *run,
                        const struct sp_page_index *below, size_t base, struct sp_error *err)
{
	uint64_t page = run->page, end = run->page + run->pages;

	for (size_t i = sp_page_index_search(below, run->origin, page); page < end; i++) {
		const struct sp_index_run *found = sp_page_index_run(below, run->origin, i);
		struct sp_index_run renumbered;
		uint64_t found_end;

		if (!found || found->page > page)
			return sp_fail(err, EBADMSG,
			               "%s: page %" PRIu64 " of object %" PRIu32
			               " is not in the parent checkpoint",
			               SP_IMAGE_PAGE_INDEX, page, run->origin);
		renumbered = *found;
		renumbered.object = run->object;
		if (found->state == SP_PAGE_DATA)
			renumbered.frame += (uint32_t)base;
		found_end = found->page + found->pages;
		sp_page_runs_append(runs, &renumbered, page, found_end < end ? found_end : end);
		page = found_end;
	}
	return 0;
}

int sp_page_store_look_through(struct sp_page_store *store, const struct sp_page_store *below,
                               struct sp_error *err)
{
	struct sp_array runs = SP_ARRAY_OF(struct sp_index_run);
	int rc = 0;

	count(store);
	for (size_t i = 0; i < store->index.runs.count && rc == 0; i++) {
		const struct sp_index_run *run = sp_array_at(&store->index.runs, i);

		if (run->state == SP_PAGE_PARENT)
			rc = append_below(&runs, run, &below->index, store->frames.count, err);
		else
			sp_page_runs_append(&runs, run, run->page, run->page + run->pages);
	}
	sp_array_release(&store->index.runs);
	store->index.runs = runs;
	for (size_t i = 0; i < below->frames.count; i++)
		sp_array_append(&store->frames, sp_array_at(&below->frames, i));
	return rc;
}

int sp_page_store_check_whole(const struct sp_page_store *store, struct sp_error *err)
{
	for (size_t i = 0; i < store->index.runs.count; i++) {
		const struct sp_index_run *run = sp_array_at(&store->index.runs, i);

		if (run->state == SP_PAGE_PARENT)
			return sp_fail(err, EBADMSG,
			               "%s: page %" PRIu64 " of object %" PRIu32
			               " is in a parent, but this checkpoint has none",
			               SP_IMAGE_PAGE_INDEX, run->page, run->object);
	}
	return 0;
}

/* --- runs --- */

int sp_page_store_walk(struct sp_page_store *store, uint32_t object, struct sp_range within,
                       int (*visit)(void *context, const struct sp_page_run *run), void *context,
                       struct sp_error *err)
{
	size_t number = sp_page_index_search(&store->index, object, within.start / SP_PAGE_SIZE);
	const struct sp_index_run *run;

	while ((run = sp_page_index_run(&store->index, object, number++)) != NULL) {
		struct sp_page_run part = {
		        {run->page * SP_PAGE_SIZE, (run->page + run->pages) * SP_PAGE_SIZE},
		        (enum sp_page_state)run->state,
		};
		int rc;

		if (part.range.start >= within.end)
			break;
		if (part.range.start < within.start)
			part.range.start = within.start;
		if (part.range.end > within.end)
			part.range.end = within.end;
		rc = visit(context, &part);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* --- frames --- */

static int read_frame(const struct sp_page_store *store, const struct sp_frame *frame,
                      struct sp_frame_decoder *decoder, const uint8_t **pages, struct sp_error *err)
{
	uint8_t *stored = frame->encoding == SP_FRAME_RAW ? decoder->pages : decoder->stored;
	ssize_t size = sp_pread_full(store->fd, stored, frame->size, (off_t)frame->offset);

	if (size < 0)
		return sp_fail_errno(err, (int)-size, "cannot read %s at offset %" PRIu64,
		                     SP_IMAGE_PAGES, frame->offset);
	if (size < frame->size)
		return sp_fail(err, EBADMSG, "%s is cut off in the frame at offset %" PRIu64,
		               SP_IMAGE_PAGES, frame->offset);
	return sp_frame_decode(decoder, frame, stored, pages, err);
}

/* Of a chain, only the store knows which checkpoint it is in: that is where its file is. */
static int name_checkpoint(const struct sp_page_store *store, struct sp_error *err)
{
	char link[64], path[PATH_MAX];
	ssize_t size;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", store->fd);
	size = readlink(link, path, sizeof(path) - 1);
	path[size < 0 ? 0 : size] = '\0';
	if (!strrchr(path, '/'))
		return -err->code;
	*strrchr(path, '/') = '\0';
	return err->code == EBADMSG
	               ? sp_error_context(err, "checkpoint %s is damaged, use another copy of it",
	                                  path)
	               : sp_error_context(err, "checkpoint %s", path);
}

int sp_chain_frame_read(const struct sp_chain_frame *chain_frame, struct sp_frame_decoder *decoder,
                        const uint8_t **pages, struct sp_error *err)
{
	const struct sp_page_store *store = chain_frame->store;
	int rc = read_frame(store, sp_array_at(&store->index.frames, chain_frame->number), decoder,
	                    pages, err);

	return rc < 0 && err ? name_checkpoint(store, err) : rc;
}

/* --- single pieces --- */

/* Finds the frame in the cache, or puts it in the place that has not been used for longest. */
static int cached_frame(struct sp_page_store *store, uint32_t frame, const uint8_t **pages,
                        struct sp_error *err)
{
	struct sp_cached_frame *place = &store->cache[0];
	int rc;

	for (size_t i = 0; i < SP_CACHED_FRAMES; i++) {
		struct sp_cached_frame *cached = &store->cache[i];

		if (cached->pages && cached->frame == frame) {
			cached->used = ++store->uses;
			*pages = cached->pages;
			return 0;
		}
		if (cached->used < place->used)
			place = cached;
	}
	if (!place->used_before)
		sp_frame_decoder_init(&place->decoder);
	place->used_before = true;
	place->frame = frame;
	place->pages = NULL;
	rc = sp_chain_frame_read(sp_page_store_chain_frame(store, frame), &place->decoder,
	                         &place->pages, err);
	if (rc < 0) {
		place->pages = NULL;
		return rc;
	}
	place->used = ++store->uses;
	*pages = place->pages;
	return 0;
}

/* Copies from pages that have one state; `run` NULL: they were never added. */
static int read_piece(struct sp_page_store *store, const struct sp_index_run *run, uint64_t offset,
                      void *buffer, size_t size, struct sp_error *err)
{
	const uint8_t *pages;
	int rc;

	if (!run || run->state == SP_PAGE_FILE)
		return sp_fail(err, ENODATA, "the page at %#" PRIx64 " is not in the checkpoint%s",
		               offset, run ? ": it is an unmodified page of a file" : "");
	if (run->state != SP_PAGE_DATA) {
		memset(buffer, 0, size);
		return 0;
	}
	rc = cached_frame(store, run->frame, &pages, err);
	if (rc < 0)
		return rc;
	memcpy(buffer, pages + run->place * SP_PAGE_SIZE + (offset - run->page * SP_PAGE_SIZE),
	       size);
	return 0;
}

int sp_page_store_read(struct sp_page_store *store, uint32_t object, uint64_t offset, void *buffer,
                       size_t size, struct sp_error *err)
{
	if (offset > SP_INDEX_PAGES_END * SP_PAGE_SIZE ||
	    size > SP_INDEX_PAGES_END * SP_PAGE_SIZE - offset)
		return sp_fail(err, EINVAL, "there is nothing at %#" PRIx64 " in a checkpoint",
		               offset);
	while (size > 0) {
		uint64_t pages;
		const struct sp_index_run *run =
		        sp_page_index_at(&store->index, object, offset / SP_PAGE_SIZE, &pages);
		uint64_t room = pages * SP_PAGE_SIZE - offset % SP_PAGE_SIZE;
		size_t piece = size < room ? size : (size_t)room;
		int rc = read_piece(store, run, offset, buffer, piece, err);

		if (rc < 0)
			return rc;
		offset += piece;
		buffer = (char *)buffer + piece;
		size -= piece;
	}
	return 0;
}
