/*
 * What a process has set about itself, and each thread about itself. What /proc shows of it is
 * compared by the harness; here is the rest.
 */
#include "subject.h"

#include <linux/ioprio.h>
#include <pthread.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void write_proc(const char *path, const char *value)
{
	FILE *file = fopen(path, "we");

	subject_need(file && fputs(value, file) >= 0 && fclose(file) == 0, "%s", path);
}

static long io_priority(void)
{
	return syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
}

static pthread_barrier_t prepared;

static void *thread(void *unused)
{
	struct sched_param param = {0};
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	pthread_setname_np(pthread_self(), "a thread's name");
	subject_need(sched_setaffinity(0, sizeof(cpus), &cpus) == 0, "sched_setaffinity");
	subject_need(sched_setscheduler(0, SCHED_BATCH, &param) == 0, "sched_setscheduler");
	subject_need(setpriority(PRIO_PROCESS, 0, 7) == 0, "setpriority");
	subject_need(syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
	                     IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 6)) == 0,
	             "ioprio_set");
	prctl(PR_SET_TIMERSLACK, 123456);
	pthread_barrier_wait(&prepared);
	while (subject_running())
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	subject_check(getpriority(PRIO_PROCESS, 0) == 7, "nice %d", getpriority(PRIO_PROCESS, 0));
	subject_check(sched_getscheduler(0) == SCHED_BATCH, "policy %d", sched_getscheduler(0));
	subject_check(prctl(PR_GET_TIMERSLACK) == 123456, "timer slack %d",
	              prctl(PR_GET_TIMERSLACK));
	subject_check(io_priority() == IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 6), "I/O priority %lx",
	              io_priority());
	sched_getaffinity(0, sizeof(cpus), &cpus);
	subject_check(CPU_COUNT(&cpus) == 1 && CPU_ISSET(0, &cpus), "other processors");
	return unused;
}

int main(void)
{
	const struct rlimit files = {200, 300}, core = {0, RLIM_INFINITY},
	                    stack = {1 << 22, 1 << 23};
	struct rlimit limit;
	pthread_t other;
	int value;

	subject_need(mkdir("working directory", 0700) == 0 || errno == EEXIST, "mkdir");
	subject_need(chdir("working directory") == 0, "chdir");
	umask(0137);
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_CORE, &core);
	setrlimit(RLIMIT_STACK, &stack);
	write_proc("/proc/self/oom_score_adj", "345");
	write_proc("/proc/self/coredump_filter", "0x7f");
	prctl(PR_SET_NAME, "renamed");
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, 0);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 77777);
	personality(ADDR_NO_RANDOMIZE);
	subject_need(setpriority(PRIO_PROCESS, 0, 3) == 0, "setpriority");
	pthread_barrier_init(&prepared, NULL, 2);
	subject_need(pthread_create(&other, NULL, thread, NULL) == 0, "pthread_create");
	pthread_barrier_wait(&prepared);

	subject_ready();

	pthread_join(other, NULL);
	subject_check(prctl(PR_GET_DUMPABLE) == 0, "dumpable is %d", prctl(PR_GET_DUMPABLE));
	subject_check(prctl(PR_GET_CHILD_SUBREAPER, &value) == 0 && value == 1, "no subreaper");
	subject_check(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1, "huge pages are not disabled");
	subject_check(prctl(PR_GET_TIMERSLACK) == 77777, "timer slack %d",
	              prctl(PR_GET_TIMERSLACK));
	subject_check(personality(0xffffffff) == ADDR_NO_RANDOMIZE, "personality %x",
	              personality(0xffffffff));
	subject_check(getpriority(PRIO_PROCESS, 0) == 3, "nice %d", getpriority(PRIO_PROCESS, 0));
	getrlimit(RLIMIT_NOFILE, &limit);
	subject_check(limit.rlim_cur == 200 && limit.rlim_max == 300, "RLIMIT_NOFILE");
	getrlimit(RLIMIT_STACK, &limit);
	subject_check(limit.rlim_cur == 1 << 22 && limit.rlim_max == 1 << 23, "RLIMIT_STACK");
	subject_check(umask(0) == 0137, "umask");
	return subject_end();
}
