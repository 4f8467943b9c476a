/*
 * Saving memory: each page gets the state that it has, contents are right, and what cannot be saved
 * is named.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "mem/memory.h"
#include "unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include "unit/huge_pages.h"

#define PAGES 16

/* --- saving a mapping of this process, and asking the store --- */

struct saved {
	struct scratch scratch;
	struct sp_page_store *store;
	struct sp_array vmas; /* the one VMA */
	uint32_t object;
};

static int save_one(const void *address, struct saved *saved, struct sp_error *err)
{
	const struct sp_page_writer_options options = {.level = 1, .workers = 1};
	sp_cleanup(sp_vma_list_release) struct sp_array all = {0};
	struct sp_page_writer *writer;
	struct sp_vma *vma;
	int ret = sp_vma_list_read(getpid(), &all, err);

	if (ret < 0)
		return ret;
	vma = sp_vma_find(&all, (uintptr_t)address);
	saved->vmas = SP_ARRAY_OF(struct sp_vma);
	sp_array_append(&saved->vmas, vma);
	vma->path = NULL;
	saved->scratch = scratch_make();
	ret = sp_page_writer_open(&writer, saved->scratch.dirfd, &options, err);
	if (ret < 0)
		return ret;
	saved->object = sp_page_writer_new_object(writer);
	ret = sp_memory_save(getpid(), &saved->vmas, NULL, writer, saved->object, err);
	if (ret < 0) {
		sp_page_writer_abandon(writer);
		return ret;
	}
	ret = sp_page_writer_finish(writer, NULL, err);
	return ret < 0 ? ret : sp_page_store_open(&saved->store, saved->scratch.dirfd, NULL, err);
}

static void save(const void *address, struct saved *saved)
{
	struct sp_error err = {0};

	memset(saved, 0, sizeof(*saved));
	if (save_one(address, saved, &err) < 0)
		fail_msg("%s", err.message);
}

static void release_saved(struct saved *saved)
{
	sp_page_store_close(saved->store);
	sp_vma_list_release(&saved->vmas);
	scratch_remove(&saved->scratch);
}

struct picture {
	uint64_t start;
	char states[PAGES + 1]; /* first letter of each page's state; '-' for none */
};

static int draw(void *context, const struct sp_page_run *run)
{
	static const char letters[SP_PAGE_STATES] = "HDPZFG";
	struct picture *picture = context;

	for (uint64_t at = run->range.start; at < run->range.end; at += SP_PAGE_SIZE)
		picture->states[(at - picture->start) / SP_PAGE_SIZE] = letters[run->state];
	return 0;
}

static void assert_states(const struct saved *saved, const void *memory, const char *states)
{
	struct picture picture = {.start = (uintptr_t)memory};
	struct sp_range range = {picture.start, picture.start + PAGES * SP_PAGE_SIZE};

	memset(picture.states, '-', PAGES);
	assert_int_equal(
	        sp_page_store_walk(saved->store, saved->object, range, draw, &picture, NULL), 0);
	assert_string_equal(picture.states, states);
}

static void assert_contents(const struct saved *saved, const char *memory, size_t page)
{
	char bytes[SP_PAGE_SIZE];
	const char *from = memory + page * SP_PAGE_SIZE;

	assert_int_equal(sp_page_store_read(saved->store, saved->object, (uintptr_t)from, bytes,
	                                    SP_PAGE_SIZE, NULL),
	                 0);
	assert_memory_equal(bytes, from, SP_PAGE_SIZE);
}

static char *map_pages(int flags, int fd)
{
	char *memory = mmap(NULL, PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static void unmap_pages(char *memory)
{
	munmap(memory, PAGES * SP_PAGE_SIZE);
}

static void fill(char *memory, size_t page)
{
	memset(memory + page * SP_PAGE_SIZE, (int)page + 1, SP_PAGE_SIZE);
}

/* --- tests --- */

static void anonymous_pages_have_their_states(void **state)
{
	sp_cleanup(release_saved) struct saved saved;
	char *memory = map_pages(MAP_PRIVATE | MAP_ANONYMOUS, -1);

	fill(memory, 2);
	fill(memory, 3);
	memory[5 * SP_PAGE_SIZE] = 0;
	*(volatile char *)(memory + 7 * SP_PAGE_SIZE);
	save(memory, &saved);
	assert_states(&saved, memory, "HHDDHZHHHHHHHHHH");
	assert_contents(&saved, memory, 2);
	assert_contents(&saved, memory, 3);
	unmap_pages(memory);
}

static void guard_regions_are_kept(void **state)
{
	sp_cleanup(release_saved) struct saved saved = {0};
	char *memory = map_pages(MAP_PRIVATE | MAP_ANONYMOUS, -1);

	if (madvise(memory + 4 * SP_PAGE_SIZE, 2 * SP_PAGE_SIZE, MADV_GUARD_INSTALL) < 0)
		skip_because("this kernel has no MADV_GUARD_INSTALL (since Linux 6.13)");
	fill(memory, 6);
	save(memory, &saved);
	assert_states(&saved, memory, "HHHHGGDHHHHHHHHH");
	unmap_pages(memory);
}

static void inaccessible_memory_has_contents(void **state)
{
	sp_cleanup(release_saved) struct saved saved;
	char *memory = map_pages(MAP_PRIVATE | MAP_ANONYMOUS, -1);

	fill(memory, 1);
	fill(memory, 5);
	fill(memory, 6);
	fill(memory, 9);
	assert_int_equal(mprotect(memory, PAGES * SP_PAGE_SIZE, PROT_NONE), 0);
	save(memory, &saved);
	assert_int_equal(mprotect(memory, PAGES * SP_PAGE_SIZE, PROT_READ), 0);
	assert_states(&saved, memory, "HDHHHDDHHDHHHHHH");
	for (size_t page = 0; page < PAGES; page++)
		assert_contents(&saved, memory, page);
	unmap_pages(memory);
}

static int file_of_pages(void)
{
	int fd = memfd_create("save", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, PAGES * SP_PAGE_SIZE), 0);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(pwrite(fd, "x", 1, (off_t)(i * SP_PAGE_SIZE)), 1);
	return fd;
}

static void only_changed_pages_of_a_private_file_are_stored(void **state)
{
	sp_cleanup(release_saved) struct saved saved;
	sp_cleanup_close int fd = file_of_pages();
	char *memory = map_pages(MAP_PRIVATE, fd);

	madvise(memory, 4 * SP_PAGE_SIZE, MADV_POPULATE_READ);
	fill(memory, 1);
	memset(memory + 2 * SP_PAGE_SIZE, 0, SP_PAGE_SIZE);
	madvise(memory + 4 * SP_PAGE_SIZE, 12 * SP_PAGE_SIZE, MADV_DONTNEED);
	save(memory, &saved);
	assert_states(&saved, memory, "FDZFHHHHHHHHHHHH");
	assert_contents(&saved, memory, 1);
	unmap_pages(memory);
}

static void shared_memory_lives_with_its_file(void **state)
{
	sp_cleanup(release_saved) struct saved saved;
	sp_cleanup_close int fd = file_of_pages();
	char *memory = map_pages(MAP_SHARED, fd);

	fill(memory, 1);
	madvise(memory + 2 * SP_PAGE_SIZE, 14 * SP_PAGE_SIZE, MADV_DONTNEED);
	madvise(memory, SP_PAGE_SIZE, MADV_DONTNEED);
	save(memory, &saved);
	assert_states(&saved, memory, "HFHHHHHHHHHHHHHH");
	unmap_pages(memory);
}

static void huge_pages_are_noted(void **state)
{
	sp_cleanup(release_saved) struct saved saved = {0};
	char *memory = mmap(NULL, 2 * SP_HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t huge = ((uintptr_t)memory + SP_HUGE_PAGE_SIZE - 1) & ~(SP_HUGE_PAGE_SIZE - 1);
	Sealpoint__Vma record;

	assert_ptr_not_equal(memory, MAP_FAILED);
	memset((char *)huge, 1, SP_HUGE_PAGE_SIZE);
	if (madvise((void *)huge, SP_HUGE_PAGE_SIZE, MADV_COLLAPSE) < 0)
		skip_because("the kernel gives no transparent huge page");
	save((void *)huge, &saved);
	sp_vma_to_record(sp_array_at(&saved.vmas, 0), getpid(), &record);
	skip_unless_huge_pages_are_told();
	assert_int_equal(record.n_huge, 2);
	assert_int_equal(record.huge[0], huge);
	assert_int_equal(record.huge[1], huge + SP_HUGE_PAGE_SIZE);
	munmap(memory, 2 * SP_HUGE_PAGE_SIZE);
}

/* --- refusals --- */

static void what_cannot_be_saved_is_named(void **state)
{
	static const struct {
		const char *path;
		enum sp_vma_kind kind;
		uint32_t flags;
		const char *words; /* NULL: it can be saved */
	} cases[] = {
	        {"", SP_VMA_ANONYMOUS, 0, NULL},
	        {"", SP_VMA_ANONYMOUS, SP_VMA_UFFD, "userfaultfd"},
	        {"", SP_VMA_ANONYMOUS, SP_VMA_SHADOW_STACK, "shadow stack"},
	        {"/dev/mem", SP_VMA_DEVICE, SP_VMA_IO, "device"},
	        {"anon_inode:[io_uring]", SP_VMA_DEVICE, 0, "io_uring"},
	        {"[vvar]", SP_VMA_VVAR, SP_VMA_IO, NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		sp_cleanup_array struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
		struct sp_vma *vma = sp_array_push(&vmas);
		struct sp_error err = {0};
		int ret;

		vma->range = (struct sp_range){0x1000, 0x2000};
		vma->kind = cases[i].kind;
		vma->flags = cases[i].flags;
		vma->path = (char *)cases[i].path;
		ret = sp_memory_check(42, &vmas, &err);
		assert_int_equal(ret, cases[i].words ? -ENOTSUP : 0);
		if (!cases[i].words)
			continue;
		assert_non_null(strstr(err.message, cases[i].words));
		assert_non_null(strstr(err.message, cases[i].path));
		assert_non_null(strstr(err.message, "0x1000-0x2000 of process 42"));
	}
}

static void much_that_was_written_is_held_however_large_the_mapping_is(void **state)
{
	const uint64_t base = 1ULL << 32, size = 64ULL << 30, written = size / 16;
	struct sp_range range = {base + written, base + 2 * written};
	struct sp_array changed = {.items = &range, .count = 1, .item_size = sizeof(range)};
	struct sp_vma vma = {
	        .range = {base, base + size},
	        .kind = SP_VMA_ANONYMOUS,
	        .page_shift = SP_PAGE_SHIFT,
	};

	assert_false(sp_memory_is_worth_holding(&vma, &changed, UINT64_MAX));
	assert_false(sp_memory_is_worth_holding(&vma, &changed, written));
	assert_true(sp_memory_is_worth_holding(&vma, &changed, written - 1));
	vma.kind = SP_VMA_FILE_PRIVATE;
	assert_false(sp_memory_is_worth_holding(&vma, &changed, 0));
	vma.kind = SP_VMA_ANONYMOUS;
	range.end += written;
	assert_true(sp_memory_is_worth_holding(&vma, &changed, UINT64_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(anonymous_pages_have_their_states),
	        cmocka_unit_test(guard_regions_are_kept),
	        cmocka_unit_test(inaccessible_memory_has_contents),
	        cmocka_unit_test(only_changed_pages_of_a_private_file_are_stored),
	        cmocka_unit_test(shared_memory_lives_with_its_file),
	        cmocka_unit_test(huge_pages_are_noted),
	        cmocka_unit_test(much_that_was_written_is_held_however_large_the_mapping_is),
	        cmocka_unit_test(what_cannot_be_saved_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
