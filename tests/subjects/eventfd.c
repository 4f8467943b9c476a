/* Counters: a plain one, a semaphore, a full one on which a write would block. */
#include "subject.h"

#include <stdint.h>
#include <sys/eventfd.h>

static uint64_t take(int fd)
{
	uint64_t count = 0;

	subject_check(read(fd, &count, sizeof(count)) == sizeof(count), "read: %s",
	              strerror(errno));
	return count;
}

int main(void)
{
	const uint64_t most = UINT64_MAX - 1, one = 1;
	int counter = eventfd(7, EFD_CLOEXEC);
	int semaphore = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
	int full = eventfd(0, EFD_NONBLOCK);
	int same = dup(counter);
	uint64_t count;

	subject_need(counter >= 0 && semaphore >= 0 && full >= 0 && same >= 0, "eventfd");
	subject_need(write(full, &most, sizeof(most)) == sizeof(most), "write");
	subject_ready();
	subject_check(write(same, &one, sizeof(one)) == sizeof(one), "write to the duplicate");
	count = take(counter);
	subject_check(count == 8, "the counter is %llu, not 8", (unsigned long long)count);
	subject_check(take(semaphore) == 1 && take(semaphore) == 1, "not a semaphore any more");
	subject_check(read(semaphore, &count, sizeof(count)) == -1 && errno == EAGAIN,
	              "the semaphore gives more than 2");
	subject_check(write(full, &one, sizeof(one)) == -1 && errno == EAGAIN, "not full any more");
	subject_check(take(full) == most, "the full one was not full");
	return subject_end();
}
