/*
 * What the kernel and the C library keep of each thread: its tid, a mutex that it holds, its robust
 * list, the word that is cleared when it ends, its rseq area, and thread-local variables; and a
 * hundred of them.
 */
#include "subject.h"

#include <pthread.h>
#include <sys/rseq.h>
#include <sys/syscall.h>

#define THREADS 100

static pthread_mutex_t held[THREADS];
static pthread_barrier_t prepared;
static _Thread_local int local;

static void check_rseq(void)
{
	const struct rseq *area = (void *)((uintptr_t)__builtin_thread_pointer() + __rseq_offset);

	if (__rseq_size == 0)
		return;
	/* The kernel writes the processor's number on every return to user mode. */
	sched_yield();
	subject_check((int)area->cpu_id >= 0 && area->cpu_id < 4096, "rseq: processor %d",
	              (int)area->cpu_id);
	subject_check(syscall(SYS_rseq, area, sizeof(*area), 0, RSEQ_SIG) == -1 && errno != ENOSYS,
	              "the rseq area is not registered any more");
}

static void *thread(void *index)
{
	uintptr_t number = (uintptr_t)index;
	pid_t tid = gettid();
	void *robust[2];
	size_t size[2];

	local = (int)number;
	pthread_mutex_lock(&held[number]);
	syscall(SYS_get_robust_list, 0, &robust[0], &size[0]);
	pthread_barrier_wait(&prepared);
	while (subject_running())
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	subject_check(gettid() == tid, "thread %d has tid %d", tid, gettid());
	subject_check(local == (int)number, "thread %lu has another's variable", number);
	syscall(SYS_get_robust_list, 0, &robust[1], &size[1]);
	subject_check(robust[0] == robust[1] && size[0] == size[1], "another robust list");
	check_rseq();
	/* Every second thread leaves its mutex to the robust list. */
	if (number % 2)
		pthread_mutex_unlock(&held[number]);
	return index;
}

int main(void)
{
	pthread_mutexattr_t robust;
	pthread_t threads[THREADS];
	void *result;

	pthread_mutexattr_init(&robust);
	pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
	pthread_barrier_init(&prepared, NULL, THREADS + 1);
	for (uintptr_t i = 0; i < THREADS; i++) {
		pthread_mutex_init(&held[i], &robust);
		subject_need(pthread_create(&threads[i], NULL, thread, (void *)i) == 0,
		             "pthread_create");
	}
	pthread_barrier_wait(&prepared);

	subject_ready();

	for (uintptr_t i = 0; i < THREADS; i++) {
		/* Returns when the kernel has cleared the thread's word. */
		subject_check(pthread_join(threads[i], &result) == 0 && result == (void *)i,
		              "thread %lu ended with another result", i);
		subject_check(pthread_mutex_lock(&held[i]) == (i % 2 ? 0 : EOWNERDEAD),
		              "the mutex of thread %lu is not as its end left it", i);
	}
	return subject_end();
}
