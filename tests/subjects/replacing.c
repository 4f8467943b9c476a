/*
 * Private memory that becomes shared memory, and private again, at one place and all the time: what a
 * dump has just read of its mappings is not so any more.
 *
 * subject: modes=none
 */
#include "mapping.h"

#include <pthread.h>

static void *replacing(void *at)
{
	for (unsigned turn = 0; subject_running(); turn++) {
		mmap(at, 16 * PAGE, PROT_READ | PROT_WRITE,
		     MAP_FIXED | MAP_ANONYMOUS | (turn % 2 ? MAP_SHARED : MAP_PRIVATE), -1, 0);
		memset(at, (int)turn, 16 * PAGE);
		usleep(100);
	}
	return NULL;
}

int main(void)
{
	uint8_t *at = mapping_new(16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	pthread_t thread;

	subject_need(!pthread_create(&thread, NULL, replacing, at), "a thread");
	subject_ready();
	pthread_join(thread, NULL);
	subject_check(!memcmp(at, at + PAGE, 15 * PAGE), "the pages differ");
	return subject_end();
}
