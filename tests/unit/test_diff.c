/* What changed between two checkpoints is told, all of it and nothing else. */
#include "engine/engine.h"
#include "image/checkpoint_parts.h"
#include "unit/checkpoint_fixture.h"

/* Two checkpoints, "before" and "after", and what the comparison says. */
struct pair {
	struct scratch scratch;
	struct fixture *fixture; /* written as "before"; to be changed, then written as "after" */
	char *before, *after;
	struct sp_difference difference;
};

static void pair_begin(struct pair *pair)
{
	*pair = (struct pair){.scratch = scratch_make(), .fixture = new_fixture()};
	pair->before = in_scratch(&pair->scratch, "before");
	pair->after = in_scratch(&pair->scratch, "after");
	write_fixture(pair->fixture, pair->before);
}

static void pair_compare(struct pair *pair)
{
	struct sp_error err = {0};

	write_fixture(pair->fixture, pair->after);
	if (sp_diff(pair->before, pair->after, 0, &pair->difference, &err) < 0)
		fail_msg("%s", err.message);
}

static void pair_end(struct pair *pair)
{
	sp_difference_release(&pair->difference);
	free(pair->fixture);
	free(pair->before);
	free(pair->after);
	scratch_remove(&pair->scratch);
}

static const struct sp_mapping_change *mapping(const struct pair *pair, size_t number)
{
	assert_true(number < pair->difference.mappings.count);
	return sp_array_at(&pair->difference.mappings, number);
}

static void expect_counts(const struct pair *pair, size_t mappings, size_t threads,
                          size_t descriptors, size_t facets)
{
	assert_int_equal(pair->difference.mappings.count, mappings);
	assert_int_equal(pair->difference.threads.count, threads);
	assert_int_equal(pair->difference.descriptors.count, descriptors);
	assert_int_equal(pair->difference.facets.count, facets);
}

static void nothing_is_told_of_two_that_say_the_same(void **state)
{
	struct pair pair;

	pair_begin(&pair);
	pair.fixture->level = SP_COMPRESS_NONE; /* other bytes on disk */
	pair_compare(&pair);
	expect_counts(&pair, 0, 0, 0, 0);
	assert_int_equal(pair.difference.memory.contents, 0);
	pair_end(&pair);
}

static void changed_pages_are_counted(void **state)
{
	struct pair pair;

	pair_begin(&pair);
	pair.fixture->heap[2 * SP_PAGE_SIZE + 5] ^= 1;
	memset(pair.fixture->heap + 6 * SP_PAGE_SIZE, 0, SP_PAGE_SIZE);
	pair_compare(&pair);
	expect_counts(&pair, 1, 0, 0, 0);
	assert_int_equal(mapping(&pair, 0)->range.start, HEAP);
	assert_int_equal(mapping(&pair, 0)->pages.contents, 2);
	assert_int_equal(mapping(&pair, 0)->pages.states, 0);
	assert_int_equal(pair.difference.memory.contents, 2);
	pair_end(&pair);
}

static void pages_in_another_state_are_counted(void **state)
{
	struct pair pair;

	pair_begin(&pair);
	pair.fixture->early = pair.fixture->pages[2]; /* the stack: ZERO, */
	pair.fixture->pages[2].start += SP_PAGE_SIZE; /* and above that HOLE but for one page */
	pair_compare(&pair);
	expect_counts(&pair, 1, 0, 0, 0);
	assert_int_equal(mapping(&pair, 0)->range.start, STACK);
	assert_int_equal(mapping(&pair, 0)->pages.contents, 0);
	assert_int_equal(mapping(&pair, 0)->pages.states, 1);
	pair_end(&pair);
}

static void what_a_chain_shares_is_not_read(void **state)
{
	struct pair pair;
	sp_cleanup_free char *pages = NULL;
	sp_cleanup_close int fd = -1;
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};

	pair_begin(&pair);
	assert_int_equal(sp_checkpoint_open(&checkpoint, pair.before, &err), 0);
	pair.fixture->manifest.parent_path = (char *)"../before";
	pair.fixture->manifest.parent_id = checkpoint->manifest->id;
	pair.fixture->heap_state = SP_PAGE_ZERO;
	pair.fixture->in_parent = 0xfe;
	pages = sp_format("%s/%s", pair.before, SP_IMAGE_PAGES);
	fd = open(pages, O_RDWR);
	assert_int_equal(pwrite(fd, "damage", 6, 0), 6);
	pair_compare(&pair);
	expect_counts(&pair, 1, 0, 0, 0);
	assert_int_equal(mapping(&pair, 0)->pages.contents, 1);
	sp_checkpoint_close(checkpoint);
	pair_end(&pair);
}

static void another_protection_is_told_of_its_part(void **state)
{
	struct pair pair;
	Sealpoint__Vma *vmas;

	pair_begin(&pair);
	vmas = pair.fixture->vmas;
	vmas[2] = new_vma(HEAP + 3 * SP_PAGE_SIZE, HEAP_PAGES - 3, SP_VMA_ANONYMOUS, 0);
	vmas[2].prot = PROT_READ | PROT_WRITE;
	vmas[1].end = vmas[2].start;
	pair.fixture->pages[2] = (struct sp_range){0, 0}; /* and the stack is gone */
	pair_compare(&pair);
	expect_counts(&pair, 2, 0, 0, 0);
	assert_int_equal(mapping(&pair, 0)->range.start, HEAP + 3 * SP_PAGE_SIZE);
	assert_int_equal(mapping(&pair, 0)->before->prot, PROT_READ);
	assert_int_equal(mapping(&pair, 0)->after->prot, PROT_READ | PROT_WRITE);
	assert_int_equal(mapping(&pair, 0)->pages.contents, 0);
	assert_int_equal(mapping(&pair, 1)->range.start, STACK);
	assert_null(mapping(&pair, 1)->after);
	pair_end(&pair);
}

static void a_mapping_that_moved_is_found(void **state)
{
	const uint64_t place = 0x10000000;
	struct pair pair;

	pair_begin(&pair);
	pair.fixture->vmas[1] = new_vma(place, HEAP_PAGES, SP_VMA_ANONYMOUS, 0);
	pair.fixture->pages[1] = vma_range(&pair.fixture->vmas[1]);
	pair.fixture->heap[0] ^= 1;
	pair_compare(&pair);
	expect_counts(&pair, 1, 0, 0, 0);
	assert_int_equal(mapping(&pair, 0)->range.start, place);
	assert_int_equal(mapping(&pair, 0)->moved_from, HEAP);
	assert_int_equal(mapping(&pair, 0)->pages.contents, 1);
	pair_end(&pair);
}

static void another_thing_in_the_same_place_is_new(void **state)
{
	struct pair pair;

	pair_begin(&pair);
	pair.fixture->vmas[1].kind = SP_VMA_STACK;
	pair_compare(&pair);
	expect_counts(&pair, 2, 0, 0, 0);
	assert_null(mapping(&pair, 0)->after);
	assert_null(mapping(&pair, 1)->before);
	pair_end(&pair);
}

static void threads_descriptors_and_state_are_compared(void **state)
{
	struct pair pair;
	const struct sp_thread_change *thread;
	const struct sp_descriptor_change *descriptor;
	const struct sp_facet_change *facet;
	uint8_t body[] = {8, 1};

	pair_begin(&pair);
	pair.fixture->thread_count = 1;
	pair.fixture->general[0] = 7;
	pair.fixture->descriptors[1].number = 9;
	pair.fixture->files[1].flags = 2;
	pair.fixture->facets[1].body = (ProtobufCBinaryData){sizeof(body), body};
	pair_compare(&pair);
	expect_counts(&pair, 0, 2, 3, 1);
	thread = sp_array_at(&pair.difference.threads, 0);
	assert_int_equal(thread->after->tid, 100);
	thread = sp_array_at(&pair.difference.threads, 1);
	assert_null(thread->after);
	descriptor = sp_array_at(&pair.difference.descriptors, 0); /* 0: another open file */
	assert_int_equal(descriptor->after->number, 0);
	descriptor = sp_array_at(&pair.difference.descriptors, 1);
	assert_int_equal(descriptor->before->number, 5);
	assert_null(descriptor->after);
	descriptor = sp_array_at(&pair.difference.descriptors, 2);
	assert_null(descriptor->before);
	facet = sp_array_at(&pair.difference.facets, 0);
	assert_string_equal(facet->after->name, "timers");
	pair_end(&pair);
}

static void memory_alone_is_compared_with_a_program(void **state)
{
	struct pair pair;

	pair_begin(&pair);
	pair.fixture->thread_count = pair.fixture->descriptor_count = 0;
	pair.fixture->manifest.memory_only = true;
	pair.fixture->heap[0] ^= 1;
	pair_compare(&pair);
	expect_counts(&pair, 1, 0, 0, 0);
	pair_end(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(nothing_is_told_of_two_that_say_the_same),
	        cmocka_unit_test(changed_pages_are_counted),
	        cmocka_unit_test(pages_in_another_state_are_counted),
	        cmocka_unit_test(what_a_chain_shares_is_not_read),
	        cmocka_unit_test(another_protection_is_told_of_its_part),
	        cmocka_unit_test(a_mapping_that_moved_is_found),
	        cmocka_unit_test(another_thing_in_the_same_place_is_new),
	        cmocka_unit_test(threads_descriptors_and_state_are_compared),
	        cmocka_unit_test(memory_alone_is_compared_with_a_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
