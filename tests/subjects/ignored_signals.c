/*
 * Signals that the program ignores, and that are pending all the same, because they were blocked when they came: of
 * the process, of its main thread, and of another thread.
 */
#include "subject.h"

#include <pthread.h>
#include <signal.h>

enum { TO_PROCESS = 40, TO_MAIN, TO_THREAD };

static pthread_barrier_t began;
static sigset_t pending;

static void *wait_and_look(void *unused)
{
	pthread_barrier_wait(&began);
	while (subject_running())
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	sigpending(&pending);
	return unused;
}

int main(void)
{
	pthread_t thread;
	sigset_t set;

	sigemptyset(&set);
	for (int signal_number = TO_PROCESS; signal_number <= TO_THREAD; signal_number++) {
		sigaddset(&set, signal_number);
		signal(signal_number, SIG_IGN);
	}
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_barrier_init(&began, NULL, 2);
	subject_need(!pthread_create(&thread, NULL, wait_and_look, NULL), "pthread_create");
	pthread_barrier_wait(&began);
	kill(getpid(), TO_PROCESS);
	pthread_kill(pthread_self(), TO_MAIN);
	pthread_kill(thread, TO_THREAD);

	subject_ready();

	pthread_join(thread, NULL);
	subject_check(sigismember(&pending, TO_THREAD), "that of the thread is lost");
	sigpending(&pending);
	subject_check(sigismember(&pending, TO_MAIN), "that of the main thread is lost");
	subject_check(sigismember(&pending, TO_PROCESS), "that of the process is lost");
	return subject_end();
}
