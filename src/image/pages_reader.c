/*
 * Reading the page store: opening, walking, and reading single pieces; see pages.h. Loading whole
 * address spaces is pages_load.c.
 */
#include "image/checkpoint.h"
#include "image/page_store.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* --- opening --- */

static int map_pages(struct sp_page_store *store, int dirfd, struct sp_error *err)
{
	sp_cleanup_close int fd = openat(dirfd, SP_IMAGE_PAGES, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat stat;
	void *bytes;

	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", SP_IMAGE_PAGES);
	if (fstat(fd, &stat) < 0)
		return sp_fail_errno(err, errno, "cannot read %s", SP_IMAGE_PAGES);
	if (!S_ISREG(stat.st_mode))
		return sp_fail(err, EINVAL, "cannot read %s: it is not a regular file",
		               SP_IMAGE_PAGES);
	sp_page_index_init(&store->index, (uint64_t)stat.st_size);
	if (stat.st_size == 0)
		return 0;
	bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return sp_fail_errno(err, errno, "cannot map %s", SP_IMAGE_PAGES);
	store->bytes = bytes;
	return 0;
}

/*
 * Every PARENT page must be known to the parent; as that was checked itself, the chain is whole.
 */
static int check_parent_run(const struct sp_page_store *store, const struct sp_index_run *run,
                            struct sp_error *err)
{
	const struct sp_page_index *index = &store->parent->index;
	uint64_t page = run->page, end = run->page + run->pages;
	size_t number = sp_page_index_search(index, run->object, page);

	for (; page < end; number++) {
		const struct sp_index_run *parent = sp_page_index_run(index, run->object, number);

		if (!parent || parent->page > page)
			return sp_fail(err, EBADMSG,
			               "%s: page %" PRIu64 " of object %" PRIu32
			               " is not in the parent checkpoint",
			               SP_IMAGE_PAGE_INDEX, page, run->object);
		page = parent->page + parent->pages;
	}
	return 0;
}

static int check_parent_runs(const struct sp_page_store *store, struct sp_error *err)
{
	for (size_t i = 0; i < store->index.runs.count; i++) {
		const struct sp_index_run *run = sp_array_at(&store->index.runs, i);

		if (run->state != SP_PAGE_PARENT)
			continue;
		if (!store->parent)
			return sp_fail(err, EBADMSG,
			               "%s: page %" PRIu64 " of object %" PRIu32
			               " is in a parent, but this checkpoint has none",
			               SP_IMAGE_PAGE_INDEX, run->page, run->object);
		if (check_parent_run(store, run, err) < 0)
			return -EBADMSG;
	}
	return 0;
}

int sp_page_store_open(struct sp_page_store **store, int dirfd, struct sp_page_store *parent,
                       struct sp_error *err)
{
	struct sp_page_store *opened = sp_alloc_zeroed(1, sizeof(*opened));
	int rc;

	opened->parent = parent;
	rc = map_pages(opened, dirfd, err);
	if (rc == 0)
		rc = sp_page_index_read_file(&opened->index, dirfd, err);
	if (rc == 0)
		rc = check_parent_runs(opened, err);
	if (rc < 0)
		sp_page_store_close(opened);
	else
		*store = opened;
	return rc;
}

void sp_page_store_close(struct sp_page_store *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < SP_CACHED_FRAMES; i++) {
		if (store->cache[i].store)
			sp_frame_decoder_release(&store->cache[i].decoder);
	}
	if (store->bytes)
		munmap(store->bytes, store->index.file_size);
	sp_page_index_release(&store->index);
	free(store);
}

void sp_page_store_stats(const struct sp_page_store *store, struct sp_page_stats *stats)
{
	sp_page_index_stats(&store->index, stats);
}

/* --- runs --- */

struct sp_resolved sp_page_store_resolve(struct sp_page_store *store, uint32_t object,
                                         uint64_t page, uint64_t end)
{
	for (;; store = store->parent) {
		size_t number = sp_page_index_search(&store->index, object, page);
		const struct sp_index_run *run = sp_page_index_run(&store->index, object, number);

		if (!run || run->page > page) {
			if (run && run->page < end)
				end = run->page;
			return (struct sp_resolved){store, NULL, page, end};
		}
		if (run->page + run->pages < end)
			end = run->page + run->pages;
		if (run->state != SP_PAGE_PARENT)
			return (struct sp_resolved){store, run, page, end};
	}
}

int sp_page_store_walk(struct sp_page_store *store, uint32_t object, struct sp_range within,
                       int (*visit)(void *context, const struct sp_page_run *run), void *context,
                       struct sp_error *err)
{
	uint64_t page = within.start / SP_PAGE_SIZE, end = within.end / SP_PAGE_SIZE;

	while (page < end) {
		struct sp_resolved found = sp_page_store_resolve(store, object, page, end);
		struct sp_page_run run = {{page * SP_PAGE_SIZE, found.end * SP_PAGE_SIZE}, 0};
		int rc = 0;

		if (found.run) {
			run.state = (enum sp_page_state)found.run->state;
			rc = visit(context, &run);
		}
		if (rc != 0)
			return rc;
		page = found.end;
	}
	return 0;
}

/* --- frames --- */

static struct sp_range frame_extent(const struct sp_frame *frame)
{
	return (struct sp_range){sp_page_down(frame->offset),
	                         sp_page_up(frame->offset + frame->size)};
}

int sp_page_store_frame(const struct sp_page_store *store, uint32_t number,
                        struct sp_frame_decoder *decoder, const uint8_t **pages,
                        struct sp_error *err)
{
	const struct sp_frame *frame = sp_array_at(&store->index.frames, number);
	struct sp_range extent = frame_extent(frame);

	/* EINVAL: a kernel before 5.14, which has to fault the pages in one by one. */
	if (madvise(store->bytes + extent.start, sp_range_size(extent), MADV_POPULATE_READ) < 0 &&
	    errno != EINVAL)
		return sp_fail_errno(err, errno, "cannot read %s at offset %" PRIu64,
		                     SP_IMAGE_PAGES, frame->offset);
	return sp_frame_decode(decoder, frame, store->bytes + frame->offset, pages, err);
}

void sp_page_store_drop(const struct sp_page_store *store, uint32_t number)
{
	struct sp_range extent = frame_extent(sp_array_at(&store->index.frames, number));

	madvise(store->bytes + extent.start, sp_range_size(extent), MADV_DONTNEED);
}

/* --- single pieces --- */

/* Finds the frame in the cache, or puts it in the place that has not been used for longest. */
static int cached_frame(struct sp_page_store *store, const struct sp_page_store *owner,
                        uint32_t frame, const uint8_t **pages, struct sp_error *err)
{
	struct sp_cached_frame *place = &store->cache[0];
	int rc;

	for (size_t i = 0; i < SP_CACHED_FRAMES; i++) {
		struct sp_cached_frame *cached = &store->cache[i];

		if (cached->store == owner && cached->frame == frame && cached->pages) {
			cached->used = ++store->uses;
			*pages = cached->pages;
			return 0;
		}
		if (cached->used < place->used)
			place = cached;
	}
	if (place->store)
		sp_page_store_drop(place->store, place->frame);
	else
		sp_frame_decoder_init(&place->decoder);
	place->store = owner;
	place->frame = frame;
	place->pages = NULL;
	rc = sp_page_store_frame(owner, frame, &place->decoder, &place->pages, err);
	if (rc < 0) {
		place->pages = NULL;
		return rc;
	}
	place->used = ++store->uses;
	*pages = place->pages;
	return 0;
}

/* Copies from pages that have one state. */
static int read_piece(struct sp_page_store *store, const struct sp_resolved *found, uint64_t offset,
                      void *buffer, size_t size, struct sp_error *err)
{
	const struct sp_index_run *run = found->run;
	const uint8_t *pages;
	int rc;

	if (!run || run->state == SP_PAGE_FILE)
		return sp_fail(err, ENODATA, "the page at %#" PRIx64 " is not in the checkpoint%s",
		               offset, run ? ": it is an unmodified page of a file" : "");
	if (run->state != SP_PAGE_DATA) {
		memset(buffer, 0, size);
		return 0;
	}
	rc = cached_frame(store, found->store, run->frame, &pages, err);
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
		uint64_t page = offset / SP_PAGE_SIZE;
		struct sp_resolved found = sp_page_store_resolve(
		        store, object, page, sp_page_up(offset + size) / SP_PAGE_SIZE);
		uint64_t room = found.end * SP_PAGE_SIZE - offset;
		size_t piece = size < room ? size : (size_t)room;
		int rc = read_piece(store, &found, offset, buffer, piece, err);

		if (rc < 0)
			return rc;
		offset += piece;
		buffer = (char *)buffer + piece;
		size -= piece;
	}
	return 0;
}
