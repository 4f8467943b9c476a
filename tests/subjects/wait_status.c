/*
 * Children that are stopped, and others that go on again: of two their parent has not heard it yet, and hears it once
 * (WUNTRACED, WCONTINUED); of two it has. Nobody gets a signal twice.
 */
#include "subject.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum child { STOPPED, STOPPED_KNOWN, CONTINUED, CONTINUED_KNOWN, CHILDREN };

static const char *const names[] = {"stopped", "stopped and known", "continued",
                                    "continued and known"};

static struct common {
	atomic_int begun;
	atomic_int continued[CHILDREN]; /* how often it has caught SIGCONT */
} * common;

static atomic_int heard; /* SIGCHLD */
static enum child own;

static void hear(int signal)
{
	heard += signal == SIGCHLD;
}

static void catch (int signal)
{
	common->continued[own] += signal == SIGCONT;
}

static pid_t beget(enum child which)
{
	pid_t pid = fork();

	subject_need(pid >= 0, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	own = which;
	signal(SIGCONT, catch);
	common->begun++;
	for (;;)
		pause();
}

/* As its parent would see it, who does not collect it. */
static void await(pid_t pid, int options)
{
	siginfo_t info;

	subject_need(!waitid(P_PID, (id_t)pid, &info, options | WNOWAIT), "waitid");
}

static void check(enum child which, pid_t pid, bool is_new)
{
	bool stopped = which == STOPPED || which == STOPPED_KNOWN;
	int status = 0;
	pid_t got = waitpid(pid, &status, WUNTRACED | WCONTINUED | WNOHANG);

	subject_check(got == (is_new ? pid : 0), "%s: waitpid gives %d, status %#x", names[which],
	              got, status);
	if (is_new && got == pid)
		subject_check(stopped ? WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP
		                      : WIFCONTINUED(status),
		              "%s: status %#x", names[which], status);
	subject_check(waitpid(pid, &status, WUNTRACED | WCONTINUED | WNOHANG) == 0,
	              "%s is told twice, status %#x", names[which], status);
	subject_check(common->continued[which] == (stopped ? 0 : 1),
	              "%s has caught SIGCONT %d times", names[which], common->continued[which]);
}

int main(void)
{
	pid_t pids[CHILDREN];
	int before, status;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	subject_need(common != MAP_FAILED, "mmap");
	for (int i = 0; i < CHILDREN; i++)
		pids[i] = beget((enum child)i);
	while (common->begun < CHILDREN)
		usleep(1000);
	signal(SIGCHLD, hear);
	for (int i = 0; i < CHILDREN; i++) {
		kill(pids[i], SIGSTOP);
		await(pids[i], WSTOPPED);
		if (i != STOPPED)
			waitpid(pids[i], &status, WUNTRACED);
	}
	for (int i = CONTINUED; i < CHILDREN; i++) {
		kill(pids[i], SIGCONT);
		await(pids[i], WCONTINUED);
		while (!common->continued[i])
			usleep(1000);
	}
	waitpid(pids[CONTINUED_KNOWN], &status, WCONTINUED);
	while (heard < 1)
		usleep(1000);
	before = heard;
	subject_ready();
	subject_check(heard == before, "SIGCHLD came again, %d times", heard - before);
	for (int i = 0; i < CHILDREN; i++)
		check((enum child)i, pids[i], i == STOPPED || i == CONTINUED);
	signal(SIGCHLD, SIG_DFL);
	for (int i = 0; i < CHILDREN; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
	}
	return subject_end();
}
