/*
 * Writes a known number of pages of each of some mappings for each byte of descriptor 0, and says so:
 * what `sealpoint watch` must count. A mapping is known by its name; where the kernel has no names for
 * anonymous memory, it is a private mapping of a memfd with that name.
 *
 * subject: modes=none
 */
#include "mapping.h"

#include "base/kernel_abi.h"

static volatile uint8_t *named(const char *name, size_t pages)
{
	size_t size = pages * PAGE;
	uint8_t *start = mapping_new(size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	int fd;

	if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, start, size, name) < 0) {
		munmap(start, size);
		fd = memfd_create(name, MFD_CLOEXEC);
		subject_need(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "a memfd");
		start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
		subject_need(start != MAP_FAILED, "mmap");
		close(fd);
	}
	madvise(start, size, MADV_NOHUGEPAGE);
	return start;
}

int main(void)
{
	volatile uint8_t *dense = named("dense", 64), *sparse = named("sparse", 1000);
	volatile uint8_t *idle = named("idle", 64), *reserved = named("reserved", 1 << 18);
	char order, answer[32];

	for (size_t i = 0; i < 64; i++)
		idle[i * PAGE] = dense[i * PAGE] = 1;
	subject_need(write(STDOUT_FILENO, "READY\n", 6) == 6, "READY");
	for (unsigned steps = 1;; steps++) {
		while (read(STDIN_FILENO, &order, 1) == 0)
			usleep(1000);
		for (size_t i = 0; i < 64; i++)
			dense[i * PAGE]++;
		for (size_t i = 0; i < 7; i++)
			sparse[i * 100 * PAGE]++;
		for (size_t i = 0; i < 3; i++)
			reserved[i * 1000 * PAGE]++;
		for (size_t i = 0; i < 64; i++)
			(void)(idle[i * PAGE] + reserved[(i + 8) * PAGE]);
		snprintf(answer, sizeof(answer), "STEP %u\n", steps);
		subject_need(write(STDOUT_FILENO, answer, strlen(answer)) > 0, "an answer");
	}
}
