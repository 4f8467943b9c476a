/*
 * Fuzzes a whole page store: the first item is pages.img, each further one a chunk of pages.idx.
 * Records and frames get the checksums that they should have, so that what lies behind them is
 * reached.
 */
#include "base/error.h"
#include "image/checkpoint.h"
#include "image/pages.h"

#include "input.h"
#include "page_index.pb-c.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static char path[] = "/dev/shm/sealpoint-fuzz.XXXXXX";

static void remove_directory(void);

static int directory(void)
{
	static int fd = -1;

	if (fd < 0) {
		if (!mkdtemp(path))
			abort();
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		atexit(remove_directory);
	}
	return fd;
}

static void remove_directory(void)
{
	unlinkat(directory(), SP_IMAGE_PAGES, 0);
	unlinkat(directory(), SP_IMAGE_PAGE_INDEX, 0);
	rmdir(path);
}

static void write_pages(const struct fuzz_item *item)
{
	int fd = openat(directory(), SP_IMAGE_PAGES, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, item->bytes, item->size) != (ssize_t)item->size)
		abort();
	close(fd);
}

static void write_chunk(struct sp_record_writer *writer, const struct fuzz_item *item,
                        const struct fuzz_item *pages)
{
	Sealpoint__PageIndex *chunk = sealpoint__page_index__unpack(NULL, item->size, item->bytes);
	struct sp_error err = {0};

	if (!chunk)
		return;
	if (chunk->frame_offset <= pages->size &&
	    chunk->frame_size <= pages->size - chunk->frame_offset)
		chunk->frame_checksum =
		        XXH3_64bits(pages->bytes + chunk->frame_offset, chunk->frame_size);
	if (sp_record_write(writer, SP_RECORD_PAGE_INDEX, &chunk->base, &err) < 0)
		abort();
	sealpoint__page_index__free_unpacked(chunk, NULL);
}

static int use_data(void *context, uint64_t offset, const void *bytes, size_t size,
                    struct sp_error *err)
{
	uint8_t page[SP_PAGE_SIZE];

	for (size_t at = 0; at < size; at += sizeof(page))
		memcpy(page, (const uint8_t *)bytes + at, sizeof(page));
	return 0;
}

static int use_zero(void *context, struct sp_range range, struct sp_error *err)
{
	return 0;
}

/* Reads a little at both ends of each run. */
static int read_run(void *context, const struct sp_page_run *run)
{
	struct sp_page_store *store = context;
	struct sp_error err = {0};
	char buffer[64];

	sp_page_store_read(store, 1, run->range.start, buffer, sizeof(buffer), &err);
	sp_page_store_read(store, 1, run->range.end - 32, buffer, sizeof(buffer), &err);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	const struct sp_range all = {0, UINT64_MAX};
	const struct sp_page_sink sink = {use_data, use_zero, NULL};
	struct fuzz_input input = {bytes, size};
	struct fuzz_item pages, item;
	struct sp_record_writer writer;
	struct sp_page_store *store;
	struct sp_error err = {0};

	if (!fuzz_next(&input, &pages))
		return 0;
	write_pages(&pages);
	unlinkat(directory(), SP_IMAGE_PAGE_INDEX, 0);
	if (sp_record_writer_open(&writer, directory(), SP_IMAGE_PAGE_INDEX, &err) < 0)
		abort();
	while (fuzz_next(&input, &item))
		write_chunk(&writer, &item, &pages);
	if (sp_record_writer_finish(&writer, &err) < 0)
		abort();
	if (sp_page_store_open(&store, directory(), NULL, &err) < 0)
		return 0;
	sp_page_store_walk(store, 1, all, read_run, store, &err);
	sp_page_store_load(store, 1, all, &sink, 2, &err);
	sp_page_store_verify(store, NULL, &err);
	sp_page_store_close(store);
	return 0;
}
