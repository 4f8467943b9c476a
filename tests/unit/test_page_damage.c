/* A page store that cannot be written or read as it should: that is noticed, and nothing gets stuck. */
#include "unit/page_model.h"

#include "image/checkpoint.h"

#include <sys/stat.h>

/* --- failures --- */

static int failing_read(void *context, uint64_t offset, void *buffer, size_t size,
                        struct sp_error *err)
{
	memset(buffer, 1, size);
	if (offset >= BASE + 600 * SP_PAGE_SIZE)
		return sp_fail(err, ESRCH, "the program is gone");
	return 0;
}

static int released;

static void count_release(void *context)
{
	released++;
}

static void a_failing_source_fails_the_writer(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_DEFAULT);
	struct sp_error err = {0};
	uint32_t object = sp_page_writer_new_object(writer);
	uint32_t source = sp_page_writer_add_source(
	        writer, (struct sp_page_source){.read = failing_read, .release = count_release});

	released = 0;
	sp_page_writer_add(writer, object, pages_range(0, PAGES), SP_PAGE_DATA, source, &err);
	assert_int_equal(sp_page_writer_drain(writer, &err), -ESRCH);
	assert_string_equal(err.message, "the program is gone");
	/* far more than there is room for jobs: nothing may get stuck */
	assert_int_equal(sp_page_writer_add(writer, object, pages_range(PAGES, 100000),
	                                    SP_PAGE_DATA, source, &err),
	                 -ESRCH);
	assert_int_equal(sp_page_writer_finish(writer, NULL, &err), -ESRCH);
	assert_int_equal(released, 1);
	scratch_remove(&scratch);
}

static void an_abandoned_writer_ends_its_workers(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, 19);
	sp_cleanup_free struct model *model = mixed_model(8);
	struct sp_error err = {0};
	uint32_t source = sp_page_writer_add_source(
	        writer, (struct sp_page_source){
	                        .read = model_read, .context = model, .release = count_release});

	released = 0;
	assert_int_equal(sp_page_writer_add(writer, sp_page_writer_new_object(writer),
	                                    pages_range(0, PAGES), SP_PAGE_DATA, source, &err),
	                 0);
	sp_page_writer_abandon(writer);
	assert_int_equal(released, 1);
	scratch_remove(&scratch);
}

static void what_cannot_be_added_is_refused(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_page_writer *writer = open_writer(&scratch, SP_COMPRESS_DEFAULT);
	struct sp_range unaligned = {BASE + 1, BASE + SP_PAGE_SIZE};
	struct sp_range empty = {BASE, BASE}, endless = {0, UINT64_MAX - SP_PAGE_SIZE + 1};
	struct sp_error err = {0};
	uint32_t object = sp_page_writer_new_object(writer);

	assert_int_equal(sp_page_writer_add(writer, 2, pages_range(0, 1), SP_PAGE_HOLE, 0, &err),
	                 -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, pages_range(0, 1), SP_PAGE_DATA, 1, &err),
	                 -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, unaligned, SP_PAGE_HOLE, 0, &err), -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, empty, SP_PAGE_HOLE, 0, &err), -EINVAL);
	assert_int_equal(sp_page_writer_add(writer, 1, endless, SP_PAGE_HOLE, 0, &err), -EINVAL);
	assert_int_equal(
	        sp_page_writer_add(writer, object, pages_range(5, 5), SP_PAGE_HOLE, 0, &err), 0);
	assert_int_equal(
	        sp_page_writer_add(writer, object, pages_range(9, 1), SP_PAGE_HOLE, 0, &err),
	        -EINVAL);
	finish_writer(writer, NULL);
	scratch_remove(&scratch);
}

/* --- damage --- */

static void flip(struct scratch *scratch, const char *name, off_t at)
{
	sp_cleanup_close int fd = openat(scratch->dirfd, name, O_RDWR);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x40;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static int open_and_verify(struct scratch *scratch)
{
	struct sp_page_store *store;
	struct sp_error err = {0};
	int status = sp_page_store_open(&store, scratch->dirfd, NULL, &err);

	if (status == 0) {
		status = sp_page_store_verify(store, NULL, &err);
		sp_page_store_close(store);
	}
	return status;
}

static void every_flipped_byte_is_found(void **state)
{
	static const int levels[] = {SP_COMPRESS_NONE, SP_COMPRESS_DEFAULT};
	static const char *const names[] = {SP_IMAGE_PAGES, SP_IMAGE_PAGE_INDEX};

	for (size_t i = 0; i < 4; i++) {
		sp_cleanup_free struct model *model = calloc(1, sizeof(*model));
		struct scratch scratch = scratch_make();
		struct stat file;

		for (size_t page = 0; page < 2; page++) {
			model->states[page * 3] = SP_PAGE_DATA;
			fill_page(model, page * 3, 1);
		}
		save_model(&scratch, model, levels[i / 2], NULL);
		assert_int_equal(open_and_verify(&scratch), 0);
		assert_int_equal(fstatat(scratch.dirfd, names[i % 2], &file, 0), 0);
		for (off_t at = 0; at < file.st_size; at++) {
			flip(&scratch, names[i % 2], at);
			assert_int_equal(open_and_verify(&scratch), -EBADMSG);
			flip(&scratch, names[i % 2], at);
		}
		scratch_remove(&scratch);
	}
}

static void a_file_that_shrinks_while_it_is_open_is_an_error(void **state)
{
	sp_cleanup_free struct model *model = mixed_model(4);
	sp_cleanup_free struct model *loaded = calloc(1, sizeof(*loaded));
	struct scratch scratch = scratch_make();
	struct sp_page_sink sink = {sink_data, NULL, loaded};
	struct sp_page_store *store;
	struct sp_error err = {0};
	sp_cleanup_close int fd = -1;

	save_model(&scratch, model, SP_COMPRESS_NONE, NULL);
	store = open_store(&scratch, NULL);
	fd = openat(scratch.dirfd, SP_IMAGE_PAGES, O_RDWR);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_true(sp_page_store_load(store, 1, pages_range(0, PAGES), &sink, 0, &err) < 0);
	assert_non_null(strstr(err.message, SP_IMAGE_PAGES));
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_failing_source_fails_the_writer),
	        cmocka_unit_test(an_abandoned_writer_ends_its_workers),
	        cmocka_unit_test(what_cannot_be_added_is_refused),
	        cmocka_unit_test(every_flipped_byte_is_found),
	        cmocka_unit_test(a_file_that_shrinks_while_it_is_open_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
