/*
 * Memory protection keys: the key of each mapping, the rights of each thread (a register), and
 * which keys the process has allocated.
 */
#include "mapping.h"

#include <pthread.h>

static uint8_t *keyed, *plain;
static int key;

/* Another thread has rights of its own. */
static void *reader(void *unused)
{
	subject_need(pkey_set(key, PKEY_DISABLE_WRITE) == 0, "pkey_set");
	while (subject_running()) {
		subject_check(pkey_get(key) == PKEY_DISABLE_WRITE, "the thread's rights are %d",
		              pkey_get(key));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;
	int next;

	key = pkey_alloc(0, 0);
	if (key < 0)
		subject_skip("the processor has no protection keys");
	keyed = mapping_new(8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	plain = mapping_new(8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	mapping_fill(keyed, 8 * PAGE, 1);
	mapping_fill(plain, 8 * PAGE, 2);
	subject_need(pkey_mprotect(keyed, 8 * PAGE, PROT_READ | PROT_WRITE, key) == 0,
	             "pkey_mprotect");
	subject_need(pthread_create(&thread, NULL, reader, NULL) == 0, "pthread_create");
	subject_need(pkey_set(key, PKEY_DISABLE_ACCESS) == 0, "pkey_set");

	subject_ready();

	pthread_join(thread, NULL);
	subject_check(pkey_get(key) == PKEY_DISABLE_ACCESS, "rights are %d", pkey_get(key));
	subject_check(mapping_smaps_kb(keyed, "ProtectionKey:") == key, "the mapping has key %ld",
	              mapping_smaps_kb(keyed, "ProtectionKey:"));
	subject_check(mapping_smaps_kb(plain, "ProtectionKey:") == 0, "a plain mapping has a key");
	next = pkey_alloc(0, 0);
	subject_check(next > 0 && next != key, "the next free key is %d, and %d is in use", next,
	              key);
	subject_need(pkey_set(key, 0) == 0, "pkey_set");
	mapping_check(keyed, 8 * PAGE, 1, "keyed memory");
	mapping_check(plain, 8 * PAGE, 2, "plain memory");
	return subject_end();
}
