/* The page store: every page comes back with its state and its contents, and little memory is needed. */
#include "unit/page_model.h"

#include "image/checkpoint.h"
#include "unit/skip.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

static void every_page_comes_back(void **state)
{
	static const int levels[] = {SP_COMPRESS_NONE, SP_COMPRESS_DEFAULT, -5, 9};

	for (unsigned seed = 0; seed < 12; seed++) {
		sp_cleanup_free struct model *model = mixed_model(seed);
		struct scratch scratch = scratch_make();
		struct sp_page_store *store;
		struct sp_page_stats written, read;
		struct sp_error err = {0};

		save_model(&scratch, model, levels[seed % 4], &written);
		store = open_store(&scratch, NULL);
		assert_store_equals(store, 1, model);
		assert_int_equal(sp_page_store_verify(store, NULL, &err), 0);
		sp_page_store_stats(store, &read);
		assert_memory_equal(&written, &read, sizeof(read));
		sp_page_store_close(store);
		scratch_remove(&scratch);
	}
}

static void objects_do_not_mix(void **state)
{
	sp_cleanup_free struct model *first = mixed_model(1);
	sp_cleanup_free struct model *second = mixed_model(2);
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_DEFAULT);
	struct sp_page_store *store;
	struct sp_error err = {0};
	uint8_t byte;
	uint32_t one = sp_page_writer_new_object(writer), two = sp_page_writer_new_object(writer);
	uint32_t source1 = sp_page_writer_add_source(
	        writer, (struct sp_page_source){.read = model_read, .context = first});
	uint32_t source2 = sp_page_writer_add_source(
	        writer, (struct sp_page_source){.read = model_read, .context = second});

	for (size_t page = 0; page < PAGES; page++) { /* in turn, page by page */
		if (first->states[page] != SP_PAGE_STATES)
			assert_int_equal(sp_page_writer_add(writer, one, pages_range(page, 1),
			                                    first->states[page], source1, &err),
			                 0);
		if (second->states[page] != SP_PAGE_STATES)
			assert_int_equal(sp_page_writer_add(writer, two, pages_range(page, 1),
			                                    second->states[page], source2, &err),
			                 0);
	}
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	assert_store_equals(store, one, first);
	assert_store_equals(store, two, second);
	assert_int_equal(sp_page_store_read(store, 3, BASE, &byte, 1, &err), -ENODATA);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void scattered_pages_share_frames(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch scratch = scratch_make();
	struct sp_page_stats stats;

	for (size_t page = 0; page < PAGES; page++) {
		model->states[page] = page % 2 ? SP_PAGE_DATA : SP_PAGE_HOLE;
		fill_page(model, page, 0);
	}
	save_model(&scratch, model, SP_COMPRESS_NONE, &stats);
	assert_int_equal(stats.frames, (PAGES / 2 + 127) / 128);
	assert_int_equal(stats.stored_bytes, PAGES / 2 * SP_PAGE_SIZE);
	scratch_remove(&scratch);
}

static void raw_pages_lie_page_aligned_in_the_file(void **state)
{
	sp_cleanup_free struct model *model = mixed_model(5);
	struct scratch scratch = scratch_make();
	struct sp_page_stats stats;
	struct stat file;
	size_t found = 0, data = 0;
	sp_cleanup_close int fd = -1;

	save_model(&scratch, model, SP_COMPRESS_NONE, &stats);
	fd = openat(scratch.dirfd, SP_IMAGE_PAGES, O_RDONLY);
	assert_int_equal(fstat(fd, &file), 0);
	assert_int_equal(file.st_size, stats.pages[SP_PAGE_DATA] * SP_PAGE_SIZE);
	for (size_t page = 0; page < PAGES; page++) {
		if (model->states[page] != SP_PAGE_DATA || is_zero(model->bytes[page]))
			continue;
		data++;
		for (off_t at = 0; at < file.st_size; at += SP_PAGE_SIZE) {
			uint8_t bytes[SP_PAGE_SIZE];

			assert_int_equal(pread(fd, bytes, sizeof(bytes), at), sizeof(bytes));
			if (memcmp(bytes, model->bytes[page], SP_PAGE_SIZE) == 0) {
				found++;
				break;
			}
		}
	}
	assert_int_equal(found, data);
	scratch_remove(&scratch);
}

static void sources_may_change_after_a_drain(void **state)
{
	sp_cleanup_free struct model *model = mixed_model(6);
	sp_cleanup_free struct model *before = malloc(sizeof(*before));
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, 9);
	struct sp_page_store *store;
	struct sp_error err = {0};

	memcpy(before, model, sizeof(*before));
	add_model(writer, sp_page_writer_new_object(writer), model);
	assert_int_equal(sp_page_writer_drain(writer, &err), 0);
	memset(model->bytes, 0xee, sizeof(model->bytes));
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	assert_store_equals(store, 1, before);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void reads_may_begin_and_end_anywhere(void **state)
{
	sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
	struct scratch scratch = scratch_make();
	struct sp_page_store *store;
	struct sp_error err = {0};

	for (size_t page = 0; page < PAGES; page++) {
		model->states[page] = page % 5 == 4 ? SP_PAGE_HOLE : SP_PAGE_DATA;
		if (page % 5 != 4)
			fill_page(model, page, 3);
	}
	save_model(&scratch, model, SP_COMPRESS_DEFAULT, NULL);
	store = open_store(&scratch, NULL);
	srand(1);
	for (int i = 0; i < 500; i++) {
		size_t offset = (size_t)rand() % (PAGES * SP_PAGE_SIZE);
		size_t size = (size_t)rand() % 20000;
		uint8_t buffer[20000];

		if (size > PAGES * SP_PAGE_SIZE - offset)
			size = PAGES * SP_PAGE_SIZE - offset;
		assert_int_equal(sp_page_store_read(store, 1, BASE + offset, buffer, size, &err),
		                 0);
		assert_memory_equal(buffer, (uint8_t *)model->bytes + offset, size);
	}
	assert_int_equal(sp_page_store_read(store, 1, UINT64_MAX - 10, model->bytes, 100, &err),
	                 -EINVAL);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

/* --- size --- */

static int ones_read(void *context, uint64_t offset, void *buffer, size_t size,
                     struct sp_error *err)
{
	memset(buffer, 1, size);
	return 0;
}

/* A line of /proc/self/status, in KiB. */
static long status_kib(const char *name)
{
	sp_cleanup_file FILE *file = fopen("/proc/self/status", "r");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, strlen(name)) == 0)
			return strtol(line + strlen(name), NULL, 10);
	}
	return -1;
}

static void reset_peak(void)
{
	sp_cleanup_close int fd = open("/proc/self/clear_refs", O_WRONLY);

	assert_int_equal(write(fd, "5", 1), 1);
}

static void a_million_runs_fit_in_64_mib(void **state)
{
	struct sp_page_writer_options options = {.level = SP_COMPRESS_DEFAULT, .workers = 16};
	struct scratch scratch;
	struct sp_page_writer *writer;
	struct sp_page_store *store;
	struct sp_page_stats stats;
	struct sp_error err = {0};
	uint32_t object, source;
	long before = status_kib("VmRSS:");

	if (is_sanitized)
		skip_because("a sanitizer's own memory would be counted");
	scratch = scratch_make();
	reset_peak();
	assert_int_equal(sp_page_writer_open(&writer, scratch.dirfd, &options, &err), 0);
	object = sp_page_writer_new_object(writer);
	source = sp_page_writer_add_source(writer, (struct sp_page_source){.read = ones_read});
	for (size_t i = 0; i < 1000000; i++)
		assert_int_equal(sp_page_writer_add(writer, object, pages_range(i, 1),
		                                    i % 2 ? SP_PAGE_DATA : SP_PAGE_ZERO, source,
		                                    &err),
		                 0);
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	sp_page_store_stats(store, &stats);
	assert_int_equal(stats.pages[SP_PAGE_DATA], 500000);
	assert_int_equal(stats.pages[SP_PAGE_ZERO], 500000);
	sp_page_store_close(store);
	assert_in_range(status_kib("VmHWM:") - before, 1, 64 << 10);
	scratch_remove(&scratch);
}

/* --- zero pages --- */

struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t entered;
	unsigned inside; /* threads that were given zero pages and wait for another one */
	bool met;
};

static int meet(void *context, struct sp_range range, struct sp_error *err)
{
	struct meeting *meeting = context;
	struct timespec deadline;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 30; /* only if nobody comes */
	pthread_mutex_lock(&meeting->lock);
	meeting->met |= ++meeting->inside > 1;
	pthread_cond_broadcast(&meeting->entered);
	while (!meeting->met &&
	       pthread_cond_timedwait(&meeting->entered, &meeting->lock, &deadline) == 0)
		continue;
	meeting->inside--;
	pthread_mutex_unlock(&meeting->lock);
	return meeting->met ? 0 : sp_fail(err, ETIMEDOUT, "nobody else makes zero pages");
}

static int no_data(void *context, uint64_t offset, const void *bytes, size_t size,
                   struct sp_error *err)
{
	return sp_fail(err, EINVAL, "data at %#" PRIx64, offset);
}

static void zero_pages_are_the_work_of_several_threads(void **state)
{
	struct meeting meeting = {
	        .lock = PTHREAD_MUTEX_INITIALIZER,
	        .entered = PTHREAD_COND_INITIALIZER,
	};
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_NONE);
	struct sp_page_sink sink = {no_data, meet, &meeting};
	uint32_t object = sp_page_writer_new_object(writer);
	struct sp_page_store *store;
	struct sp_error err = {0};

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(sp_page_writer_add(writer, object, pages_range(i * 10000, 5000),
		                                    SP_PAGE_ZERO, 0, &err),
		                 0);
	finish_writer(writer, NULL);
	store = open_store(&scratch, NULL);
	assert_int_equal(sp_page_store_load(store, object, pages_range(0, 50000), &sink, 2, &err),
	                 0);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_page_comes_back),
	        cmocka_unit_test(objects_do_not_mix),
	        cmocka_unit_test(scattered_pages_share_frames),
	        cmocka_unit_test(raw_pages_lie_page_aligned_in_the_file),
	        cmocka_unit_test(sources_may_change_after_a_drain),
	        cmocka_unit_test(reads_may_begin_and_end_anywhere),
	        cmocka_unit_test(a_million_runs_fit_in_64_mib),
	        cmocka_unit_test(zero_pages_are_the_work_of_several_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
