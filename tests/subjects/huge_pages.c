/*
 * Transparent huge pages: where memory was backed by huge pages, it is again; where an advised
 * range had only small pages, no memory is added by making them huge.
 */
#include "mapping.h"

#define HUGE (2UL << 20)

static uint8_t *aligned(size_t size)
{
	uint8_t *start = mapping_new(size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);

	return (uint8_t *)(((uintptr_t)start + HUGE - 1) & ~(HUGE - 1));
}

int main(void)
{
	uint8_t *huge = aligned(4 * HUGE);
	uint8_t *sparse = aligned(2 * HUGE); /* not advised: khugepaged would fill advised memory */
	long was_huge;

	subject_need(madvise(huge, 4 * HUGE, MADV_HUGEPAGE) == 0, "madvise");
	mapping_fill(huge, 3 * HUGE, 1);
	was_huge = mapping_smaps_kb(huge, "AnonHugePages:");
	if (was_huge == 0)
		subject_skip("the kernel gives no transparent huge pages");
	for (size_t at = 0; at < 2 * HUGE; at += 16 * PAGE)
		mapping_fill(sparse + at, PAGE, at);
	if (mapping_populated(sparse + PAGE))
		subject_skip("the kernel makes all memory huge (transparent_hugepage is always)");

	subject_ready();

	subject_check(mapping_smaps_kb(huge, "AnonHugePages:") == was_huge,
	              "%ld KiB in huge pages, was %ld", mapping_smaps_kb(huge, "AnonHugePages:"),
	              was_huge);
	subject_check(!mapping_populated(sparse + PAGE), "sparse memory was filled up");
	mapping_check(huge, 3 * HUGE, 1, "huge pages");
	for (size_t at = 0; at < 2 * HUGE; at += 16 * PAGE)
		mapping_check(sparse + at, PAGE, at, "sparse");
	return subject_end();
}
