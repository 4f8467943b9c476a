/*
 * Seccomp filters that threads share, and one that a thread has to itself. A program may ask for
 * another filter in all its threads at once, which the kernel grants only if what they have is
 * shared, not just equal.
 */
#include "subject.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static pthread_barrier_t ready, alone, all;

static long install(uint32_t number, uint32_t error, unsigned flags)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static bool fails_with(long number, int error)
{
	errno = 0;
	return syscall(number) == -1 && errno == error;
}

static void *have_own_filter(void *unused)
{
	subject_need(install(SYS_getpgrp, 79, 0) == 0, "filter of a thread");
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&alone);
	subject_check(fails_with(SYS_getppid, 77), "a thread has lost the shared filter");
	subject_check(fails_with(SYS_getpgrp, 79), "a thread has lost its own filter");
	return NULL;
}

static void *follow(void *unused)
{
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&all);
	subject_check(fails_with(SYS_getppid, 77), "a thread has lost the shared filter");
	subject_check(!fails_with(SYS_getpgrp, 79), "a thread has the filter of another");
	subject_check(fails_with(SYS_getegid, 80), "a thread did not get the new filter");
	return NULL;
}

int main(void)
{
	pthread_t follower, special;

	pthread_barrier_init(&ready, NULL, 3);
	pthread_barrier_init(&alone, NULL, 2);
	pthread_barrier_init(&all, NULL, 2);
	subject_need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
	subject_need(install(SYS_getppid, 77, 0) == 0, "shared filter");
	pthread_create(&follower, NULL, follow, NULL);
	pthread_create(&special, NULL, have_own_filter, NULL);
	pthread_barrier_wait(&ready);
	subject_ready();
	/* The thread with a filter of its own is in the way of a new one for all, and is named. */
	subject_check(install(SYS_getegid, 80, SECCOMP_FILTER_FLAG_TSYNC) > 0,
	              "a thread with a filter of its own takes over that of others");
	pthread_barrier_wait(&alone);
	pthread_join(special, NULL);
	subject_check(install(SYS_getegid, 80, SECCOMP_FILTER_FLAG_TSYNC) == 0,
	              "the filters that the threads have are equal, but not shared");
	pthread_barrier_wait(&all);
	pthread_join(follower, NULL);
	return subject_end();
}
