/*
 * Files that an epoll set watches by numbers which they do not have any more: the number is closed,
 * or another file's, or another file's that is watched, too; the file lives on through a duplicate,
 * or in a child only.
 */
#include "subject.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int make_event(void)
{
	int fd = eventfd(0, EFD_NONBLOCK);

	subject_need(fd >= 0, "eventfd");
	return fd;
}

static void add(int set, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};

	subject_need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

/* Adds the file by the number of a duplicate that is closed at once. Returns that number. */
static int add_by_lost_number(int set, int fd, uint32_t events, uint64_t data)
{
	int number = fcntl(fd, F_DUPFD, 100);

	add(set, number, events, data);
	subject_need(close(number) == 0, "close");
	return number;
}

static void raise_event(int fd)
{
	const uint64_t one = 1;

	subject_check(write(fd, &one, sizeof(one)) == sizeof(one), "write: %s", strerror(errno));
}

static void lower_event(int fd)
{
	uint64_t count;

	subject_check(read(fd, &count, sizeof(count)) > 0, "read: %s", strerror(errno));
}

/* The data of the only event that is there, 0 if there is none. */
static uint64_t event_of(int set)
{
	struct epoll_event events[8] = {0};
	int count = epoll_wait(set, events, 8, 0);

	subject_check(count <= 1, "%d events at once", count);
	return events[0].data.u64;
}

static void expect_event(int set, int fd, uint64_t data, const char *what)
{
	uint64_t found;

	raise_event(fd);
	found = event_of(set);
	subject_check(found == data, "%s: data %llu, not %llu", what, (unsigned long long)found,
	              (unsigned long long)data);
	lower_event(fd);
}

int main(void)
{
	int closed = make_event(), reused = make_event(), both = make_event();
	int fired = make_event(), given_away = make_event();
	int set = epoll_create1(0), first, second, number, of_child;
	pid_t child;
	char byte;

	number = add_by_lost_number(set, reused, EPOLLIN, 2);
	first = fcntl(make_event(), F_DUPFD_CLOEXEC, number);
	subject_need(first == number, "the number is not used again");
	number = add_by_lost_number(set, both, EPOLLIN, 3);
	second = fcntl(make_event(), F_DUPFD, number);
	add(set, second, EPOLLIN, 4);
	add_by_lost_number(set, fired, EPOLLIN | EPOLLONESHOT, 5);
	raise_event(fired);
	subject_need(event_of(set) == 5, "the one-shot item does not fire");
	add_by_lost_number(set, closed, EPOLLIN, 1);
	add(set, given_away, EPOLLIN, 6);
	of_child = given_away;
	child = fork();
	if (child == 0) {
		/* With the parent it shares the position in the file. */
		while (pread(STDIN_FILENO, &byte, 1, 0) == 0)
			usleep(5000);
		raise_event(of_child);
		for (;;)
			pause();
	}
	subject_need(child > 0 && close(given_away) == 0, "fork");

	subject_ready();

	struct epoll_event event = {0};

	subject_check(epoll_wait(set, &event, 1, 10000) == 1 && event.data.u64 == 6,
	              "the file that only the child has is not watched");
	kill(child, SIGKILL);
	while (event_of(set))
		;
	subject_check(event_of(set) == 0, "the fired one-shot item");
	expect_event(set, closed, 1, "a closed number");
	expect_event(set, reused, 2, "a number that another file has");
	expect_event(set, both, 3, "a number by which two are watched, the lost one");
	expect_event(set, second, 4, "a number by which two are watched");
	raise_event(first);
	subject_check(event_of(set) == 0, "a file that is not watched");
	subject_check(fcntl(first, F_GETFD) == FD_CLOEXEC && fcntl(second, F_GETFD) == 0,
	              "close-on-exec flags");
	return subject_end();
}
