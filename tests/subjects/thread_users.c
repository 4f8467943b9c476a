/*
 * Threads of different users (the raw system call changes one thread only), with the snapshot of /proc as the judge of
 * their ids and capabilities.
 *
 * subject: except=user (it has nothing to give up)
 */
#include "subject.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>

enum { THREADS = 3, USER = 1000 };

static pthread_barrier_t changed, gone;

static void *be_another(void *argument)
{
	long user = USER + (long)(intptr_t)argument;
	long real, effective, saved;
	unsigned ids[3];

	subject_need(!syscall(SYS_setresgid, user, user, 0), "setresgid");
	subject_need(!syscall(SYS_setresuid, user, user, user % 2 ? user : 0), "setresuid");
	pthread_barrier_wait(&changed);
	pthread_barrier_wait(&gone);
	syscall(SYS_getresuid, &ids[0], &ids[1], &ids[2]);
	real = ids[0], effective = ids[1], saved = ids[2];
	subject_check(real == user && effective == user && saved == (user % 2 ? user : 0),
	              "thread %ld has users %ld, %ld and %ld", user - USER, real, effective, saved);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	pthread_barrier_init(&changed, NULL, THREADS + 1);
	pthread_barrier_init(&gone, NULL, THREADS + 1);
	for (intptr_t i = 0; i < THREADS; i++)
		subject_need(!pthread_create(&threads[i], NULL, be_another, (void *)i), "a thread");
	pthread_barrier_wait(&changed);
	subject_ready();
	pthread_barrier_wait(&gone);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	subject_check(getuid() == 0, "the main thread is user %d", (int)getuid());
	return subject_end();
}
