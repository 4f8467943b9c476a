/*
 * Pipes and FIFOs: what waits in them, their size, packets, ends that are closed, further open
 * files of one pipe.
 */
#include "subject.h"

#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/stat.h>

static void put(int fd, const char *text)
{
	subject_need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

static void expect(int fd, const char *expected, const char *what)
{
	char text[256] = "";
	ssize_t size = read(fd, text, sizeof(text) - 1);

	subject_check(size == (ssize_t)strlen(expected) && !strcmp(text, expected),
	              "%s: \"%s\", not \"%s\"", what, text, expected);
}

static bool same_pipe(int one, int other)
{
	struct stat a, b;

	return !fstat(one, &a) && !fstat(other, &b) && a.st_ino == b.st_ino;
}

static short events(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	poll(&poll_fd, 1, 0);
	return poll_fd.revents;
}

/* Fills a pipe of 256 KiB with a pattern, up to the last byte. */
static size_t fill(int fd)
{
	uint32_t block[1024];
	size_t total = 0;
	ssize_t size;

	do {
		for (size_t i = 0; i < 1024; i++)
			block[i] = (uint32_t)(total / 4 + i) * 2654435761u;
		size = write(fd, block, sizeof(block));
		total += size > 0 ? (size_t)size : 0;
	} while (size > 0);
	return total;
}

static void check_pattern(int fd, size_t total)
{
	for (size_t i = 0; i < total / 4; i++) {
		uint32_t word = 0;

		if (!subject_check(read(fd, &word, 4) == 4 && word == (uint32_t)i * 2654435761u,
		                   "full pipe: word %zu is %#x", i, word))
			return;
	}
	subject_check(events(fd) == 0, "full pipe: there is more in it than there was");
}

int main(void)
{
	int plain[2], packet[2], full[2], hung[2], deaf[2], fifo[2], left[2];

	subject_need(!pipe(plain) && !pipe2(packet, O_DIRECT) && !pipe2(full, O_NONBLOCK) &&
	                     !pipe(hung) && !pipe(deaf) && !pipe2(left, O_DIRECT),
	             "pipe");
	int reopened = open("/proc/self/fd/4", O_WRONLY | O_NONBLOCK);

	subject_need(plain[1] == 4 && reopened >= 0, "a further open file of a pipe");
	put(plain[1], "one ");
	put(reopened, "two");
	put(packet[1], "first packet");
	put(packet[1], "second packet");
	subject_need(fcntl(full[1], F_SETPIPE_SZ, 262144) == 262144, "F_SETPIPE_SZ");
	size_t total = fill(full[1]);

	put(hung[1], "last words");
	close(hung[1]);
	close(deaf[0]);
	put(left[1], "left");
	put(left[1], "behind");
	close(left[1]);
	subject_need(mkfifo("fifo", 0600) == 0 || errno == EEXIST, "mkfifo");
	fifo[0] = open("fifo", O_RDONLY | O_NONBLOCK);
	fifo[1] = open("fifo", O_WRONLY);
	put(fifo[1], "in the fifo");

	subject_ready();

	put(plain[1], " three");
	expect(plain[0], "one two three", "pipe");
	subject_check(same_pipe(plain[0], reopened), "the reopened end is of another pipe");
	expect(packet[0], "first packet", "pipe of packets");
	put(packet[1], "third packet");
	expect(packet[0], "second packet", "pipe of packets");
	expect(packet[0], "third packet", "pipe of packets");
	subject_check(fcntl(full[0], F_GETPIPE_SZ) == 262144, "size of the full pipe");
	subject_check(write(full[1], "x", 1) < 0 && errno == EAGAIN, "the full pipe is not full");
	check_pattern(full[0], total);
	expect(hung[0], "last words", "pipe without a writer");
	subject_check(events(hung[0]) == POLLHUP, "pipe without a writer: %#x", events(hung[0]));
	subject_check(events(deaf[1]) & POLLERR, "pipe without a reader: %#x", events(deaf[1]));
	expect(left[0], "left", "pipe of packets without a writer");
	expect(left[0], "behind", "pipe of packets without a writer");
	expect(fifo[0], "in the fifo", "FIFO");
	put(fifo[1], "more");
	expect(fifo[0], "more", "FIFO");
	return subject_end();
}
