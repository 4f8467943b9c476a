/* Fuzzes the page index: each item is a chunk; the index that comes of them is then searched. */
#include "base/error.h"
#include "image/page_index.h"

#include "input.h"

#include <stdlib.h>

#define FILE_SIZE (64 * SP_PAGE_SIZE)

/* What every reader relies on. */
static void check_whole(const struct sp_page_index *index)
{
	for (size_t i = 0; i < index->runs.count; i++) {
		const struct sp_index_run *run = sp_array_at(&index->runs, i);

		if (run->pages == 0 || run->page + run->pages > SP_INDEX_PAGES_END)
			abort();
		if (sp_page_index_search(index, run->object, run->page) != i ||
		    sp_page_index_search(index, run->object, run->page + run->pages - 1) != i)
			abort();
		if (sp_page_index_count(index, run->object, run->page, run->page + run->pages) !=
		    run->pages)
			abort();
		if (run->state == SP_PAGE_DATA) {
			const struct sp_frame *frame = sp_array_at(&index->frames, run->frame);

			if (run->frame >= index->frames.count ||
			    run->place + run->pages > frame->pages ||
			    frame->offset + frame->size > FILE_SIZE)
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	struct fuzz_item item;
	struct sp_page_index index;
	struct sp_error err = {0};
	int status = 0;

	sp_page_index_init(&index, FILE_SIZE);
	while (status == 0 && fuzz_next(&input, &item)) {
		Sealpoint__PageIndex *chunk =
		        sealpoint__page_index__unpack(NULL, item.size, item.bytes);

		status = chunk ? sp_page_index_add(&index, chunk, &err) : -1;
		if (chunk)
			sealpoint__page_index__free_unpacked(chunk, NULL);
	}
	if (status == 0 && sp_page_index_complete(&index, &err) == 0)
		check_whole(&index);
	sp_page_index_release(&index);
	return 0;
}
