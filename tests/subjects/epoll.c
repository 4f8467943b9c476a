/*
 * An interest list: level- and edge-triggered items, one-shot ones that have fired and that have
 * not, a nested set, an item that was removed, data of every kind.
 */
#include "subject.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static int outer, inner;

static void add(int set, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};

	subject_need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
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

/* Waits for exactly one event, and returns its data. */
static uint64_t only_event(int set, const char *when)
{
	struct epoll_event events[8] = {0};
	int count = epoll_wait(set, events, 8, 10000);

	subject_check(count == 1, "%s: %d events", when, count);
	return events[0].data.u64;
}

static void expect_nothing(int set, const char *when)
{
	struct epoll_event event = {0};

	subject_check(epoll_wait(set, &event, 1, 0) == 0, "%s: an event of %llu", when,
	              (unsigned long long)event.data.u64);
}

/* Takes the report with which an edge-triggered item may come back. */
static void settle(int set)
{
	struct epoll_event event = {0};

	while (epoll_wait(set, &event, 1, 0) > 0)
		;
}

int main(void)
{
	int level = eventfd(0, EFD_NONBLOCK), edge = eventfd(0, EFD_NONBLOCK);
	int fired = eventfd(1, EFD_NONBLOCK), armed = eventfd(0, EFD_NONBLOCK);
	int nested = eventfd(0, EFD_NONBLOCK), removed = eventfd(0, EFD_NONBLOCK);
	int pair[2];

	outer = epoll_create1(EPOLL_CLOEXEC);
	inner = epoll_create1(0);
	subject_need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	add(outer, fired, EPOLLIN | EPOLLONESHOT, 3);
	subject_need(only_event(outer, "set-up") == 3, "the one-shot item does not fire");
	add(outer, pair[0], EPOLLIN | EPOLLRDHUP, 6);
	add(outer, level, EPOLLIN, UINT64_MAX);
	add(outer, edge, EPOLLIN | EPOLLET, 2);
	add(outer, armed, EPOLLIN | EPOLLONESHOT, 4);
	add(outer, inner, EPOLLIN, 5);
	add(inner, nested, EPOLLIN, 1ULL << 63);
	add(outer, removed, EPOLLIN, 7);
	subject_need(epoll_ctl(outer, EPOLL_CTL_DEL, removed, NULL) == 0, "epoll_ctl");

	subject_ready();

	expect_nothing(outer, "nothing is ready");
	raise_event(fired);
	expect_nothing(outer, "the fired one-shot item");
	raise_event(removed);
	expect_nothing(outer, "the removed item");

	raise_event(level);
	subject_check(only_event(outer, "level") == UINT64_MAX, "data of the level-triggered item");
	subject_check(only_event(outer, "level") == UINT64_MAX, "not level-triggered any more");
	lower_event(level);

	raise_event(edge);
	subject_check(only_event(outer, "edge") == 2, "data of the edge-triggered item");
	settle(outer);
	expect_nothing(outer, "the edge-triggered item, a second time");

	raise_event(armed);
	subject_check(only_event(outer, "one-shot") == 4, "data of the armed one-shot item");
	expect_nothing(outer, "the one-shot item, a second time");

	raise_event(nested);
	subject_check(only_event(outer, "nested") == 5, "the nested set is not watched");
	subject_check(only_event(inner, "inner") == 1ULL << 63, "data of the nested item");
	lower_event(nested);

	subject_check(shutdown(pair[1], SHUT_WR) == 0, "shutdown");
	subject_check(only_event(outer, "socket") == 6, "the socket is not watched");
	return subject_end();
}
