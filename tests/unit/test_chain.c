/*
 * Chains of checkpoints: the youngest says what all of them together mean, a long chain takes little,
 * and what is wrong with a member is told with its name.
 */
#include "engine/engine.h"
#include "image/checkpoint_parts.h"
#include "unit/checkpoint_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#define LENGTH 500

/* --- a chain --- */

static char *member_path(struct scratch *scratch, unsigned number)
{
	return sp_format("%s/%u", scratch->path, number);
}

/* Each member changes one page, in turn, and has the others from below. */
static void change_page(struct fixture *fixture, unsigned number)
{
	size_t page = number % HEAP_PAGES;

	memset(fixture->heap + page * SP_PAGE_SIZE, (int)(number % 255 + 1), SP_PAGE_SIZE);
	fixture->in_parent = ((1U << HEAP_PAGES) - 1) & ~(1U << page);
}

static void write_chain(struct scratch *scratch, struct fixture *fixture, unsigned length)
{
	for (unsigned i = 0; i < length; i++) {
		if (i > 0)
			change_page(fixture, i);
		write_member(scratch, fixture, i);
	}
}

static struct sp_checkpoint *open_member(struct scratch *scratch, unsigned number)
{
	sp_cleanup_free char *path = member_path(scratch, number);
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};

	if (sp_checkpoint_open(&checkpoint, path, &err) < 0)
		fail_msg("%s", err.message);
	return checkpoint;
}

static void assert_heap(struct sp_checkpoint *checkpoint, const struct fixture *fixture)
{
	uint8_t heap[sizeof(fixture->heap)];
	struct sp_error err = {0};

	assert_int_equal(sp_page_store_read(checkpoint->pages, 1, HEAP, heap, sizeof(heap), &err),
	                 0);
	assert_memory_equal(heap, fixture->heap, sizeof(heap));
}

/* --- what a chain takes --- */

static unsigned count_entries(const char *path)
{
	sp_cleanup_dir DIR *dir = opendir(path);
	unsigned count = 0;

	while (readdir(dir))
		count++;
	return count - 2;
}

static unsigned open_descriptors(void)
{
	return count_entries("/proc/self/fd");
}

static void a_long_chain_reads_as_its_youngest_says(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	unsigned descriptors, members = 0;
	struct sp_checkpoint *checkpoint;
	struct sp_page_stats stats;

	write_chain(&scratch, fixture, LENGTH);
	descriptors = open_descriptors();
	checkpoint = open_member(&scratch, LENGTH - 1);
	assert_heap(checkpoint, fixture);
	/* each pages.img, and the directory of the youngest */
	assert_int_equal(open_descriptors(), descriptors + LENGTH + 1);
	for (struct sp_checkpoint *level = checkpoint; level; level = level->parent)
		members++;
	assert_int_equal(members, LENGTH);
	sp_page_store_stats(checkpoint->pages, &stats);
	assert_int_equal(stats.pages[SP_PAGE_DATA], 1);
	assert_int_equal(stats.pages[SP_PAGE_PARENT], HEAP_PAGES - 1);
	sp_checkpoint_close(checkpoint);
	scratch_remove(&scratch);
}

static void every_member_is_a_checkpoint_of_its_own(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();

	for (unsigned i = 0; i < 20; i++) {
		struct sp_checkpoint *checkpoint;

		if (i > 0)
			change_page(fixture, i);
		write_member(&scratch, fixture, i);
		checkpoint = open_member(&scratch, i);
		assert_heap(checkpoint, fixture);
		sp_checkpoint_close(checkpoint);
	}
	scratch_remove(&scratch);
}

/* --- what can be wrong --- */

static void flip(const char *directory, const char *name)
{
	sp_cleanup_free char *path = sp_format("%s/%s", directory, name);
	sp_cleanup_close int fd = open(path, O_RDWR);
	char byte;

	assert_int_equal(pread(fd, &byte, 1, 10), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, 10), 1);
}

static void expect_refusal(struct scratch *scratch, unsigned number, const char *words)
{
	sp_cleanup_free char *path = member_path(scratch, number);
	sp_cleanup_free char *opening = sp_format("cannot open checkpoint %s: ", path);
	struct sp_error err;

	assert_true(try_open(path, &err) < 0);
	assert_says(&err, opening);
	assert_says(&err, words);
	assert_true(sp_checkpoint_verify(path, NULL, &err) < 0);
	assert_says(&err, words);
}

static void a_missing_parent_is_named(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *parent = member_path(&scratch, 1);
	sp_cleanup_free char *away = in_scratch(&scratch, "away");
	sp_cleanup_free char *words = sp_format(
	        "%s/1, the parent of %s/2, is not there; put it back", scratch.path, scratch.path);

	write_chain(&scratch, fixture, 5);
	assert_int_equal(rename(parent, away), 0);
	expect_refusal(&scratch, 4, words);
	assert_int_equal(rename(away, parent), 0);
	sp_checkpoint_close(open_member(&scratch, 4));
	scratch_remove(&scratch);
}

static void a_chain_moves_as_a_whole(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *moved = sp_format("%s-moved", scratch.path);
	sp_cleanup_free char *youngest = sp_format("%s/4", moved);
	struct sp_error err;

	write_chain(&scratch, fixture, 5);
	assert_int_equal(rename(scratch.path, moved), 0);
	assert_int_equal(try_open(youngest, &err), 0);
	close(scratch.dirfd);
	scratch_remove_path(moved);
}

static void another_one_in_the_parents_place_is_named(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *oldest = member_path(&scratch, 0);
	sp_cleanup_free char *words =
	        sp_format("%s/0 is not the checkpoint that %s/1 stands on; put that one back",
	                  scratch.path, scratch.path);

	write_chain(&scratch, fixture, 4);
	scratch_remove_path(oldest);
	fixture->in_parent = 0;
	write_fixture(fixture, oldest);
	expect_refusal(&scratch, 3, words);
	scratch_remove(&scratch);
}

static void a_damaged_parent_is_named(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *parent = member_path(&scratch, 1);
	sp_cleanup_free char *youngest = member_path(&scratch, 3);
	sp_cleanup_free char *words =
	        sp_format("checkpoint %s/1 is damaged, use another copy of it", scratch.path);
	struct sp_error err = {0};

	write_chain(&scratch, fixture, 4);
	assert_int_equal(sp_checkpoint_verify(youngest, NULL, &err), 0);
	flip(parent, SP_IMAGE_PAGES); /* which opening does not read */
	assert_int_equal(try_open(youngest, &err), 0);
	assert_int_equal(sp_checkpoint_verify(youngest, NULL, &err), -EBADMSG);
	assert_says(&err, words);
	flip(parent, SP_IMAGE_PAGE_INDEX);
	expect_refusal(&scratch, 3, words);
	scratch_remove(&scratch);
}

static void a_page_that_no_parent_knows_is_refused(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();

	fixture->vmas[1].end -= SP_PAGE_SIZE;
	fixture->pages[1].end -= SP_PAGE_SIZE;
	write_member(&scratch, fixture, 0);
	fixture->vmas[1].end += SP_PAGE_SIZE;
	fixture->pages[1].end += SP_PAGE_SIZE;
	fixture->heap_state = SP_PAGE_PARENT;
	write_member(&scratch, fixture, 1);
	write_member(&scratch, fixture, 2);
	expect_refusal(&scratch, 1, "page 2055 of object 1 is not in the parent checkpoint");
	expect_refusal(&scratch, 2, "page 2055 of object 1 is not in the parent checkpoint");
	scratch_remove(&scratch);
}

/* --- merging --- */

static void merge(const char *directory, const char *output)
{
	const struct sp_merge_options options = {
	        .directory = directory, .output = output, .compression = SP_COMPRESS_DEFAULT};
	struct sp_merge_result result;
	struct sp_error err = {0};

	if (sp_merge(&options, &result, &err) < 0)
		fail_msg("%s", err.message);
}

static void assert_same_records(const struct sp_checkpoint *a, const struct sp_checkpoint *b)
{
	uint64_t checksum[2];
	struct sp_error err = {0};

	assert_int_equal(sp_file_checksum(a->dirfd, SP_IMAGE_RECORDS, &checksum[0], &err), 0);
	assert_int_equal(sp_file_checksum(b->dirfd, SP_IMAGE_RECORDS, &checksum[1], &err), 0);
	assert_true(checksum[0] == checksum[1]);
}

static void a_merged_checkpoint_says_the_same_alone(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *youngest = member_path(&scratch, 29);
	sp_cleanup_free char *merged = member_path(&scratch, 100);
	struct sp_checkpoint *chain, *alone;
	struct sp_error err = {0};

	fixture->manifest.generation = 7;
	write_chain(&scratch, fixture, 30);
	merge(youngest, merged);
	assert_int_equal(sp_checkpoint_verify(merged, NULL, &err), 0);
	chain = open_member(&scratch, 29);
	alone = open_member(&scratch, 100);
	assert_null(alone->parent);
	assert_heap(alone, fixture);
	assert_same_records(chain, alone);
	assert_int_equal(alone->manifest->generation, 7);
	assert_memory_equal(alone->manifest->id.data, chain->manifest->id.data,
	                    SP_CHECKPOINT_ID_SIZE);
	assert_true(alone->manifest->created_unix_ns == chain->manifest->created_unix_ns);
	sp_checkpoint_close(chain);
	sp_checkpoint_close(alone);
	scratch_remove(&scratch);
}

static void younger_ones_find_their_merged_parent(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *middle = member_path(&scratch, 5);
	sp_cleanup_free char *log = in_scratch(&scratch, "5/log");
	struct sp_checkpoint *checkpoint;
	unsigned members = 0;

	write_chain(&scratch, fixture, 10);
	close(open(log, O_WRONLY | O_CREAT, 0600));
	merge(middle, NULL);
	for (unsigned i = 0; i < 5; i++) {
		sp_cleanup_free char *old = member_path(&scratch, i);

		scratch_remove_path(old);
	}
	checkpoint = open_member(&scratch, 9);
	assert_heap(checkpoint, fixture);
	for (struct sp_checkpoint *level = checkpoint; level; level = level->parent)
		members++;
	assert_int_equal(members, 5);
	sp_checkpoint_close(checkpoint);
	assert_int_equal(access(log, F_OK), 0); /* what is not the checkpoint's stays */
	assert_int_equal(count_entries(scratch.path), 5);
	scratch_remove(&scratch);
}

static void a_merge_that_fails_leaves_all_as_it_was(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *oldest = member_path(&scratch, 0);
	sp_cleanup_free char *youngest = member_path(&scratch, 2);
	struct sp_merge_options options = {.directory = youngest, .compression = 1};
	struct sp_merge_result result;
	struct sp_error err = {0};

	write_chain(&scratch, fixture, 3);
	flip(oldest, SP_IMAGE_PAGES);
	assert_int_equal(sp_merge(&options, &result, &err), -EBADMSG);
	assert_says(&err, "cannot merge");
	assert_says(&err, "pages.img is damaged");
	assert_int_equal(count_entries(scratch.path), 3);
	assert_int_equal(try_open(youngest, &err), 0);
	flip(oldest, SP_IMAGE_PAGES);
	options.output = oldest; /* which is not empty */
	assert_int_equal(sp_merge(&options, &result, &err), -EEXIST);
	assert_int_equal(count_entries(scratch.path), 3);
	scratch_remove(&scratch);
}

/* --- memory only --- */

static void memory_alone_is_a_parent_and_no_program(void **state)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *path = member_path(&scratch, 0);
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};

	fixture->thread_count = fixture->descriptor_count = 0;
	fixture->manifest.memory_only = true;
	write_member(&scratch, fixture, 0);
	assert_int_equal(sp_checkpoint_verify(path, NULL, &err), 0);
	checkpoint = open_member(&scratch, 0);
	assert_int_equal(sp_checkpoint_need_program(checkpoint, &err), -ENODATA);
	assert_says(&err,
	            "holds memory only, it is a pre-dump; use a checkpoint that stands on it");
	sp_checkpoint_close(checkpoint);

	fixture->thread_count = 2;
	fixture->manifest.memory_only = false;
	change_page(fixture, 1);
	write_member(&scratch, fixture, 1);
	checkpoint = open_member(&scratch, 1);
	assert_heap(checkpoint, fixture);
	assert_int_equal(sp_checkpoint_need_program(checkpoint, &err), 0);
	sp_checkpoint_close(checkpoint);
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_long_chain_reads_as_its_youngest_says),
	        cmocka_unit_test(every_member_is_a_checkpoint_of_its_own),
	        cmocka_unit_test(a_missing_parent_is_named),
	        cmocka_unit_test(a_chain_moves_as_a_whole),
	        cmocka_unit_test(another_one_in_the_parents_place_is_named),
	        cmocka_unit_test(a_damaged_parent_is_named),
	        cmocka_unit_test(a_page_that_no_parent_knows_is_refused),
	        cmocka_unit_test(a_merged_checkpoint_says_the_same_alone),
	        cmocka_unit_test(younger_ones_find_their_merged_parent),
	        cmocka_unit_test(a_merge_that_fails_leaves_all_as_it_was),
	        cmocka_unit_test(memory_alone_is_a_parent_and_no_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
