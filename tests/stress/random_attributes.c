/* Steps: what is of a process itself. Signals, names, limits, scheduling, attributes, timers. */
#include "random.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

/* --- signals, and what is of a process --- */

static void make_pending(void)
{
	int signal = 35 + (int)below(29);
	unsigned count = 1 + below(4);
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signal);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (unsigned i = 0; i < count; i++)
		sigqueue(getpid(), signal, (union sigval){.sival_int = (int)below(1000)});
	if (chance(50))
		kill(getpid(), SIGUSR2);
	if (chance(50))
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
}

static void hear(int signal)
{
}

static void set_actions(void)
{
	struct sigaction action = {.sa_handler = chance(50) ? hear : SIG_IGN};

	action.sa_flags = chance(50) ? SA_RESTART : SA_NODEFER | SA_SIGINFO;
	sigaddset(&action.sa_mask, 1 + (int)below(30));
	sigaction(chance(50) ? SIGUSR1 : 40 + (int)below(20), &action, NULL);
	if (chance(20))
		signal(SIGCHLD, hear);
}

static void set_limits(void)
{
	static const int which[] = {RLIMIT_CORE,     RLIMIT_FSIZE,  RLIMIT_CPU,
	                            RLIMIT_MSGQUEUE, RLIMIT_RTTIME, RLIMIT_STACK};
	rlim_t soft = 1000000 + below(1000000);
	struct rlimit limit = {soft, soft + below(1000000)};

	setrlimit(which[below(6)], &limit);
}

static void set_names(void)
{
	char name[16];

	snprintf(name, sizeof(name), chance(20) ? "(a) b\n%u" : "member %u", below(100));
	prctl(PR_SET_NAME, name);
	umask((mode_t)below(512));
}

static void set_scheduling(void)
{
	struct sched_param parameter = {0};
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(below(2), &set);
	switch (below(4)) {
	case 0:
		setpriority(PRIO_PROCESS, 0, (int)below(20));
		break;
	case 1:
		sched_setscheduler(0, chance(50) ? SCHED_BATCH : SCHED_IDLE, &parameter);
		break;
	case 2:
		sched_setaffinity(0, sizeof(set), &set);
		break;
	default:
		prctl(PR_SET_TIMERSLACK, 1000UL + below(100000));
	}
}

static void set_attributes(void)
{
	switch (below(6)) {
	case 0:
		prctl(PR_SET_PDEATHSIG, SIGURG);
		break;
	case 1:
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		break;
	case 2:
		prctl(PR_SET_KEEPCAPS, 1);
		break;
	case 3:
		prctl(PR_CAPBSET_DROP, below(30));
		break;
	case 4:
		prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
		break;
	default:
		prctl(PR_SET_IO_FLUSHER, 0, 0, 0, 0);
	}
}
/* --- timers --- */

static void make_timer(void)
{
	static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
	struct itimerspec far = {.it_value = {HOURS, 0}, .it_interval = {below(3), 0}};
	struct itimerval long_timer = {.it_value = {HOURS, 0}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	timer_t timer;

	event.sigev_notify = chance(30) ? SIGEV_NONE : SIGEV_SIGNAL;
	if (chance(50) && !timer_create(clocks[below(3)], &event, &timer))
		timer_settime(timer, 0, &far, NULL);
	else
		setitimer((int)below(3), &long_timer, NULL);
}

const struct step attribute_steps[] = {
        {"pending", make_pending, 3},      {"actions", set_actions, 3},
        {"limits", set_limits, 3},         {"names", set_names, 3},
        {"scheduling", set_scheduling, 3}, {"attributes", set_attributes, 3},
        {"timer", make_timer, 4},          {NULL, NULL, 0},
};
