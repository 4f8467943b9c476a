/*
 * Standing in for a restored program: whoever started us sees a job that behaves as the program
 * does.
 *
 * All signals that are passed on are blocked, and taken one after the other, together with SIGCHLD:
 * no handler runs at a bad moment and nothing is lost between two waits. What the terminal sends
 * (Ctrl-C, Ctrl-Z, a new window size) goes to every process of its foreground group; it is passed
 * on only to a program in a group of its own, because one in ours has had it already. A program
 * that leads its own group in our session gets the terminal when it is ours to give.
 */
#include "cli/foreground.h"

#include "base/interrupt.h"
#include "cli/cli.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed_on[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                                SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};

struct job {
	pid_t pid;
	bool same_group;    /* as ours: the terminal reaches it without us */
	bool owns_terminal; /* we have given it the terminal */
	bool expect_stop;   /* its next stop is not news */
};

static bool is_ignored(int signal_number)
{
	struct sigaction action;

	return sigaction(signal_number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/*
 * What we were started to ignore (nohup, a job in the background) stays ignored, for the program
 * too.
 */
static void block_signals(sigset_t *waited_for)
{
	sigset_t blocked;

	sigemptyset(waited_for);
	sigaddset(waited_for, SIGCHLD);
	for (size_t i = 0; i < SP_COUNT_OF(passed_on); i++)
		if (!is_ignored(passed_on[i]))
			sigaddset(waited_for, passed_on[i]);
	blocked = *waited_for;
	sigaddset(&blocked, SIGTTOU); /* taking the terminal back from the background */
	sigprocmask(SIG_BLOCK, &blocked, NULL);
}

static void give_terminal(struct job *job)
{
	if (job->same_group || getsid(job->pid) != getsid(0) || getpgid(job->pid) != job->pid ||
	    tcgetpgrp(STDIN_FILENO) != getpgrp())
		return;
	job->owns_terminal = tcsetpgrp(STDIN_FILENO, job->pid) == 0;
}

/* What a program had drawn is on another screen, of perhaps another size: it draws it once more. */
static void tell_of_terminal(const struct job *job)
{
	if (getsid(job->pid) == getsid(0) && tcgetpgrp(STDIN_FILENO) == getpgid(job->pid))
		kill(job->pid, SIGWINCH);
}

static void take_terminal(struct job *job)
{
	if (job->owns_terminal)
		tcsetpgrp(STDIN_FILENO, getpgrp());
	job->owns_terminal = false;
}

/* It reached for the terminal before we had given it. */
static bool stopped_too_early(const struct job *job, int stop_signal)
{
	return job->owns_terminal && (stop_signal == SIGTTIN || stop_signal == SIGTTOU);
}

/* The program has stopped: so do we, until somebody continues us; then it goes on as well. */
static void stop_with(struct job *job, int stop_signal)
{
	if (job->expect_stop) {
		job->expect_stop = false;
		return;
	}
	if (!stopped_too_early(job, stop_signal)) {
		take_terminal(job);
		raise(SIGSTOP);
		give_terminal(job);
	}
	kill(job->pid, SIGCONT);
}

static void end_by_signal(int signal_number)
{
	struct rlimit no_core = {0, 0};
	sigset_t set;

	setrlimit(RLIMIT_CORE, &no_core);
	signal(signal_number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, signal_number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(signal_number);
}

/*
 * The kernel does not let SIGTSTP stop a process whose group has no parent in its session, because
 * nobody would continue it. A program in a session of its own is such a one, but we are there to do
 * it.
 */
static int equivalent_for(const struct job *job, int signal_number)
{
	bool own_session = getsid(job->pid) != getsid(0);

	return signal_number == SIGTSTP && own_session ? SIGSTOP : signal_number;
}

static void pass_on(const struct job *job, const siginfo_t *info)
{
	bool from_terminal = info->si_code == SI_KERNEL;

	if (from_terminal && job->same_group)
		return;
	kill(job->pid, equivalent_for(job, info->si_signo));
}

bool sp_stand_in_until_end(pid_t pid, bool starts_stopped, int *status)
{
	struct job job = {
	        .pid = pid,
	        .same_group = getpgid(pid) == getpgrp(),
	        .expect_stop = starts_stopped,
	};
	sigset_t waited_for;
	siginfo_t info;
	int late_signal;

	block_signals(&waited_for);
	give_terminal(&job);
	tell_of_terminal(&job);
	late_signal = sp_interrupt_unwatch();
	if (late_signal)
		raise(late_signal); /* it is taken with the others, and passed on */
	for (;;) {
		pid_t changed = waitpid(pid, status, WUNTRACED | WNOHANG);

		if (changed < 0)
			return false;
		if (changed == pid && !WIFSTOPPED(*status))
			break;
		if (changed == pid)
			stop_with(&job, WSTOPSIG(*status));
		else if (sigwaitinfo(&waited_for, &info) > 0 && info.si_signo != SIGCHLD)
			pass_on(&job, &info);
	}
	take_terminal(&job);
	return true;
}

int sp_stand_in_for(pid_t pid, bool starts_stopped)
{
	int status;

	if (!sp_stand_in_until_end(pid, starts_stopped, &status))
		return SP_EXIT_FAILED;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	end_by_signal(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}
