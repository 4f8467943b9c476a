/*
 * System V semaphores that a process has taken or given so that it is undone when it ends (SEM_UNDO): their
 * values are as they were, and what a child holds is given back when that ends.
 */
#include "subject.h"

#include <pthread.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { HELD, GIVEN, PLAIN, MANY, UNUSED, SEMAPHORES = 100 };

static const unsigned short before[MANY + 1] = {[HELD] = 1, [GIVEN] = 2, [PLAIN] = 3, [MANY] = 500};

static void operate(int set, int number, int value, int flags)
{
	struct sembuf operation = {(unsigned short)number, (short)value, (short)flags};

	subject_need(semop(set, &operation, 1) == 0, "semop on semaphore %d", number);
}

static void check_values(int set, int held, int given, int many, const char *when)
{
	const int expected[UNUSED + 1] = {held, given, 5, many, 0};

	for (int i = 0; i <= UNUSED; i++)
		subject_check(semctl(set, i, GETVAL) == expected[i],
		              "%s: semaphore %d is %d, not %d", when, i, semctl(set, i, GETVAL),
		              expected[i]);
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* Has another thread, and so do most programs that hold a semaphore. */
static pid_t beget(int set, const int trigger[2], int ready)
{
	pid_t child = fork();
	pthread_t thread;
	char byte;

	if (child)
		return child;
	close(trigger[1]);
	operate(set, HELD, -1, SEM_UNDO);
	operate(set, GIVEN, 7, SEM_UNDO);
	operate(set, PLAIN, 2, 0);
	operate(set, MANY, -300, SEM_UNDO);
	operate(set, MANY, 40, SEM_UNDO);
	pthread_create(&thread, NULL, wait_for_ever, NULL);
	if (write(ready, "r", 1) != 1)
		_exit(1);
	while (read(trigger[0], &byte, 1) == -1 && errno == EINTR)
		;
	_exit(0);
}

int main(void)
{
	int set = semget(IPC_PRIVATE, SEMAPHORES, 0600), other = semget(IPC_PRIVATE, 1, 0600);
	int trigger[2], ready[2], status;
	pid_t child;
	char byte;

	subject_need(set >= 0 && other >= 0 && pipe(trigger) == 0 && pipe(ready) == 0,
	             "semget, pipe");
	for (int i = 0; i <= MANY; i++)
		subject_need(semctl(set, i, SETVAL, (int)before[i]) == 0, "SETVAL");
	child = beget(set, trigger, ready[1]);
	subject_need(child > 0 && read(ready[0], &byte, 1) == 1, "a child");
	operate(other, 0, 3, SEM_UNDO);

	subject_ready();

	check_values(set, 0, 9, 240, "restored");
	subject_check(semctl(other, 0, GETVAL) == 3, "the other set's is %d",
	              semctl(other, 0, GETVAL));
	close(trigger[1]);
	subject_check(waitpid(child, &status, 0) == child && status == 0, "the child");
	check_values(set, 1, 2, 500, "the child has ended");
	return subject_end();
}
