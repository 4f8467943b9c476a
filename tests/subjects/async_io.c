/*
 * Contexts of asynchronous I/O: one that was never used, one whose ring has gone round, with events
 * that wait to be read across its end, and a large one. All still take requests.
 */
#include "subject.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <sys/syscall.h>

#define UNREAD 5U

/* struct aio_ring of the kernel. */
struct ring {
	unsigned id, slots, head, tail;
};

static int file;

static aio_context_t set_up(unsigned requests)
{
	aio_context_t context = 0;

	subject_need(!syscall(SYS_io_setup, requests, &context), "io_setup");
	return context;
}

static void submit(aio_context_t context, uint64_t data, size_t size)
{
	static char buffer[64];
	struct iocb request = {
	        .aio_data = data,
	        .aio_lio_opcode = IOCB_CMD_PREAD,
	        .aio_fildes = (uint32_t)file,
	        .aio_buf = (uint64_t)buffer,
	        .aio_nbytes = size,
	};
	struct iocb *requests[] = {&request};

	subject_check(syscall(SYS_io_submit, context, 1, requests) == 1, "io_submit: %s",
	              strerror(errno));
}

static void expect_event(aio_context_t context, uint64_t data, size_t size, const char *what)
{
	struct timespec soon = {.tv_sec = 10};
	struct io_event event = {0};

	subject_check(syscall(SYS_io_getevents, context, 1, 1, &event, &soon) == 1, "%s: no event",
	              what);
	subject_check(event.data == data && event.res == (int64_t)size,
	              "%s: event %llu of %lld bytes, not %llu of %zu", what,
	              (unsigned long long)event.data, (long long)event.res,
	              (unsigned long long)data, size);
}

static void expect_no_event(aio_context_t context, const char *what)
{
	struct timespec at_once = {0};
	struct io_event event;

	subject_check(syscall(SYS_io_getevents, context, 0, 1, &event, &at_once) == 0,
	              "%s: there is an event", what);
}

int main(void)
{
	aio_context_t unused = set_up(1), round = set_up(10), large = set_up(1000);
	const struct ring *ring = (const struct ring *)round;

	file = open("file", O_CREAT | O_TRUNC | O_RDWR, 0600);
	subject_need(write(file, "0123456789", 10) == 10, "write");
	for (unsigned i = 0; i < 2 * ring->slots - UNREAD / 2; i++) {
		submit(round, i, 1);
		expect_event(round, i, 1, "set-up");
	}
	for (unsigned i = 0; i < UNREAD; i++)
		submit(round, 100 + i, 1 + i);
	subject_need(ring->tail < ring->head, "the events do not go across the end");
	submit(large, 1, 1);

	subject_ready();

	expect_no_event(unused, "unused context");
	submit(unused, 1, 2);
	expect_event(unused, 1, 2, "unused context");
	for (unsigned i = 0; i < UNREAD; i++)
		expect_event(round, 100 + i, 1 + i, "context with events");
	expect_no_event(round, "context with events");
	for (unsigned i = 0; i < 3 * ring->slots; i++) {
		submit(round, i, 3);
		expect_event(round, i, 3, "context with events, used again");
	}
	expect_event(large, 1, 1, "large context");
	subject_check(!syscall(SYS_io_destroy, round) && !syscall(SYS_io_destroy, large),
	              "io_destroy: %s", strerror(errno));
	return subject_end();
}
