/*
 * A mapping that has grown, step by step, beyond all memory that the machine has, as a heap may that is hardly
 * used: no single call could make it.
 */
#include "mapping.h"

#include <sys/sysinfo.h>

#define STEP (1UL << 30)

int main(void)
{
	struct sysinfo machine;
	uint8_t *start;
	size_t steps;

	subject_need(sysinfo(&machine) == 0, "sysinfo");
	steps = (machine.totalram + machine.totalswap) * machine.mem_unit / STEP + 2;
	start = mmap(NULL, steps * STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
	             0);
	subject_need(start != MAP_FAILED && munmap(start, steps * STEP) == 0, "%zu GiB", steps);
	for (size_t i = 0; i < steps; i++) {
		uint8_t *step = start + i * STEP;

		if (mmap(step, STEP, PROT_READ | PROT_WRITE,
		         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != step)
			subject_skip("this kernel gives out no more memory than there is");
		mapping_fill(step + STEP / 2, PAGE, i + 1);
	}
	subject_ready();
	for (size_t i = 0; i < steps; i++)
		subject_check(mapping_difference(start + i * STEP + STEP / 2, PAGE, i + 1) == PAGE,
		              "GiB %zu is different", i);
	return subject_end();
}
