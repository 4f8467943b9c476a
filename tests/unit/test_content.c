/*
 * Contents of files: bytes, holes and sizes come back, and the descriptor they came from is left
 * alone.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "image/pages.h"
#include "unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>
#include "unit/skip.h"

#define SIZE (40 * SP_PAGE_SIZE + 123) /* no multiple of the page size */

static int new_file(void)
{
	int fd = memfd_create("content", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* Data, a hole, zeros that were written, a hole again, and a last page that is not whole. */
static int mixed_file(void)
{
	int fd = new_file();
	uint8_t page[SP_PAGE_SIZE] = {0};

	assert_int_equal(ftruncate(fd, SIZE), 0);
	assert_int_equal(pwrite(fd, page, sizeof(page), 20 * SP_PAGE_SIZE), sizeof(page));
	memset(page, 'x', sizeof(page));
	for (off_t at = 0; at < 8; at++)
		assert_int_equal(pwrite(fd, page, sizeof(page), at * (off_t)SP_PAGE_SIZE),
		                 sizeof(page));
	assert_int_equal(pwrite(fd, page, 123, SIZE - 123), 123);
	return fd;
}

/* Saves `fd` alone in the scratch directory and opens the store. */
static struct sp_page_store *save(struct scratch *scratch, int fd, uint64_t size, uint32_t *object)
{
	struct sp_page_writer_options options = {.level = SP_COMPRESS_DEFAULT};
	struct sp_page_writer *writer;
	struct sp_page_store *store;
	struct sp_error err = {0};

	assert_int_equal(sp_page_writer_open(&writer, scratch->dirfd, &options, &err), 0);
	if (sp_content_save(writer, fd, size, object, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(sp_page_writer_finish(writer, NULL, &err), 0);
	assert_int_equal(sp_page_store_open(&store, scratch->dirfd, NULL, &err), 0);
	return store;
}

static void assert_same_files(int a, int b)
{
	struct stat first, second;
	uint8_t one[SP_PAGE_SIZE], other[SP_PAGE_SIZE];

	assert_int_equal(fstat(a, &first), 0);
	assert_int_equal(fstat(b, &second), 0);
	assert_int_equal(first.st_size, second.st_size);
	assert_int_equal(first.st_blocks, second.st_blocks);
	for (off_t at = 0; at < first.st_size; at += SP_PAGE_SIZE) {
		ssize_t got = pread(a, one, sizeof(one), at);

		assert_int_equal(pread(b, other, sizeof(other), at), got);
		assert_memory_equal(one, other, (size_t)got);
	}
}

static void contents_and_holes_come_back(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_close int from = mixed_file();
	sp_cleanup_close int to = new_file();
	struct sp_page_store *store;
	struct sp_page_stats stats;
	struct sp_error err = {0};
	uint32_t object;

	store = save(&scratch, from, SIZE, &object);
	sp_page_store_stats(store, &stats);
	assert_int_equal(stats.pages[SP_PAGE_DATA], 9);
	assert_int_equal(stats.pages[SP_PAGE_ZERO], 1);
	assert_int_equal(stats.pages[SP_PAGE_HOLE], 31);
	assert_int_equal(sp_content_load(store, object, to, SIZE, &err), 0);
	assert_same_files(from, to);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void the_position_of_the_file_is_left_alone(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_close int from = mixed_file();
	struct sp_page_store *store;
	uint32_t object;

	assert_int_equal(lseek(from, 77, SEEK_SET), 77);
	store = save(&scratch, from, SIZE, &object);
	assert_int_equal(lseek(from, 0, SEEK_CUR), 77);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void empty_files_and_mere_holes_come_back(void **state)
{
	static const uint64_t sizes[] = {0, 1, 5 * SP_PAGE_SIZE};

	for (size_t i = 0; i < 3; i++) {
		struct scratch scratch = scratch_make();
		sp_cleanup_close int from = new_file();
		sp_cleanup_close int to = new_file();
		struct sp_page_store *store;
		struct sp_error err = {0};
		uint32_t object;

		assert_int_equal(ftruncate(from, (off_t)sizes[i]), 0);
		store = save(&scratch, from, sizes[i], &object);
		assert_int_equal(sp_content_load(store, object, to, sizes[i], &err), 0);
		assert_same_files(from, to);
		sp_page_store_close(store);
		scratch_remove(&scratch);
	}
}

static void a_write_only_descriptor_can_be_saved(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_close int file =
	        openat(scratch.dirfd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	sp_cleanup_close int to = new_file();
	struct sp_page_store *store;
	struct sp_error err = {0};
	uint32_t object;
	char text[5];

	assert_int_equal(write(file, "hello", 5), 5);
	store = save(&scratch, file, 5, &object);
	assert_int_equal(sp_content_load(store, object, to, 5, &err), 0);
	assert_int_equal(pread(to, text, 5, 0), 5);
	assert_memory_equal(text, "hello", 5);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void a_size_that_cannot_be_is_refused(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_close int from = mixed_file();
	sp_cleanup_close int to = new_file();
	struct sp_page_store *store;
	struct sp_error err = {0};
	uint32_t object;

	store = save(&scratch, from, SIZE, &object);
	assert_true(sp_content_load(store, object, to, UINT64_MAX, &err) < 0);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

static void huge_pages_come_back(void **state)
{
	const uint64_t size = 4 * SP_HUGE_PAGE_SIZE;
	struct scratch scratch = scratch_make();
	sp_cleanup_close int from = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	sp_cleanup_close int to = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	struct sp_page_store *store;
	struct sp_error err = {0};
	struct stat stat;
	uint32_t object;
	uint8_t *bytes;

	if (from < 0 || to < 0 || ftruncate(from, (off_t)size) < 0 ||
	    fallocate(from, 0, SP_HUGE_PAGE_SIZE, SP_HUGE_PAGE_SIZE) < 0 ||
	    fallocate(to, 0, 0, SP_HUGE_PAGE_SIZE) < 0) {
		scratch_remove(&scratch);
		skip_because("the hugetlb pool has no free pages (vm.nr_hugepages)");
	}
	assert_int_equal(ftruncate(to, 0), 0);
	bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, from, 0);
	memset(bytes + SP_HUGE_PAGE_SIZE + 3 * SP_PAGE_SIZE, 'h', SP_PAGE_SIZE);
	munmap(bytes, size);
	store = save(&scratch, from, size, &object);
	assert_int_equal(sp_content_load(store, object, to, size, &err), 0);
	assert_int_equal(fstat(to, &stat), 0);
	assert_int_equal(stat.st_size, size);
	bytes = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, to, 0);
	assert_int_equal(bytes[SP_HUGE_PAGE_SIZE + 3 * SP_PAGE_SIZE], 'h');
	assert_int_equal(bytes[SP_HUGE_PAGE_SIZE + 4 * SP_PAGE_SIZE], 0);
	munmap(bytes, size);
	sp_page_store_close(store);
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(contents_and_holes_come_back),
	        cmocka_unit_test(the_position_of_the_file_is_left_alone),
	        cmocka_unit_test(empty_files_and_mere_holes_come_back),
	        cmocka_unit_test(a_write_only_descriptor_can_be_saved),
	        cmocka_unit_test(a_size_that_cannot_be_is_refused),
	        cmocka_unit_test(huge_pages_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
