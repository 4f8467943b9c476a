/* Steps: descriptors of events, of time and of processes, and contexts of asynchronous I/O. */
#include "random.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

static void make_eventfd(void)
{
	keep(eventfd(below(1000), chance(50) ? EFD_SEMAPHORE : EFD_NONBLOCK), "eventfd");
}

static void make_signalfd(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, 1 + (int)below(64));
	keep(signalfd(-1, &set, SFD_NONBLOCK), "signalfd");
}

static void make_epoll(void)
{
	int epoll = epoll_create1(0);

	for (unsigned i = below(6); i-- > 0;) {
		struct epoll_event event = {.events = EPOLLIN, .data.u64 = draw()};

		event.events |= chance(30) ? EPOLLET : 0;
		event.events |= chance(20) ? EPOLLONESHOT : 0;
		epoll_ctl(epoll, EPOLL_CTL_ADD, any_file(), &event);
	}
	keep(epoll, "epoll");
}

static void make_timerfd(void)
{
	static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
	struct itimerspec far = {.it_value = {HOURS, 0}, .it_interval = {below(3), 0}};
	struct itimerspec past = {.it_value = {0, 1}};
	int fd = keep(timerfd_create(clocks[below(3)], TFD_CLOEXEC), "timerfd");

	timerfd_settime(fd, 0, chance(70) ? &far : &past, NULL);
	if (chance(50))
		usleep(1000);
}

/* Of itself, or of another one that may have ended. Not to be sent away: that is refused. */
static void make_pidfd(void)
{
	pid_t pid = family->pids[below(atomic_load(&family->processes))];
	struct epoll_event event = {.events = EPOLLIN};
	int fd = (int)syscall(SYS_pidfd_open, chance(30) ? getpid() : pid,
	                      chance(30) ? O_NONBLOCK : 0);

	if (fd >= 0 && chance(50))
		epoll_ctl(keep(epoll_create1(0), "epoll"), EPOLL_CTL_ADD, fd, &event);
}

/* With requests that were completed, and not collected. */
static void make_requests(void)
{
	static char buffer[4096];
	aio_context_t context = 0;
	struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uint64_t)buffer};
	struct iocb *list = &request;

	if (syscall(SYS_io_setup, 1 + below(100), &context))
		return;
	request.aio_fildes = (uint32_t)open("/proc/self/exe", O_RDONLY);
	request.aio_nbytes = below(4096);
	for (unsigned i = below(3); i-- > 0; request.aio_data = draw())
		syscall(SYS_io_submit, context, 1, &list);
	close((int)request.aio_fildes);
}

const struct step event_steps[] = {
        {"eventfd", make_eventfd, 3},
        {"timerfd", make_timerfd, 4},
        {"signalfd", make_signalfd, 2},
        {"epoll", make_epoll, 4},
        {"pidfd", make_pidfd, 4},
        {"requests", make_requests, 2},
        {NULL, NULL, 0},
};
