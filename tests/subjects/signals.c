/*
 * Signals: what a process does with each, what each thread blocks, what is pending for the process
 * and for a thread with the values that came along, and the alternate stack.
 */
#include "subject.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#define QUEUED 5

static volatile int handled, on_alternate_stack;
static char alternate_stack[64 * 1024];

static void handler(int signal, siginfo_t *info, void *context)
{
	char here;

	handled = info->si_value.sival_int;
	on_alternate_stack =
	        &here >= alternate_stack && &here < alternate_stack + sizeof(alternate_stack);
	(void)signal, (void)context;
}

static sigset_t set_of(int first, int second)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, first);
	if (second)
		sigaddset(&set, second);
	return set;
}

static void queue_to_thread(int signal, int value)
{
	siginfo_t info = {.si_signo = signal, .si_code = SI_QUEUE};

	info.si_pid = getpid();
	info.si_value.sival_int = value;
	subject_need(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, &info) == 0,
	             "rt_tgsigqueueinfo");
}

static void expect_pending(int signal, int code, int value)
{
	sigset_t set = set_of(signal, 0);
	siginfo_t info = {0};

	if (!subject_check(sigtimedwait(&set, &info, &(struct timespec){0}) == signal,
	                   "signal %d is not pending any more", signal))
		return;
	subject_check(info.si_code == code, "signal %d has code %d, not %d", signal, info.si_code,
	              code);
	if (code == SI_QUEUE)
		subject_check(info.si_value.sival_int == value, "signal %d has value %d, not %d",
		              signal, info.si_value.sival_int, value);
}

static pthread_barrier_t prepared;

/* Blocks other signals than the main thread, and has its own pending. */
static void *thread(void *unused)
{
	sigset_t blocked = set_of(SIGRTMIN + 3, SIGUSR2), seen;

	/* What is to stay pending for the process must be blocked here, too. */
	sigaddset(&blocked, SIGRTMIN);
	sigaddset(&blocked, SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
	queue_to_thread(SIGRTMIN + 3, 31);
	queue_to_thread(SIGRTMIN + 3, 32);
	pthread_barrier_wait(&prepared);
	while (subject_running())
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &seen);
	subject_check(sigismember(&seen, SIGUSR2) && !sigismember(&seen, SIGALRM),
	              "the thread blocks other signals");
	expect_pending(SIGRTMIN + 3, SI_QUEUE, 31);
	expect_pending(SIGRTMIN + 3, SI_QUEUE, 32);
	return unused;
}

static void check_action(int signal, int flags, const struct sigaction *before)
{
	struct sigaction now;

	sigaction(signal, NULL, &now);
	subject_check(now.sa_sigaction == before->sa_sigaction && (now.sa_flags & flags) == flags &&
	                      memcmp(&now.sa_mask, &before->sa_mask, 8) == 0,
	              "the action for signal %d differs", signal);
}

int main(void)
{
	stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof(alternate_stack)}, seen;
	struct sigaction on_stack = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigaction resets = {.sa_sigaction = handler,
	                           .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER};
	struct sigaction ignores = {.sa_handler = SIG_IGN};
	sigset_t blocked = set_of(SIGRTMIN, SIGUSR1), mask;
	pthread_t other;

	sigaltstack(&stack, NULL);
	on_stack.sa_mask = set_of(SIGHUP, SIGALRM);
	sigaction(SIGUSR2, &on_stack, NULL);
	sigaction(SIGVTALRM, &resets, NULL);
	sigaction(SIGPIPE, &ignores, NULL);
	pthread_barrier_init(&prepared, NULL, 2);
	subject_need(pthread_create(&other, NULL, thread, NULL) == 0, "pthread_create");
	pthread_barrier_wait(&prepared);
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
	for (int i = 0; i < QUEUED; i++)
		sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 100 + i});
	kill(getpid(), SIGUSR1);

	subject_ready();

	for (int i = 0; i < QUEUED; i++)
		expect_pending(SIGRTMIN, SI_QUEUE, 100 + i);
	subject_check(sigtimedwait(&blocked, NULL, &(struct timespec){0}) == SIGUSR1,
	              "SIGUSR1 is not pending any more");
	subject_check(sigtimedwait(&blocked, NULL, &(struct timespec){0}) == -1,
	              "more is pending than there was");
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	subject_check(sigismember(&mask, SIGRTMIN) && sigismember(&mask, SIGUSR1) &&
	                      !sigismember(&mask, SIGUSR2),
	              "other signals are blocked");
	pthread_join(other, NULL);
	check_action(SIGUSR2, SA_SIGINFO | SA_ONSTACK, &on_stack);
	check_action(SIGVTALRM, (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER), &resets);
	check_action(SIGPIPE, 0, &ignores);
	sigaltstack(NULL, &seen);
	subject_check(seen.ss_sp == stack.ss_sp && seen.ss_size == stack.ss_size && !seen.ss_flags,
	              "the alternate stack differs");
	sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 77});
	subject_check(handled == 77 && on_alternate_stack, "the handler does not run as it should");
	return subject_end();
}
