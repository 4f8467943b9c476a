/* Rewind: going back is exact, whatever was written, dropped or loaded meanwhile (sealpoint/rewind.h). */
#include "sealpoint/rewind.h"

#include "base/cleanup.h"
#include "base/kernel_abi.h"
#include "base/range.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PAGES 48
#define SIZE (PAGES * SP_PAGE_SIZE)
#define PLENTY (64 << 20)

struct machine {
	uint64_t registers[8];
};

static struct machine machine;

static char *map_memory(void)
{
	char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static struct sp_rewind *open_rewind(char *memory, size_t limit)
{
	struct sp_rewind *rewind;

	assert_int_equal(sp_rewind_open(&rewind, (struct sp_span){memory, memory + SIZE}, &machine,
	                                sizeof(machine), limit, SP_WRITE_WATCH_AUTO),
	                 0);
	return rewind;
}

static size_t depth(const struct sp_rewind *rewind)
{
	struct sp_rewind_stats stats;

	sp_rewind_stats(rewind, &stats);
	return stats.frames;
}

static void close_rewind(struct sp_rewind *rewind, char *memory)
{
	sp_rewind_close(rewind);
	munmap(memory, SIZE);
}

static void going_back_undoes_capture_by_capture(void **state)
{
	char *memory = map_memory();
	struct sp_rewind *rewind = open_rewind(memory, PLENTY);

	for (int i = 1; i <= 3; i++) {
		memory[(size_t)i * SP_PAGE_SIZE] = (char)i;
		memory[0] = (char)i;
		machine.registers[0] = (uint64_t)i;
		assert_int_equal(sp_rewind_capture(rewind), 0);
	}
	memory[0] = 9;
	machine.registers[0] = 9;
	assert_int_equal(sp_rewind_back(rewind, 0), 0);
	assert_int_equal(memory[0], 3);
	assert_int_equal(machine.registers[0], 3);
	assert_int_equal(sp_rewind_back(rewind, 2), 0);
	assert_int_equal(memory[0], 1);
	assert_int_equal(memory[SP_PAGE_SIZE], 1);
	assert_int_equal(memory[3 * SP_PAGE_SIZE], 0);
	assert_int_equal(machine.registers[0], 1);
	assert_int_equal(depth(rewind), 1);
	assert_int_equal(sp_rewind_back(rewind, 2), -ERANGE);
	close_rewind(rewind, memory);
}

static void only_what_differs_is_stored(void **state)
{
	char *memory = map_memory();
	struct sp_rewind *rewind = open_rewind(memory, PLENTY);
	struct sp_rewind_stats stats;

	memory[5 * SP_PAGE_SIZE] = 1;
	memory[6 * SP_PAGE_SIZE] = 0; /* written, but what it was */
	assert_int_equal(sp_rewind_capture(rewind), 0);
	sp_rewind_stats(rewind, &stats);
	assert_int_equal(stats.last_blocks, 1);
	assert_in_range(stats.last_bytes, 1, 200);
	assert_int_equal(sp_rewind_capture(rewind), 0);
	sp_rewind_stats(rewind, &stats);
	assert_int_equal(stats.last_blocks, 0);
	assert_int_equal(stats.frames, 2);
	close_rewind(rewind, memory);
}

static uint64_t next_random(uint64_t *random)
{
	*random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
	return *random >> 33;
}

static void write_incompressible(char *memory, size_t page, uint64_t *random)
{
	for (size_t i = 0; i < SP_PAGE_SIZE; i++)
		memory[page * SP_PAGE_SIZE + i] = (char)(next_random(random) >> 7);
}

static void the_limit_drops_the_oldest(void **state)
{
	size_t limit = 10 * SP_PAGE_SIZE;
	char *memory = map_memory(), first_kept[SIZE];
	struct sp_rewind *rewind = open_rewind(memory, limit);
	struct sp_rewind_stats stats;
	uint64_t random = 1;

	for (int i = 0; i < 40; i++) {
		if (i == 32)
			memcpy(first_kept, memory, SIZE);
		write_incompressible(memory, (size_t)i, &random);
		assert_int_equal(sp_rewind_capture(rewind), 0);
		sp_rewind_stats(rewind, &stats);
		assert_in_range(stats.bytes, 1, limit);
	}
	assert_in_range(stats.frames, 8, 9);
	assert_int_equal(sp_rewind_back(rewind, 8), 0);
	assert_memory_equal(memory, first_kept, SIZE);
	for (size_t i = 0; i < 20; i++)
		write_incompressible(memory, i, &random);
	memcpy(first_kept, memory, SIZE);
	assert_int_equal(sp_rewind_capture(rewind), 0); /* larger than the limit by itself */
	assert_int_equal(depth(rewind), 0);
	memory[0]++;
	assert_int_equal(sp_rewind_back(rewind, 0), 0);
	assert_memory_equal(memory, first_kept, SIZE);
	close_rewind(rewind, memory);
}

static void changes_are_told_for_redrawing(void **state)
{
	char *memory = map_memory();
	struct sp_rewind *rewind = open_rewind(memory, PLENTY);
	struct sp_span all = {memory, memory + SIZE}, left = all, ranges[4];

	assert_int_equal(sp_rewind_changed(rewind, &left, 0, ranges, 4), 0);
	memory[SP_PAGE_SIZE] = memory[2 * SP_PAGE_SIZE] = memory[9 * SP_PAGE_SIZE] = 1;
	sp_rewind_capture(rewind);
	left = all;
	assert_int_equal(sp_rewind_changed(rewind, &left, 0, ranges, 1), 1);
	assert_ptr_equal(ranges[0].start, memory + SP_PAGE_SIZE);
	assert_ptr_equal(ranges[0].end, memory + 3 * SP_PAGE_SIZE);
	assert_int_equal(sp_rewind_changed(rewind, &left, 0, ranges, 4), 1);
	left = all;
	assert_int_equal(sp_rewind_changed(rewind, &left, SP_WRITE_WATCH_RESET, ranges, 4), 2);
	memory[20 * SP_PAGE_SIZE] = 1;
	assert_int_equal(sp_rewind_back(rewind, 1), 0);
	left = all;
	assert_int_equal(sp_rewind_changed(rewind, &left, SP_WRITE_WATCH_RESET, ranges, 4), 3);
	left = all;
	assert_int_equal(sp_rewind_changed(rewind, &left, 0, ranges, 4), 0);
	close_rewind(rewind, memory);
}

static void a_saved_state_is_loaded_and_can_be_undone(void **state)
{
	sp_cleanup_close int fd = memfd_create("state", MFD_CLOEXEC);
	char *memory = map_memory();
	struct sp_rewind *rewind = open_rewind(memory, PLENTY);

	strcpy(memory + 7 * SP_PAGE_SIZE, "saved");
	machine.registers[1] = 1234;
	assert_int_equal(sp_rewind_capture(rewind), 0);
	assert_int_equal(sp_rewind_save(rewind, fd), 0);
	strcpy(memory + 7 * SP_PAGE_SIZE, "later");
	machine.registers[1] = 5;
	assert_int_equal(sp_rewind_capture(rewind), 0);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(sp_rewind_load(rewind, fd), 0);
	assert_string_equal(memory + 7 * SP_PAGE_SIZE, "saved");
	assert_int_equal(machine.registers[1], 1234);
	assert_int_equal(sp_rewind_back(rewind, 1), 0);
	assert_string_equal(memory + 7 * SP_PAGE_SIZE, "later");
	assert_int_equal(machine.registers[1], 5);
	close_rewind(rewind, memory);
}

static void a_damaged_state_changes_nothing(void **state)
{
	sp_cleanup_close int fd = memfd_create("state", MFD_CLOEXEC);
	char *memory = map_memory(), byte;
	struct sp_rewind *rewind = open_rewind(memory, PLENTY), *smaller;
	uint64_t random = 3;
	off_t size;

	write_incompressible(memory, 3, &random);
	assert_int_equal(sp_rewind_capture(rewind), 0);
	assert_int_equal(sp_rewind_save(rewind, fd), 0);
	size = lseek(fd, 0, SEEK_CUR);
	memory[0] = 77;
	for (off_t at = 0; at < size; at += 41) {
		int rc;

		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		lseek(fd, 0, SEEK_SET);
		rc = sp_rewind_load(rewind, fd);
		assert_true(rc == -EBADMSG || rc == -EINVAL);
		assert_int_equal(memory[0], 77);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	assert_int_equal(ftruncate(fd, size - 1), 0);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(sp_rewind_load(rewind, fd), -EBADMSG);
	sp_rewind_close(rewind);
	assert_int_equal(sp_rewind_open(&smaller, (struct sp_span){memory, memory + SP_PAGE_SIZE},
	                                NULL, 0, PLENTY, SP_WRITE_WATCH_AUTO),
	                 0);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(sp_rewind_load(smaller, fd), -EINVAL);
	close_rewind(smaller, memory);
}

/* --- everything at random, against a full copy of every capture --- */

#define STEPS 400

struct history {
	struct {
		char memory[SIZE];
		struct machine machine;
	} captures[STEPS + 1];
	size_t last;
};

static struct history history;

static void note_capture(const char *memory)
{
	memcpy(history.captures[history.last].memory, memory, SIZE);
	history.captures[history.last].machine = machine;
}

static void change_something(char *memory, uint64_t *random)
{
	size_t page = next_random(random) % PAGES;

	switch (next_random(random) % 8) {
	case 0:
		madvise(memory + page * SP_PAGE_SIZE, SP_PAGE_SIZE, MADV_DONTNEED);
		break;
	case 1:
		write_incompressible(memory, page, random);
		break;
	case 2:
		memset(memory + page * SP_PAGE_SIZE, 0, SIZE - page * SP_PAGE_SIZE);
		break;
	case 3:
		machine.registers[page % 8] = next_random(random);
		break;
	default:
		memory[next_random(random) % SIZE] = (char)next_random(random);
	}
}

static void check(const char *memory)
{
	assert_memory_equal(memory, history.captures[history.last].memory, SIZE);
	assert_memory_equal(&machine, &history.captures[history.last].machine, sizeof(machine));
}

static void go_at_random(uint64_t seed, size_t limit)
{
	char *memory = map_memory();
	struct sp_rewind *rewind = open_rewind(memory, limit);
	uint64_t random = seed;

	history.last = 0;
	note_capture(memory);
	for (int step = 0; step < STEPS; step++) {
		for (uint64_t i = next_random(&random) % 6; i > 0; i--)
			change_something(memory, &random);
		if (next_random(&random) % 4) {
			assert_int_equal(sp_rewind_capture(rewind), 0);
			history.last++;
			note_capture(memory);
		} else {
			size_t frames = next_random(&random) % (depth(rewind) + 1);

			assert_int_equal(sp_rewind_back(rewind, frames), 0);
			history.last -= frames;
			check(memory);
		}
	}
	history.last -= depth(rewind);
	assert_int_equal(sp_rewind_back(rewind, depth(rewind)), 0);
	check(memory);
	close_rewind(rewind, memory);
}

static void going_back_is_exact_at_random(void **state)
{
	for (uint64_t seed = 1; seed <= 8; seed++)
		go_at_random(seed, seed % 2 ? PLENTY : 40000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(going_back_undoes_capture_by_capture),
	        cmocka_unit_test(only_what_differs_is_stored),
	        cmocka_unit_test(the_limit_drops_the_oldest),
	        cmocka_unit_test(changes_are_told_for_redrawing),
	        cmocka_unit_test(a_saved_state_is_loaded_and_can_be_undone),
	        cmocka_unit_test(a_damaged_state_changes_nothing),
	        cmocka_unit_test(going_back_is_exact_at_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
