/*
 * Processes that write their own memory all the time, each page a number that follows from how often it was
 * written: a page that is not as it was at the moment of a dump is found in the next round. SIGUSR1 lets
 * the first process have one more child, SIGUSR2 end the oldest, SIGHUP replace it by one with its pid.
 *
 * subject: ignore=resident
 */
#include "mapping.h"

#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FIRST = 2, MOST = 16, PAGES = 1024 };

static atomic_bool *leave; /* shared by all */
static pid_t children[MOST];
static int count;

/* Page i of a process was written last in the round before, or in this one. */
static void write_all(uint8_t *memory, uint64_t round)
{
	for (uint64_t i = 0; i < PAGES; i++) {
		volatile uint64_t *page = (uint64_t *)(memory + i * PAGE);

		subject_check(*page == round - 1, "page %lu is of round %lu, and not of %lu", i,
		              *page, round - 1);
		*page = round;
	}
}

__attribute__((noreturn)) static void work(void)
{
	uint8_t *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
	                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t round = 0;

	subject_need(memory != MAP_FAILED, "mmap");
	while (!*leave && atomic_load(&subject_failures) == 0) {
		write_all(memory, ++round);
		usleep(500);
	}
	/* Whatever was brought back is looked at once. */
	write_all(memory, ++round);
	_exit(atomic_load(&subject_failures) != 0);
}

/* With this pid, or any if that is 0. */
static void bear(pid_t wanted)
{
	struct clone_args args = {
	        .exit_signal = SIGCHLD,
	        .set_tid = wanted ? (uintptr_t)&wanted : 0,
	        .set_tid_size = wanted ? 1 : 0,
	};
	pid_t pid;

	do
		pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	while (pid < 0 && errno == EEXIST); /* somebody else has it just now */
	subject_need(pid >= 0, "clone3");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work();
	}
	children[count++] = pid;
}

static pid_t end_oldest(void)
{
	pid_t oldest = children[0];

	kill(oldest, SIGKILL);
	waitpid(oldest, NULL, 0);
	memmove(children, children + 1, (size_t)--count * sizeof(*children));
	return oldest;
}

/* Until there is something to read of the first descriptor. */
static void attend(int signals)
{
	struct pollfd ready = {.fd = signals, .events = POLLIN};
	struct signalfd_siginfo info;
	char byte;

	while (read(STDIN_FILENO, &byte, 1) == 0) {
		if (poll(&ready, 1, 5) != 1 || read(signals, &info, sizeof(info)) != sizeof(info))
			continue;
		if (info.ssi_signo == SIGUSR1 && count < MOST)
			bear(0);
		else if (info.ssi_signo == SIGUSR2 && count > 0)
			end_oldest();
		else if (info.ssi_signo == SIGHUP && count > 0)
			bear(end_oldest());
	}
}

int main(void)
{
	int status, failed = 0, signals;
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGUSR2);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signals = signalfd(-1, &mask, SFD_CLOEXEC);
	leave = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	subject_need(signals >= 0 && leave != MAP_FAILED, "signals, memory");
	for (int i = 0; i < FIRST; i++)
		bear(0);
	subject_need(write(STDOUT_FILENO, "READY\n", 6) == 6, "write");
	attend(signals);
	*leave = true;
	for (int i = 0; i < count; i++) {
		waitpid(children[i], &status, 0);
		failed += status != 0;
	}
	subject_check(failed == 0, "%d have failed", failed);
	return subject_end();
}
