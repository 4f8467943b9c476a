/*
 * Comparing pages of two stores. Two checkpoints of one chain have most of their pages from the same
 * frames: that is seen from the indexes, and only what is stored twice is read.
 */
#include "image/page_store.h"

#include "base/error.h"

#include <string.h>

#define PIECE_PAGES 64

struct side {
	struct sp_page_store *store;
	uint32_t object;
	uint64_t page;
};

static const struct sp_index_run *run_at(const struct side *side, uint64_t *pages)
{
	return sp_page_index_at(&side->store->index, side->object, side->page, pages);
}

static bool is_data(const struct sp_index_run *run)
{
	return run && run->state == SP_PAGE_DATA;
}

/* Are both pages the same place of the same file? */
static bool is_shared(const struct side *a, const struct sp_index_run *run_a, const struct side *b,
                      const struct sp_index_run *run_b)
{
	const struct sp_chain_frame *frame_a = sp_page_store_chain_frame(a->store, run_a->frame);
	const struct sp_chain_frame *frame_b = sp_page_store_chain_frame(b->store, run_b->frame);

	return frame_a->number == frame_b->number &&
	       frame_a->store->device == frame_b->store->device &&
	       frame_a->store->inode == frame_b->store->inode &&
	       run_a->place + (a->page - run_a->page) == run_b->place + (b->page - run_b->page);
}

static int compare_bytes(const struct side *a, const struct side *b, uint64_t pages,
                         struct sp_page_comparison *result, struct sp_error *err)
{
	uint8_t bytes_a[PIECE_PAGES * SP_PAGE_SIZE], bytes_b[PIECE_PAGES * SP_PAGE_SIZE];

	for (uint64_t done = 0; done < pages; done += PIECE_PAGES) {
		uint64_t count = pages - done < PIECE_PAGES ? pages - done : PIECE_PAGES;
		int rc = sp_page_store_read(a->store, a->object, (a->page + done) * SP_PAGE_SIZE,
		                            bytes_a, count * SP_PAGE_SIZE, err);

		if (rc == 0)
			rc = sp_page_store_read(b->store, b->object,
			                        (b->page + done) * SP_PAGE_SIZE, bytes_b,
			                        count * SP_PAGE_SIZE, err);
		if (rc < 0)
			return rc;
		for (size_t at = 0; at < count * SP_PAGE_SIZE; at += SP_PAGE_SIZE)
			result->contents += memcmp(bytes_a + at, bytes_b + at, SP_PAGE_SIZE) != 0;
	}
	return 0;
}

int sp_page_store_compare(struct sp_page_store *a, uint32_t object_a, struct sp_range range,
                          struct sp_page_store *b, uint32_t object_b, uint64_t start,
                          struct sp_page_comparison *result, struct sp_error *err)
{
	struct side side_a = {a, object_a, range.start / SP_PAGE_SIZE};
	struct side side_b = {b, object_b, start / SP_PAGE_SIZE};
	uint64_t left = sp_range_size(range) / SP_PAGE_SIZE;

	while (left > 0) {
		uint64_t pages_a, pages_b, pages = left;
		const struct sp_index_run *run_a = run_at(&side_a, &pages_a);
		const struct sp_index_run *run_b = run_at(&side_b, &pages_b);

		if (pages > pages_a)
			pages = pages_a;
		if (pages > pages_b)
			pages = pages_b;
		if (is_data(run_a) != is_data(run_b))
			result->contents += pages;
		else if (!is_data(run_a) &&
		         (!run_a != !run_b || (run_a && run_a->state != run_b->state)))
			result->states += pages;
		else if (is_data(run_a) && !is_shared(&side_a, run_a, &side_b, run_b) &&
		         compare_bytes(&side_a, &side_b, pages, result, err) < 0)
			return -err->code;
		side_a.page += pages;
		side_b.page += pages;
		left -= pages;
	}
	return 0;
}

uint32_t sp_page_store_object_behind(const struct sp_page_store *store, uint32_t object)
{
	return sp_page_index_object_behind(&store->index, object);
}
