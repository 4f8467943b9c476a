/*
 * Shared memory without a file's name: an anonymous shared mapping that is mapped twice, and a
 * sealed memfd, mapped twice and open. Aliases are still aliases.
 */
#include "mapping.h"

#define SIZE (32 * PAGE)

int main(void)
{
	uint8_t *first = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED);
	uint8_t *alias = mremap(first, 0, SIZE, MREMAP_MAYMOVE);
	int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	int fd = memfd_create("subject's memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	subject_need(alias != MAP_FAILED, "mremap");
	mapping_fill(first, SIZE, 1);

	subject_need(fd >= 0 && ftruncate(fd, SIZE) == 0, "memfd_create");
	uint8_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint8_t *second = mmap(NULL, SIZE / 2, PROT_READ, MAP_SHARED, fd, SIZE / 2);
	uint8_t *private = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	subject_need(memory != MAP_FAILED && second != MAP_FAILED && private != MAP_FAILED, "mmap");
	mapping_fill(memory, SIZE, 2);
	mapping_fill(private + PAGE, PAGE, 3);
	subject_need(fcntl(fd, F_ADD_SEALS, seals) == 0, "F_ADD_SEALS");

	subject_ready();

	mapping_check(first, SIZE, 1, "shared anonymous memory");
	alias[5] ^= 1;
	subject_check(first[5] == alias[5], "two mappings of one memory have become two memories");
	alias[5] ^= 1;
	mapping_check(alias, SIZE, 1, "its alias");

	mapping_check(memory, SIZE, 2, "memfd");
	mapping_check(second, SIZE / 2, 2 + SIZE / 2 / 8, "second mapping of the memfd");
	mapping_check(private + PAGE, PAGE, 3, "modified page of a private mapping of the memfd");
	memory[SIZE - 1] ^= 1;
	subject_check(second[SIZE / 2 - 1] == memory[SIZE - 1], "the memfd's mappings are two");
	uint8_t seen = 0;
	subject_check(pread(fd, &seen, 1, SIZE - 1) == 1 && seen == memory[SIZE - 1],
	              "the descriptor is not what is mapped");
	subject_check(fcntl(fd, F_GET_SEALS) == seals, "seals are %x", fcntl(fd, F_GET_SEALS));
	subject_check(ftruncate(fd, 0) == -1 && errno == EPERM, "a sealed memfd shrinks");
	return subject_end();
}
