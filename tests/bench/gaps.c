/*
 * A program that writes to random pages and notices when it stands still: gaps MIB RATE [THREADS].
 * RATE is in pages a second and thread, 0 means as fast as it can. SIGUSR1 asks for the longest gap between
 * two writes since the last one, in microseconds, and how many writes there were.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define PAGE 4096UL

static uint8_t *memory;
static uint64_t pages, rate;
static atomic_ullong longest, writes;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

static void note(uint64_t gap)
{
	unsigned long long known = longest;

	while (gap > known && !atomic_compare_exchange_weak(&longest, &known, gap))
		;
}

static void *write_all_the_time(void *argument)
{
	uint64_t seed = (uintptr_t)argument, last = now(), due = last;

	for (;;) {
		uint64_t time;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		memory[(seed >> 33) % pages * PAGE + (seed >> 20) % PAGE]++;
		writes++;
		time = now();
		note(time - last);
		last = time;
		/* It waits by looking at the clock: a sleep would be a gap of its own. */
		for (due += rate ? 1000000000ULL / rate : 0; rate && time < due; last = time) {
			time = now();
			note(time - last);
		}
		if (rate && time > due + 1000000000ULL)
			due = time;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t size = strtoull(argv[1], NULL, 10) << 20;
	int threads = argc > 3 ? atoi(argv[3]) : 1;
	pthread_t thread;
	sigset_t asked;
	int signal_number;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* however whoever measures it ends */
	rate = strtoull(argv[2], NULL, 10);
	pages = size / PAGE;
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(memory, size, MADV_NOHUGEPAGE);
	for (uint64_t i = 0; i < size / sizeof(uint64_t); i++) /* half of it compresses */
		((uint64_t *)memory)[i] = i % 2 ? i * 0x9e3779b97f4a7c15ULL >> (i % 64) : i / 512;
	sigemptyset(&asked);
	sigaddset(&asked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &asked, NULL);
	for (int i = 0; i < threads; i++)
		pthread_create(&thread, NULL, write_all_the_time, (void *)(uintptr_t)(i + 1));
	printf("ready\n");
	fflush(stdout);
	while (sigwait(&asked, &signal_number) == 0) {
		printf("%llu %llu\n", atomic_exchange(&longest, 0) / 1000,
		       atomic_exchange(&writes, 0));
		fflush(stdout);
	}
	return 0;
}
