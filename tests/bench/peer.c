/*
 * What sealpoint is measured against, the least that anyone has to do with the same bytes:
 *
 *	peer write SIZE CONTENTS PAGES FILE	writes them to a file with write(2), and fsync(2)
 *	peer copy SIZE CONTENTS PAGES		fills fresh memory by UFFDIO_COPY
 *	peer populate SIZE CONTENTS PAGES	fills fresh memory by MADV_POPULATE_WRITE and memcpy
 *
 * Prints nanoseconds. The bytes, zero pages among them, come from a buffer of at most 256 MiB, used
 * again and again, so that a peer for 4 GiB does not need 8; it is larger than any cache, so they
 * come from memory.
 */
#include "contents.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_MAX (256UL << 20)
#define WRITE_SIZE (1UL << 20)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct source {
	uint8_t *bytes;
	size_t size;
};

static struct source make_source(const struct memory *memory)
{
	struct source source = {.size = memory->size};

	if (source.size > BUFFER_MAX)
		source.size = BUFFER_MAX;
	source.bytes =
	        mmap(NULL, source.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (source.bytes == MAP_FAILED)
		err(1, "mmap");
	for (size_t page = 0; page < source.size / PAGE; page++)
		if (has_data(memory, page))
			fill_page(memory, source.bytes + page * PAGE, page);
		else
			memset(source.bytes + page * PAGE, 0, PAGE);
	return source;
}

static void write_all(const struct memory *memory, const struct source *source, const char *path)
{
	size_t left = memory->size, offset = 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		err(1, "%s", path);
	while (left > 0) {
		size_t chunk = source->size - offset;
		ssize_t written;

		if (chunk > left)
			chunk = left;
		if (chunk > WRITE_SIZE)
			chunk = WRITE_SIZE;
		written = write(fd, source->bytes + offset, chunk);
		if (written <= 0)
			err(1, "write %s", path);
		left -= (size_t)written;
		offset = (offset + (size_t)written) % source->size;
	}
	if (fsync(fd) != 0)
		err(1, "fsync %s", path);
	close(fd);
}

static int open_userfaultfd(uint8_t *start, size_t size)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register registration = {
	        .range = {(uintptr_t)start, size},
	        .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 ||
	    ioctl(fd, UFFDIO_REGISTER, &registration) != 0)
		err(1, "userfaultfd");
	return fd;
}

static void fill_by_copy(const struct memory *memory, const struct source *source, uint8_t *start)
{
	int fd = open_userfaultfd(start, memory->size);

	for (size_t at = 0; at < memory->size; at += source->size) {
		size_t left = memory->size - at;
		struct uffdio_copy copy = {
		        .dst = (uintptr_t)start + at,
		        .src = (uintptr_t)source->bytes,
		        .len = left < source->size ? left : source->size,
		};

		if (ioctl(fd, UFFDIO_COPY, &copy) != 0)
			err(1, "UFFDIO_COPY");
	}
	close(fd);
}

static void fill_by_populating(const struct memory *memory, const struct source *source,
                               uint8_t *start)
{
	if (madvise(start, memory->size, MADV_POPULATE_WRITE) != 0)
		err(1, "MADV_POPULATE_WRITE");
	for (size_t at = 0; at < memory->size; at += source->size) {
		size_t left = memory->size - at;

		memcpy(start + at, source->bytes, left < source->size ? left : source->size);
	}
}

int main(int argc, char **argv)
{
	struct memory memory;
	struct source source;
	uint64_t begin;
	uint8_t *start;

	if (argc < 5)
		errx(2, "usage: peer write|copy|populate SIZE CONTENTS PAGES [FILE]");
	memory = parse_memory(argv + 2);
	source = make_source(&memory);
	start = reserve_memory(&memory);
	begin = now_ns();
	if (strcmp(argv[1], "copy") == 0)
		fill_by_copy(&memory, &source, start);
	else if (strcmp(argv[1], "populate") == 0)
		fill_by_populating(&memory, &source, start);
	else if (argc == 6)
		write_all(&memory, &source, argv[5]);
	printf("%lu\n", now_ns() - begin);
	return 0;
}
