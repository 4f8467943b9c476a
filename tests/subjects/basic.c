/*
 * The least that a program is: code, data, heap and stack, a main thread that waits, and a checksum
 * of what it holds.
 */
#include "subject.h"

#include <stdint.h>

#define WORDS 100000

static uint64_t in_data[4] = {1, 2, 3, 4};
static uint64_t in_bss[WORDS];

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return *state >> 11;
}

static void fill(uint64_t *words, uint64_t seed)
{
	for (int i = 0; i < WORDS; i++)
		words[i] = next(&seed);
}

static bool is_filled(const uint64_t *words, uint64_t seed)
{
	for (int i = 0; i < WORDS; i++)
		if (words[i] != next(&seed))
			return false;
	return true;
}

int main(void)
{
	uint64_t *on_heap = malloc(WORDS * sizeof(*on_heap));
	uint64_t on_stack[1000];
	uint64_t seed = 5;

	subject_need(on_heap != NULL, "malloc");
	fill(on_heap, 6);
	fill(in_bss, 7);
	in_data[1] = 42;
	for (int i = 0; i < 1000; i++)
		on_stack[i] = next(&seed);

	subject_ready();

	seed = 5;
	for (int i = 0; i < 1000; i++)
		if (!subject_check(on_stack[i] == next(&seed), "word %d of the stack differs", i))
			break;
	subject_check(is_filled(on_heap, 6), "the heap differs");
	subject_check(is_filled(in_bss, 7), "the uninitialised data differ");
	subject_check(in_data[0] == 1 && in_data[1] == 42, "the data differ");
	free(on_heap);
	return subject_end();
}
