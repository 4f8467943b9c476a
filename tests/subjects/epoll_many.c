/*
 * An interest list of 3,000 items, each of which reports its own data: more than one remote batch.
 */
#include "subject.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#define ITEMS 3000

int main(void)
{
	static int fds[ITEMS];
	const uint64_t one = 1;
	int set = epoll_create1(0);
	struct rlimit limit;

	subject_need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
	if (limit.rlim_max < ITEMS + 16)
		subject_skip("only %lu descriptors may be open", (unsigned long)limit.rlim_max);
	limit.rlim_cur = limit.rlim_max;
	subject_need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
	for (int i = 0; i < ITEMS; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)i * 3};

		fds[i] = eventfd(0, EFD_NONBLOCK);
		subject_need(fds[i] >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) == 0,
		             "item %d", i);
	}
	subject_ready();
	for (int i = 0; i < ITEMS; i += 7) {
		struct epoll_event event = {0};
		uint64_t count;

		subject_check(write(fds[i], &one, sizeof(one)) == sizeof(one), "write to %d", i);
		subject_check(epoll_wait(set, &event, 1, 10000) == 1, "item %d is not watched", i);
		subject_check(event.data.u64 == (uint64_t)i * 3, "item %d has data %llu", i,
		              (unsigned long long)event.data.u64);
		subject_check(read(fds[i], &count, sizeof(count)) == sizeof(count), "read %d", i);
	}
	return subject_end();
}
