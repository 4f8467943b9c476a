/*
 * Mappings of a file that has been deleted: one shared, with the descriptor still open, and one
 * private with a modified page. There is no name to find the contents by.
 */
#include "mapping.h"

#define SIZE (16 * PAGE)

int main(void)
{
	int fd = open("to be deleted", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	subject_need(fd >= 0 && ftruncate(fd, SIZE) == 0, "open");
	uint8_t *shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint8_t *private = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	subject_need(shared != MAP_FAILED && private != MAP_FAILED, "mmap");
	mapping_fill(shared, SIZE, 1);
	mapping_fill(private + PAGE, PAGE, 2);
	subject_need(unlink("to be deleted") == 0, "unlink");

	subject_ready();

	mapping_check(shared, SIZE, 1, "shared mapping");
	mapping_check(private, PAGE, 1, "private mapping");
	mapping_check(private + PAGE, PAGE, 2, "modified page of the private mapping");
	shared[9] ^= 1;
	uint8_t seen = 0;
	subject_check(pread(fd, &seen, 1, 9) == 1 && seen == shared[9],
	              "the descriptor is not what is mapped");
	return subject_end();
}
