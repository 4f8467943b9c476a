/* See random.h. */
#include "random.h"

#include <fcntl.h>

enum { FILES_MAX = 128 };

struct family *family;

static uint64_t random_state;
static int files[FILES_MAX];
static unsigned file_count;

void begin_chance(uint64_t seed)
{
	random_state = seed;
}

uint64_t draw(void)
{
	uint64_t x = random_state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

unsigned below(unsigned n)
{
	return (unsigned)(draw() % n);
}

bool chance(unsigned percent)
{
	return below(100) < percent;
}

unsigned new_number(void)
{
	return atomic_fetch_add(&family->names, 1);
}

const char *new_name(const char *thing)
{
	static char name[64];

	snprintf(name, sizeof(name), "%s.%u", thing, new_number());
	return name;
}

int keep(int fd, const char *what)
{
	subject_need(fd >= 0, "%s", what);
	if (file_count < FILES_MAX)
		files[file_count++] = fd;
	return fd;
}

void keep_or_close(int fd, unsigned percent_kept)
{
	if (chance(percent_kept))
		keep(fd, "keep");
	else
		close(fd);
}

/* Whoever shares the table (CLONE_FILES) may have closed it. */
int any_file(void)
{
	int fd = file_count ? files[below(file_count)] : STDOUT_FILENO;

	return fcntl(fd, F_GETFD) < 0 ? STDOUT_FILENO : fd;
}

void close_any(void)
{
	unsigned which;

	if (!file_count)
		return;
	which = below(file_count);
	close(files[which]);
	files[which] = files[--file_count];
}

void fill(int fd)
{
	char bytes[5000];

	memset(bytes, '0' + (char)below(10), sizeof(bytes));
	for (unsigned i = below(4); i-- > 0;)
		if (write(fd, bytes, 1 + below(4999)) < 0)
			break;
}

void write_pages(char *memory, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		if (chance(50))
			memset(memory + i * 4096 + below(2000), chance(20) ? 0 : (int)below(255),
			       1 + below(2000));
}
