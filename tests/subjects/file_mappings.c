/*
 * Mappings of a file with a name: private ones with some pages modified, shared ones, one that
 * starts in the middle of the file, one that goes beyond its end.
 */
#include "mapping.h"

#define FILE_PAGES 64

static int make_file(const char *name)
{
	uint8_t *contents = mapping_new(FILE_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	subject_need(fd >= 0, "open");
	mapping_fill(contents, FILE_PAGES * PAGE, 1);
	subject_need(write(fd, contents, FILE_PAGES * PAGE) == FILE_PAGES * PAGE, "write");
	munmap(contents, FILE_PAGES * PAGE);
	return fd;
}

static uint8_t *map(int fd, int prot, int flags, size_t pages, size_t first)
{
	uint8_t *start = mmap(NULL, pages * PAGE, prot, flags, fd, (off_t)(first * PAGE));

	subject_need(start != MAP_FAILED, "mmap");
	return start;
}

/* Word i of the file holds mapping_fill()'s value for seed 1 + i. */
static uint64_t seed_at(size_t page)
{
	return 1 + page * PAGE / 8;
}

int main(void)
{
	int fd = make_file("mapped");
	uint8_t *private = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, FILE_PAGES, 0);
	uint8_t *untouched = map(fd, PROT_READ, MAP_PRIVATE, 8, 8);
	uint8_t *shared = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED, 8, 16);
	uint8_t *beyond = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, 8, FILE_PAGES - 4);

	close(fd);
	for (size_t page = 0; page < FILE_PAGES; page += 4)
		mapping_fill(private + page * PAGE, PAGE, 1000 + page);
	mapping_fill(beyond, PAGE, 77);
	mapping_fill(shared + PAGE, PAGE, seed_at(17));

	subject_ready();

	for (size_t page = 0; page < FILE_PAGES; page++)
		mapping_check(private + page * PAGE, PAGE,
		              page % 4 == 0 ? 1000 + page : seed_at(page), "private mapping");
	mapping_check(untouched, 8 * PAGE, seed_at(8), "read-only mapping");
	mapping_check(shared, 8 * PAGE, seed_at(16), "shared mapping");
	mapping_check(beyond, PAGE, 77, "modified page of the mapping beyond the end");
	mapping_check(beyond + PAGE, 3 * PAGE, seed_at(FILE_PAGES - 3), "mapping beyond the end");
	subject_check(!mapping_readable(beyond + 4 * PAGE),
	              "there are pages behind the file's end");

	/* Still shared: a write through the mapping reaches the file. */
	fd = open("mapped", O_RDWR | O_CLOEXEC);
	subject_need(fd >= 0, "open");
	shared[100] ^= 0xff;
	uint8_t seen = 0;
	subject_check(pread(fd, &seen, 1, 16 * PAGE + 100) == 1 && seen == shared[100],
	              "a write to the shared mapping does not reach the file");
	shared[100] ^= 0xff;
	return subject_end();
}
