/*
 * Threads that map memory, grow it by mremap(2), and unmap it, all the time. What was made by one mmap(2) is one
 * mapping, whoever lists and tracks it meanwhile: of two, mremap(2) would fail.
 *
 * subject: ignore=maps,resident,stat
 */
#include "mapping.h"

#include <pthread.h>

#define THREADS 3
#define LARGEST 64

static void resize_once(unsigned *seed)
{
	size_t size = (size_t)(1 + rand_r(seed) % LARGEST) * PAGE, larger = 2 * size;
	uint8_t *memory = mapping_new(size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	void *moved;

	mapping_fill(memory, size, *seed);
	moved = mremap(memory, size, larger, MREMAP_MAYMOVE);
	if (!subject_check(moved != MAP_FAILED, "mremap: %s", strerror(errno)))
		larger = size;
	else
		memory = moved;
	mapping_check(memory, size, *seed, "memory that was resized");
	munmap(memory, larger);
}

static void *resize(void *number)
{
	unsigned seed = (unsigned)(uintptr_t)number;

	while (subject_running() && !atomic_load(&subject_failures))
		resize_once(&seed);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		subject_need(pthread_create(&threads[i], NULL, resize, (void *)(i + 1)) == 0,
		             "a thread");
	subject_ready();
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return subject_end();
}
