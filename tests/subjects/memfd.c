/*
 * memfds: two open files of one, with a position each, mapped privately and shared; a seal against
 * future writing beside a writable mapping; holes.
 */
#include "mapping.h"

#include <sys/stat.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SIZE (64 * PAGE)

int main(void)
{
	int fd = memfd_create("a name", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[64], link[64] = "", expected[] = "/memfd:a name (deleted)";
	struct stat stat, view_stat;

	subject_need(fd >= 0 && ftruncate(fd, SIZE) == 0 && fchmod(fd, 0604) == 0, "memfd");
	uint8_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 8 * PAGE);
	uint8_t *private = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 8 * PAGE);
	subject_need(shared != MAP_FAILED && private != MAP_FAILED, "mmap");
	mapping_fill(shared, PAGE, 1);
	mapping_fill(private, 16, 2);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int view = open(path, O_RDONLY | O_CLOEXEC);
	subject_need(view >= 0 && lseek(view, 8 * PAGE, SEEK_SET) > 0, "reopen");
	subject_need(lseek(fd, 17, SEEK_SET) == 17, "lseek");
	subject_need(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK) == 0, "seal");

	subject_ready();

	subject_check(readlink(path, link, sizeof(link) - 1) > 0 && !strcmp(link, expected),
	              "its name is %s", link);
	subject_check(fstat(fd, &stat) == 0 && fstat(view, &view_stat) == 0, "fstat");
	subject_check(stat.st_ino == view_stat.st_ino, "two open files are of two inodes");
	subject_check(stat.st_size == SIZE && (stat.st_mode & 07777) == 0604, "size %ld, mode %o",
	              (long)stat.st_size, stat.st_mode);
	subject_check(stat.st_blocks * 512 <= 2 * (long)PAGE, "%ld bytes are in memory",
	              (long)stat.st_blocks * 512);
	subject_check(lseek(fd, 0, SEEK_CUR) == 17, "position is %ld",
	              (long)lseek(fd, 0, SEEK_CUR));
	subject_check(fcntl(fd, F_GET_SEALS) == (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK),
	              "seals are %x", fcntl(fd, F_GET_SEALS));
	subject_check(pwrite(fd, "x", 1, 0) == -1 && errno == EPERM, "can be written to");
	mapping_check(shared, PAGE, 1, "shared mapping");
	mapping_check(private, 16, 2, "private mapping");
	shared[40] ^= 1;
	uint8_t bytes[64] = {0};
	subject_check(read(view, bytes, sizeof(bytes)) == sizeof(bytes), "read by the other view");
	subject_check(bytes[40] == shared[40], "the shared mapping is not of this file");
	subject_check(private[40] != shared[40], "the modified private page follows the file");
	return subject_end();
}
