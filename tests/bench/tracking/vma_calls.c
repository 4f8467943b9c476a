/*
 * munmap, mprotect and madvise(MADV_DONTNEED) over 1 to 32 VMAs at once, and mmap with munmap in a loop,
 * in a process with and without a sealed VMA: does sealing cost those who do not use it?
 */
#include "bench.h"

#include "base/kernel_abi.h"

#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 501
#define LOOP 3 /* of the calls, the one that has no VMAs */

/* `count` VMAs side by side: every other page has another protection. */
static char *map_vmas(size_t count)
{
	char *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                    -1, 0);

	die_if(memory == MAP_FAILED, "mmap");
	for (size_t i = 1; i < count; i += 2)
		mprotect(memory + i * PAGE, PAGE, PROT_READ);
	for (size_t i = 0; i < count; i += 2)
		memory[i * PAGE] = 1;
	return memory;
}

static double measure(int call, size_t count)
{
	static double times[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		char *memory = map_vmas(count);
		double start = now_ns();
		int rc;

		if (call == 0)
			rc = munmap(memory, count * PAGE);
		else if (call == 1)
			rc = mprotect(memory, count * PAGE, PROT_READ);
		else
			rc = madvise(memory, count * PAGE, MADV_DONTNEED);
		times[round] = now_ns() - start;
		die_if(rc < 0, "call");
		munmap(memory, count * PAGE);
	}
	return median(times, ROUNDS);
}

static double measure_loop(void)
{
	static double times[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		double start = now_ns();
		char *memory = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
		                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		munmap(memory, 16 * PAGE);
		times[round] = now_ns() - start;
	}
	return median(times, ROUNDS);
}

/* A seal is for ever: each measurement has a process of its own. -1: no mseal(2). */
static double measure_in_child(bool sealed, int call, size_t count)
{
	double *result =
	        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double time;
	pid_t pid;

	die_if(result == MAP_FAILED, "mmap");
	pid = fork();
	die_if(pid < 0, "fork");
	if (pid == 0) {
		if (sealed && syscall(SYS_mseal, map_populated(16 * PAGE, false), 16 * PAGE, 0) < 0)
			*result = -1;
		else
			*result = call == LOOP ? measure_loop() : measure(call, count);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	time = *result;
	munmap(result, PAGE);
	return time;
}

int main(void)
{
	static const char *const calls[] = {"munmap", "mprotect", "madvise(DONTNEED)",
	                                    "mmap and munmap"};

	printf("One call over so many VMAs, nanoseconds (median of %d)\n\n", ROUNDS);
	printf("%-20s %6s %12s %16s\n", "call", "VMAs", "no seal", "one sealed VMA");
	for (int call = 0; call <= LOOP; call++)
		for (size_t count = 1; count <= (call == LOOP ? 1 : 32); count *= 2)
			printf("%-20s %6zu %12.0f %16.0f\n", calls[call], count,
			       measure_in_child(false, call, count),
			       measure_in_child(true, call, count));
	return 0;
}
