/* The table of open files: which descriptors share one, what is refused. */
#include "unit/file_target.h"
#include "unit/skip.h"

#include "kinds/file_locks.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

static uint32_t id_of(const struct file_target *target, int number)
{
	const struct sp_open_file *file =
	        sp_file_table_lookup(&target->table, target->process.pid, number);

	assert_non_null(file);
	return file->id;
}

static void duplicates_and_separate_files(void)
{
	open("file", O_CREAT | O_RDWR, 0600); /* 3 */
	open("file", O_RDWR);                 /* 4: the same inode, an open file of its own */
	dup3(3, 20, O_CLOEXEC);               /* 20: the same open file as 3 */
	fcntl(4, F_DUPFD, 30);                /* 30: as 4 */
}

static void duplicated_descriptors_share_one_open_file(void **state)
{
	struct file_target target = file_target_start(duplicates_and_separate_files);

	file_target_read(&target);
	assert_int_equal(id_of(&target, 3), id_of(&target, 20));
	assert_int_equal(id_of(&target, 4), id_of(&target, 30));
	assert_int_not_equal(id_of(&target, 3), id_of(&target, 4));
	assert_int_equal(id_of(&target, 0), id_of(&target, 2));
	assert_int_equal(target.table.files.count, 3);
	assert_int_equal(target.table.descriptors.count, 7);
	assert_null(sp_file_table_lookup(&target.table, target.process.pid, 5));
	file_target_end(&target);
}

static void close_on_exec_belongs_to_the_descriptor(void **state)
{
	struct file_target target = file_target_start(duplicates_and_separate_files);

	file_target_read(&target);
	for (size_t i = 0; i < target.table.descriptors.count; i++) {
		const struct sp_descriptor *descriptor = sp_array_at(&target.table.descriptors, i);

		assert_int_equal(descriptor->close_on_exec, descriptor->number == 20);
		assert_false(sp_file_table_at(&target.table, descriptor->file)->flags & O_CLOEXEC);
	}
	file_target_end(&target);
}

static void files_of_one_inode_are_walked_in_order(void **state)
{
	struct file_target target = file_target_start(duplicates_and_separate_files);
	const struct sp_open_file *first, *second;

	file_target_read(&target);
	first = sp_file_table_at(&target.table, id_of(&target, 3));
	second = sp_file_table_at(&target.table, id_of(&target, 4));
	assert_ptr_equal(sp_file_table_same_inode(&target.table, second, NULL), first);
	assert_ptr_equal(sp_file_table_same_inode(&target.table, second, first), second);
	assert_null(sp_file_table_same_inode(&target.table, second, second));
	file_target_end(&target);
}

#define MANY 3000

static void many_of_one_inode(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < MANY; i++)
		open("/dev/zero", O_RDONLY);
	for (int i = 0; i < MANY; i++)
		dup(3 + i);
}

static void thousands_of_files_of_one_inode_are_told_apart(void **state)
{
	struct file_target target = file_target_start(many_of_one_inode);

	file_target_read(&target);
	assert_int_equal(target.table.files.count, MANY + 1);
	assert_int_equal(target.table.descriptors.count, 3 + 2 * MANY);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(id_of(&target, 3 + i), id_of(&target, 3 + MANY + i));
	file_target_end(&target);
}

/* Tells the child's pid in the file that both have. */
static void child_with_the_same_files(void)
{
	open("file", O_CREAT | O_RDWR, 0600); /* 3: shared by both */
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		open("file", O_RDWR); /* 4: the child's own */
		fcntl(3, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_start = 10, .l_len = 1});
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(child, NULL, WUNTRACED);
	if (pwrite(3, &child, sizeof(child), 0) != sizeof(child))
		_exit(1);
}

static void open_files_are_shared_between_processes(void **state)
{
	struct file_target target = file_target_start(child_with_the_same_files);
	struct sp_process child = {.threads = SP_ARRAY_OF(struct sp_thread *)};
	struct sp_error err = {0};

	file_target_read(&target);
	pread(sp_file_table_at(&target.table, id_of(&target, 3))->fd, &child.pid, sizeof(child.pid),
	      0);
	child.pidfd = (int)syscall(SYS_pidfd_open, child.pid, 0);
	assert_int_equal(sp_file_table_add_process(&target.table, &child, &err), 0);
	assert_int_equal(sp_file_table_lookup(&target.table, child.pid, 3)->id, id_of(&target, 3));
	assert_int_equal(sp_file_table_lookup(&target.table, child.pid, 2)->id, id_of(&target, 0));
	assert_int_equal(target.table.files.count, 3);
	assert_int_equal(target.table.locks.count, 1);
	assert_int_equal(((struct sp_file_lock *)sp_array_at(&target.table.locks, 0))->pid,
	                 child.pid);
	close(child.pidfd);
	file_target_end(&target);
}

static void io_uring_and_file(void)
{
	struct {
		uint32_t fields[30];
	} parameters = {0};

	if (syscall(SYS_io_uring_setup, 1, &parameters) < 0)
		_exit(77);
}

static void io_uring_is_refused_by_name(void **state)
{
	struct file_target target;
	struct sp_error err = {0};
	uint32_t parameters[30] = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 1, parameters);

	if (ring < 0)
		skip_because("io_uring is not allowed here");
	close(ring);
	target = file_target_start(io_uring_and_file);
	assert_int_equal(sp_file_table_add_process(&target.table, &target.process, &err), -ENOTSUP);
	assert_non_null(strstr(err.message, "descriptor 3 of process "));
	assert_non_null(strstr(err.message, "io_uring"));
	file_target_end(&target);
}

static void *mapping_address = (void *)0x200000000000;

static void map_and_close(void)
{
	int fd = open("file", O_CREAT | O_RDWR, 0600);

	ftruncate(fd, 3 * SP_PAGE_SIZE);
	mmap(mapping_address, SP_PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
	mmap((char *)mapping_address + SP_PAGE_SIZE, SP_PAGE_SIZE, PROT_READ,
	     MAP_SHARED | MAP_FIXED, fd, 0);
	mmap((char *)mapping_address + 2 * SP_PAGE_SIZE, SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	     MAP_SHARED | MAP_FIXED, fd, 2 * SP_PAGE_SIZE);
	close(fd);
}

static uint32_t add_mapping(struct file_target *target, unsigned page, bool shared, bool writable)
{
	uint64_t start = (uint64_t)mapping_address + page * SP_PAGE_SIZE;
	struct sp_range range = {start, start + SP_PAGE_SIZE};
	struct sp_error err = {0};
	uint32_t id;

	if (sp_file_table_add_mapping(&target->table, target->process.pid, range, shared, writable,
	                              "file", &id, &err))
		fail_msg("%s", err.message);
	return id;
}

/*
 * A mapping that is read-only now, of a file opened for writing: mprotect(2) may make it writable.
 */
static void shared_mapping_keeps_the_access_of_its_file(void **state)
{
	struct file_target target = file_target_start(map_and_close);
	uint32_t private, shared;

	file_target_read(&target);
	private = add_mapping(&target, 0, false, false);
	shared = add_mapping(&target, 1, true, false);
	assert_int_equal(sp_file_table_at(&target.table, private)->flags & O_ACCMODE, O_RDONLY);
	assert_int_equal(sp_file_table_at(&target.table, shared)->flags & O_ACCMODE, O_RDWR);
	assert_int_equal(add_mapping(&target, 2, true, true), shared);
	assert_int_equal(add_mapping(&target, 0, false, false), private);
	assert_ptr_equal(sp_file_table_same_inode(&target.table,
	                                          sp_file_table_at(&target.table, shared), NULL),
	                 sp_file_table_at(&target.table, private));
	file_target_end(&target);
}

static void executable_is_found(void **state)
{
	struct file_target target = file_target_start(map_and_close);
	struct sp_error err = {0};
	uint32_t id, again;

	file_target_read(&target);
	assert_int_equal(sp_file_table_add_executable(&target.table, target.process.pid, &id, &err),
	                 0);
	assert_int_equal(
	        sp_file_table_add_executable(&target.table, target.process.pid, &again, &err), 0);
	assert_int_equal(id, again);
	assert_non_null(strstr(sp_file_table_at(&target.table, id)->link, "test_file_table"));
	file_target_end(&target);
}

static void own_signals(void)
{
	struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = getpid()};
	int ends[2];

	pipe(ends);
	syscall(SYS_setresuid, 1, 1, 0);
	fcntl(3, F_SETOWN_EX, &owner);
	syscall(SYS_setresuid, 0, 0, 0);
	fcntl(3, F_SETSIG, SIGRTMIN + 3);
}

static void owner_is_saved_with_signal_and_credentials(void **state)
{
	struct file_target target = file_target_start(own_signals);
	struct file_copy copy = file_target_copy(&target);
	const Sealpoint__OpenFile *file = sp_checkpoint_file(copy.checkpoint, id_of(&target, 3));

	assert_non_null(file->owner);
	assert_int_equal(file->owner->id, target.process.pid);
	assert_int_equal(file->owner->type, F_OWNER_PID);
	assert_int_equal(file->owner->signal, SIGRTMIN + 3);
	assert_int_equal(file->owner->uid, 1);
	file_copy_release(&copy);
	file_target_end(&target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(duplicated_descriptors_share_one_open_file),
	        cmocka_unit_test(close_on_exec_belongs_to_the_descriptor),
	        cmocka_unit_test(files_of_one_inode_are_walked_in_order),
	        cmocka_unit_test(thousands_of_files_of_one_inode_are_told_apart),
	        cmocka_unit_test(open_files_are_shared_between_processes),
	        cmocka_unit_test(io_uring_is_refused_by_name),
	        cmocka_unit_test(shared_mapping_keeps_the_access_of_its_file),
	        cmocka_unit_test(executable_is_found),
	        cmocka_unit_test(owner_is_saved_with_signal_and_credentials),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
