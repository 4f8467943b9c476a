/*
 * A process that never rests: every thread computes, none makes a system call until the end. Each
 * has two copies of a sequence in different registers and memory, which must agree at every step.
 */
#include "subject.h"

#include <pthread.h>
#include <stdint.h>

#define THREADS 3

static uint64_t step(uint64_t value)
{
	value ^= value << 13;
	value ^= value >> 7;
	return value ^ value << 17;
}

static void *compute(void *argument)
{
	uint64_t in_register = (uintptr_t)argument + 1;
	volatile uint64_t in_memory = in_register;
	double sum = 0;
	uint64_t steps = 0;

	while (subject_running()) {
		in_register = step(in_register);
		in_memory = step(in_memory);
		sum += 0.5;
		steps++;
		if (!subject_check(in_register == in_memory, "the sequence broke at step %lu",
		                   steps))
			break;
	}
	subject_check(sum == (double)steps / 2, "%lu steps, floating point sum %f", steps, sum);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		subject_need(pthread_create(&threads[i], NULL, compute, (void *)i) == 0,
		             "pthread_create");
	subject_ready();
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return subject_end();
}
