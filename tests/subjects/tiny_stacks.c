/*
 * Stacks on which there is no room for anybody else: coroutines whose stacks are 2 KiB blocks of
 * the heap, one computing and one in a system call, each in a thread of its own. What lies below
 * the stack pointer and around the block must not change: it is the next block's.
 */
#include "subject.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define STACK 2048
#define NEIGHBOUR 1024
#define UNUSED 512 /* the lowest bytes of the stack, which the coroutine does not reach */

struct coroutine {
	uint8_t below[NEIGHBOUR];
	uint8_t stack[STACK] __attribute__((aligned(16)));
	uint8_t above[NEIGHBOUR];
	ucontext_t outside, inside;
	bool sleeps;
	uint64_t rounds;
};

static void run(unsigned high, unsigned low)
{
	struct coroutine *self = (struct coroutine *)((uintptr_t)high << 32 | low);
	const struct timespec pause = {.tv_nsec = 3000000};

	/* The function is bound already: the dynamic linker needs more stack than there is here. */
	while (subject_running()) {
		if (self->sleeps)
			syscall(SYS_nanosleep, &pause, NULL);
		self->rounds++;
	}
}

static bool is_painted(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != 0xa5)
			return false;
	return true;
}

static void *thread(void *argument)
{
	struct coroutine *it = argument;

	syscall(SYS_getpid);
	getcontext(&it->inside);
	it->inside.uc_stack.ss_sp = it->stack;
	it->inside.uc_stack.ss_size = sizeof(it->stack);
	it->inside.uc_link = &it->outside;
	makecontext(&it->inside, (void (*)(void))run, 2, (unsigned)((uintptr_t)it >> 32),
	            (unsigned)(uintptr_t)it);
	swapcontext(&it->outside, &it->inside);
	subject_check(is_painted(it->below, NEIGHBOUR), "the block below the stack was written to");
	subject_check(is_painted(it->stack, UNUSED), "the stack was written to below its use");
	subject_check(is_painted(it->above, NEIGHBOUR), "the block above the stack was written to");
	return NULL;
}

int main(void)
{
	struct coroutine *coroutines[2];
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		coroutines[i] = aligned_alloc(64, (sizeof(**coroutines) + 63) & ~63UL);
		subject_need(coroutines[i] != NULL, "aligned_alloc");
		memset(coroutines[i], 0xa5, sizeof(**coroutines));
		coroutines[i]->sleeps = i == 1;
		coroutines[i]->rounds = 0;
		subject_need(pthread_create(&threads[i], NULL, thread, coroutines[i]) == 0,
		             "pthread_create");
	}
	while (((volatile struct coroutine *)coroutines[1])->rounds == 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);

	subject_ready();

	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		free(coroutines[i]);
	}
	return subject_end();
}
