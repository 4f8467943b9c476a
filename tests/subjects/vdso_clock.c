/*
 * Clocks and the number of the processor as the C library reads them, from the vDSO. Each thread reads all the time,
 * between two system calls that ask the kernel the same: the answer must lie between theirs, and never before the
 * previous one. A timer's signals do the same in between. One thread leaves half of its time to a sleep.
 *
 * On another machine, or after it was started anew, clocks may stand elsewhere: then each may be seen to jump once.
 *
 * subject: ignore=status (a signal of the timer may be pending or not)
 */
#include "subject.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define THREADS 3
#define BOOT_ID_SIZE 36

static const clockid_t clocks[] = {
        CLOCK_REALTIME,        CLOCK_MONOTONIC,        CLOCK_BOOTTIME,      CLOCK_TAI,
        CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC_RAW,
};
#define CLOCKS (sizeof(clocks) / sizeof(clocks[0]))

/* One way of asking for the time, and how often its answers were out of order. */
struct source {
	const char *name;
	clockid_t clock;
	int64_t (*read)(clockid_t clock);
	int64_t resolution_ns; /* of its answers */
	int64_t last;
	unsigned readings, disorders;
};

static int64_t nanoseconds(int64_t seconds, int64_t rest)
{
	return seconds * 1000000000 + rest;
}

static int64_t ask_kernel(clockid_t clock)
{
	struct timespec now;

	syscall(SYS_clock_gettime, clock, &now);
	return nanoseconds(now.tv_sec, now.tv_nsec);
}

static int64_t by_clock_gettime(clockid_t clock)
{
	struct timespec now = {0};

	return clock_gettime(clock, &now) == 0 ? nanoseconds(now.tv_sec, now.tv_nsec) : -1;
}

static int64_t by_gettimeofday(clockid_t clock)
{
	struct timeval now = {0};

	return gettimeofday(&now, NULL) == 0 ? nanoseconds(now.tv_sec, now.tv_usec * 1000) : -1;
}

static int64_t by_time(clockid_t clock)
{
	return nanoseconds(time(NULL), 0);
}

static void read_once(struct source *source)
{
	int64_t before = ask_kernel(source->clock);
	int64_t seen = source->read(source->clock);
	int64_t after = ask_kernel(source->clock);

	source->readings++;
	if (seen < before / source->resolution_ns * source->resolution_ns || seen > after ||
	    seen < source->last)
		source->disorders++;
	source->last = seen;
}

#define WAYS (CLOCKS + 2)

static void list_ways(struct source ways[WAYS])
{
	for (size_t i = 0; i < CLOCKS; i++)
		ways[i] = (struct source){"clock_gettime", clocks[i], by_clock_gettime, 1, 0, 0, 0};
	ways[CLOCKS] =
	        (struct source){"gettimeofday", CLOCK_REALTIME, by_gettimeofday, 1000, 0, 0, 0};
	/* what time(2) says is that of the last tick */
	ways[CLOCKS + 1] =
	        (struct source){"time", CLOCK_REALTIME_COARSE, by_time, 1000000000, 0, 0, 0};
}

static char boot_id[BOOT_ID_SIZE];

static void read_boot_id(char *id)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	subject_need(fd >= 0 && read(fd, id, BOOT_ID_SIZE) == BOOT_ID_SIZE, "boot_id");
	close(fd);
}

static void check_ways(const struct source ways[WAYS], const char *where)
{
	char now[BOOT_ID_SIZE];
	unsigned allowed;

	read_boot_id(now);
	allowed = memcmp(now, boot_id, sizeof(now)) ? 1 : 0;
	for (size_t i = 0; i < WAYS; i++)
		subject_check(ways[i].disorders <= allowed,
		              "%s: %s of clock %d out of order %u times of %u", where, ways[i].name,
		              ways[i].clock, ways[i].disorders, ways[i].readings);
}

static void check_processor(unsigned expected)
{
	unsigned processor = ~0U, node = ~0U;

	if (getcpu(&processor, &node) || processor != expected)
		subject_check(false, "getcpu says %u, the thread may run on %u only", processor,
		              expected);
}

/* The first processor that this thread may use; it is made the only one. */
static unsigned stay_on_one(void)
{
	cpu_set_t allowed, one;
	unsigned processor = 0;

	subject_need(sched_getaffinity(0, sizeof(allowed), &allowed) == 0, "sched_getaffinity");
	while (!CPU_ISSET(processor, &allowed))
		processor++;
	CPU_ZERO(&one);
	CPU_SET(processor, &one);
	subject_need(sched_setaffinity(0, sizeof(one), &one) == 0, "sched_setaffinity");
	return processor;
}

static void *read_clocks(void *argument)
{
	struct source ways[WAYS];
	unsigned processor = stay_on_one();
	bool sleeps = argument == NULL;

	list_ways(ways);
	while (subject_running() && !atomic_load(&subject_failures)) {
		for (size_t i = 0; i < WAYS; i++)
			read_once(&ways[i]);
		check_processor(processor);
		if (sleeps)
			nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
	}
	for (size_t i = 0; i < WAYS; i++)
		read_once(&ways[i]);
	check_ways(ways, sleeps ? "in a thread that sleeps" : "in a busy thread");
	return NULL;
}

static struct source ways_of_handler[WAYS];

/* The signal is not blocked meanwhile, so that it makes no difference in what /proc shows. */
static void on_alarm(int signal)
{
	static volatile sig_atomic_t inside;

	if (inside)
		return;
	inside = 1;
	for (size_t i = 0; i < WAYS; i++)
		read_once(&ways_of_handler[i]);
	inside = 0;
}

/* The handler has one set of ways, so one thread runs it. */
static void mask_alarms(int how)
{
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	subject_need(pthread_sigmask(how, &alarm, NULL) == 0, "pthread_sigmask");
}

static void start_alarms(void)
{
	const struct itimerval often = {{0, 50000}, {0, 50000}};
	const struct sigaction action = {.sa_handler = on_alarm,
	                                 .sa_flags = SA_RESTART | SA_NODEFER};

	list_ways(ways_of_handler);
	subject_need(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
	subject_need(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
}

/* Signals come as before, and what their handler sees is in order. */
static void check_alarms(void)
{
	const struct itimerval never = {0};
	unsigned before = __atomic_load_n(&ways_of_handler[0].readings, __ATOMIC_RELAXED);

	for (int i = 0; i < 2000; i++) {
		if (__atomic_load_n(&ways_of_handler[0].readings, __ATOMIC_RELAXED) > before + 3)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	subject_check(ways_of_handler[0].readings > before, "no signal of the timer came");
	check_ways(ways_of_handler, "in a signal handler");
}

int main(void)
{
	pthread_t threads[THREADS];

	read_boot_id(boot_id);
	mask_alarms(SIG_BLOCK);
	for (intptr_t i = 0; i < THREADS; i++)
		subject_need(pthread_create(&threads[i], NULL, read_clocks, (void *)i) == 0,
		             "pthread_create");
	mask_alarms(SIG_UNBLOCK);
	start_alarms();

	subject_ready();

	check_alarms();
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return subject_end();
}
