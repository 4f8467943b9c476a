/* memfds, shared anonymous memory, System V segments: contents, holes, seals, and who shares what. */
#include "unit/round_trip.h"
#include "unit/skip.h"

#include "base/kernel_abi.h"

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define PAGE SP_PAGE_SIZE
#define FIRST_MAPPING 0x200000000000ULL
#define SECOND_MAPPING 0x300000000000ULL

static void need(bool holds)
{
	if (!holds)
		abort();
}

static uint64_t populated_bytes(int fd)
{
	struct stat stat;

	assert_int_equal(fstat(fd, &stat), 0);
	return (uint64_t)stat.st_blocks * 512;
}

/* --- memfd --- */

/* 0: 64 pages, of which one has contents; 1: the same open file; 2: a read-only view of it. */
static void make_memfd(void)
{
	int fd = memfd_create("some name", MFD_ALLOW_SEALING);

	need(ftruncate(fd, 64 * PAGE) == 0);
	need(pwrite(fd, "contents", 8, 10 * PAGE + 5) == 8);
	need(fchmod(fd, 0640) == 0 && fchown(fd, 1234, 5678) == 0);
	need(lseek(fd, 77, SEEK_SET) == 77);
	need(dup(fd) == 1);
	need(open("/proc/self/fd/0", O_RDONLY) == 2);
	need(lseek(2, 10 * PAGE + 5, SEEK_SET) > 0);
}

static void make_sealed_memfd(void)
{
	make_memfd();
	need(fcntl(0, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_WRITE) == 0);
}

static void memfd_keeps_contents_holes_owner_and_position(void **state)
{
	struct round_trip trip;
	struct stat stat;
	char bytes[9] = "";
	int fd;

	round_trip_save(&trip, make_memfd, NULL);
	round_trip_restore(&trip);
	fd = round_trip_fd(&trip, 0);
	assert_int_equal(pread(fd, bytes, 8, 10 * PAGE + 5), 8);
	assert_string_equal(bytes, "contents");
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(stat.st_size, 64 * PAGE);
	assert_int_equal(stat.st_mode, S_IFREG | 0640);
	assert_int_equal(stat.st_uid, 1234);
	assert_int_equal(stat.st_gid, 5678);
	assert_int_equal(populated_bytes(fd), PAGE);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 77);
	round_trip_end(&trip);
}

static void memfd_views_share_one_file(void **state)
{
	struct round_trip trip;
	struct stat stat;
	char bytes[9] = "";
	int view;

	round_trip_save(&trip, make_memfd, NULL);
	round_trip_restore(&trip);
	assert_int_equal(round_trip_fd(&trip, 0), round_trip_fd(&trip, 1));
	view = round_trip_fd(&trip, 2);
	assert_int_equal(fcntl(view, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(read(view, bytes, 8), 8);
	assert_string_equal(bytes, "contents");
	assert_int_equal(ftruncate(round_trip_fd(&trip, 0), 63 * PAGE), 0);
	assert_int_equal(fstat(view, &stat), 0);
	assert_int_equal(stat.st_size, 63 * PAGE);
	round_trip_end(&trip);
}

static void memfd_is_sealed_again(void **state)
{
	struct round_trip trip;
	int fd;

	round_trip_save(&trip, make_sealed_memfd, NULL);
	round_trip_restore(&trip);
	round_trip_settle(&trip, &sp_kind_memfd);
	fd = round_trip_fd(&trip, 0);
	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_GROW | F_SEAL_WRITE);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(fd, 65 * PAGE), -1);
	assert_int_equal(ftruncate(fd, 63 * PAGE), 0);
	round_trip_end(&trip);
}

static void make_other_memfds(void)
{
	int fd = memfd_create("never executable", MFD_NOEXEC_SEAL);

	if (fd < 0) /* before Linux 6.3 */
		fd = memfd_create("never executable", MFD_ALLOW_SEALING);
	need(fd == 0);
	need(memfd_create("no seals", 0) == 1);
	need(memfd_create("", MFD_ALLOW_SEALING) == 2); /* never opened for writing, below */
	need(ftruncate(2, 3) == 0 && pwrite(2, "abc", 3, 0) == 3);
	need(open("/proc/self/fd/2", O_RDONLY) == 3 && close(2) == 0);
	need(fcntl(3, F_GET_SEALS) == 0);
}

static void memfd_keeps_what_decides_about_executing_and_sealing(void **state)
{
	struct round_trip trip;
	struct stat stat;
	char bytes[4] = "";

	round_trip_save(&trip, make_other_memfds, NULL);
	round_trip_restore(&trip);
	round_trip_settle(&trip, &sp_kind_memfd);
	assert_int_equal(fstat(round_trip_fd(&trip, 0), &stat), 0);
	if (fcntl(round_trip_fd(&trip, 0), F_GET_SEALS) & F_SEAL_EXEC)
		assert_int_equal(fchmod(round_trip_fd(&trip, 0), 0777), -1);
	assert_int_equal(fcntl(round_trip_fd(&trip, 1), F_GET_SEALS), F_SEAL_SEAL);
	assert_int_equal(read(round_trip_fd(&trip, 3), bytes, 3), 3);
	assert_string_equal(bytes, "abc");
	assert_int_equal(fcntl(round_trip_fd(&trip, 3), F_GET_SEALS), 0);
	round_trip_end(&trip);
}

static void make_huge_memfd(void)
{
	int fd = memfd_create("huge", MFD_HUGETLB | MFD_HUGE_2MB);

	need(ftruncate(fd, 4 * SP_HUGE_PAGE_SIZE) == 0);
	uint8_t *memory =
	        mmap(NULL, 4 * SP_HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	need(memory != MAP_FAILED);
	memory[3 * SP_HUGE_PAGE_SIZE + 9] = 99;
}

static void memfd_of_huge_pages_comes_back_huge(void **state)
{
	struct round_trip trip;
	uint8_t byte = 0;
	int probe = memfd_create("probe", MFD_HUGETLB | MFD_HUGE_2MB);
	void *page = mmap(NULL, 4 * SP_HUGE_PAGE_SIZE, PROT_READ, MAP_SHARED, probe, 0);

	close(probe);
	if (page == MAP_FAILED)
		skip_because("the hugetlb pool has no free pages (vm.nr_hugepages)");
	munmap(page, 4 * SP_HUGE_PAGE_SIZE);
	round_trip_save(&trip, make_huge_memfd, NULL);
	round_trip_restore(&trip);
	assert_int_equal(pread(round_trip_fd(&trip, 0), &byte, 1, 3 * SP_HUGE_PAGE_SIZE + 9), 1);
	assert_int_equal(byte, 99);
	assert_int_equal(populated_bytes(round_trip_fd(&trip, 0)), SP_HUGE_PAGE_SIZE);
	round_trip_end(&trip);
}

/* --- shared anonymous memory --- */

/* One piece of shared memory, whose middle page is mapped a second time, for reading only. */
static void share_memory(void)
{
	uint8_t *memory = mmap((void *)FIRST_MAPPING, 32 * PAGE, PROT_READ | PROT_WRITE,
	                       MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	need(memory != MAP_FAILED);
	memory[16 * PAGE + 1] = 42;
	memory[3 * PAGE] = 0; /* populated, but zero */
	memory = mremap(memory + 16 * PAGE, 0, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
	                (void *)SECOND_MAPPING);
	need(memory != MAP_FAILED && mprotect(memory, PAGE, PROT_READ) == 0);
}

static void add_shared_mappings(struct round_trip *trip)
{
	struct sp_range first = {FIRST_MAPPING, FIRST_MAPPING + 32 * PAGE};
	struct sp_range second = {SECOND_MAPPING, SECOND_MAPPING + PAGE};
	uint32_t id;

	if (sp_file_table_add_mapping(&trip->target.table, trip->target.process.pid, first, true,
	                              true, "/dev/zero (deleted)", &id, &trip->err) < 0 ||
	    sp_file_table_add_mapping(&trip->target.table, trip->target.process.pid, second, true,
	                              false, "/dev/zero (deleted)", &id, &trip->err) < 0)
		fail_msg("%s", trip->err.message);
}

static void shared_memory_keeps_contents_and_holes(void **state)
{
	struct round_trip trip;
	uint8_t *memory;
	int fd;

	round_trip_save(&trip, share_memory, add_shared_mappings);
	round_trip_restore(&trip);
	fd = trip.copy.builder.fds[1];
	assert_int_equal(populated_bytes(fd), 2 * PAGE);
	memory = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(memory != MAP_FAILED);
	assert_int_equal(memory[16 * PAGE + 1], 42);
	for (size_t id = 1; id <= trip.copy.checkpoint->files.count; id++) {
		uint8_t byte = 0;

		memory[16 * PAGE + 1] = (uint8_t)id;
		assert_int_equal(pread(trip.copy.builder.fds[id], &byte, 1, 16 * PAGE + 1), 1);
		assert_int_equal(byte, id); /* each of them is the same memory */
	}
	munmap(memory, 32 * PAGE);
	round_trip_end(&trip);
}

/* --- System V shared memory --- */

static void add_system_v_mapping(struct round_trip *trip)
{
	struct sp_range range = {FIRST_MAPPING, FIRST_MAPPING + 8 * PAGE};
	uint32_t id;

	if (sp_file_table_add_mapping(&trip->target.table, trip->target.process.pid, range, true,
	                              true, "/SYSV00000000", &id, &trip->err) < 0)
		fail_msg("%s", trip->err.message);
}

static void attach_system_v(void)
{
	int segment = shmget(IPC_PRIVATE, 8 * PAGE - 1, IPC_CREAT | 0640);
	uint8_t *memory = shmat(segment, (void *)FIRST_MAPPING, 0);

	need(memory != (void *)-1);
	memory[3 * PAGE + 1] = 42;
	need(shmctl(segment, IPC_RMID, NULL) == 0);
}

static void system_v_segment_keeps_id_size_and_contents(void **state)
{
	struct round_trip trip;
	struct shmid_ds segment;
	struct stat stat;
	uint8_t byte = 0;
	int id;

	round_trip_save(&trip, attach_system_v, add_system_v_mapping);
	id = (int)sp_file_table_at(&trip.target.table, 1)->stat.st_ino;
	round_trip_restore(&trip);
	assert_int_equal(fstat(trip.copy.builder.fds[1], &stat), 0);
	assert_int_equal(stat.st_ino, id);
	assert_int_equal(populated_bytes(trip.copy.builder.fds[1]), PAGE);
	assert_int_equal(pread(trip.copy.builder.fds[1], &byte, 1, 3 * PAGE + 1), 1);
	assert_int_equal(byte, 42);
	assert_int_equal(shmctl(id, IPC_STAT, &segment), 0);
	assert_int_equal(segment.shm_segsz, 8 * PAGE - 1);
	assert_int_equal(segment.shm_perm.mode, 0640);
	round_trip_settle(&trip, &sp_kind_system_v_memory);
	assert_int_equal(shmctl(id, IPC_STAT, &segment), -1); /* removed again */
	round_trip_end(&trip);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(memfd_keeps_contents_holes_owner_and_position),
	        cmocka_unit_test(memfd_views_share_one_file),
	        cmocka_unit_test(memfd_is_sealed_again),
	        cmocka_unit_test(memfd_keeps_what_decides_about_executing_and_sealing),
	        cmocka_unit_test(memfd_of_huge_pages_comes_back_huge),
	        cmocka_unit_test(shared_memory_keeps_contents_and_holes),
	        cmocka_unit_test(system_v_segment_keeps_id_size_and_contents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
