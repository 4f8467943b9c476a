/*
 * Descriptors put in place: a child of this process stands for the stub of a restore. It has
 * inherited what sealpoint opened, and is driven by remote system calls.
 */
#include "unit/file_target.h"
#include "unit/remote_target.h"

#include "base/io.h"
#include "kinds/file_owner.h"
#include "proc/fdinfo.h"

#include <linux/kcmp.h>
#include <sys/file.h>
#include <sys/resource.h>

struct stub {
	struct sp_process process;
	struct sp_remote remote;
};

static void fail_with(const struct sp_error *err)
{
	fail_msg("%s", err->message);
}

/* Filled in where it stays: the remote points into it. */
static void stub_start(struct stub *stub)
{
	take(&stub->process, &stub->remote, start(sleeper));
}

static void stub_end(struct stub *stub)
{
	sp_remote_close(&stub->remote, NULL);
	sp_process_release(&stub->process, SP_RELEASE_KILL);
	sp_process_forget(&stub->process);
}

/* Saves the target, and puts its descriptors in place in a stub. */
static void restore(struct file_target *target, struct file_copy *copy, struct stub *stub)
{
	struct sp_error err = {0};

	*copy = file_target_copy_alone(target);
	stub_start(stub);
	if (sp_files_place(&copy->builder, &stub->remote, target->process.pid, &err))
		fail_with(&err);
}

/* One line for each descriptor of a process: number, access, close-on-exec. */
static void list(pid_t pid, char *text, size_t size)
{
	size_t used = 0;
	char path[64];

	text[0] = '\0';
	for (int number = 0; number < 2000; number++) {
		struct sp_error err = {0};
		sp_cleanup_free char *fdinfo = NULL;
		struct sp_fdinfo info;

		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", pid, number);
		if (access(path, F_OK) || sp_read_file(AT_FDCWD, path, &fdinfo, NULL, &err) ||
		    sp_fdinfo_parse(fdinfo, &info, &err))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%d: %#x at %lld%s\n", number,
		                         info.flags, (long long)info.position,
		                         info.close_on_exec ? ", close on exec" : "");
	}
}

static void scattered(void)
{
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	int other = open("file", O_RDONLY);

	lseek(fd, 7, SEEK_SET);
	for (int number = 10; number < 40; number++)
		dup3(number % 2 ? fd : other, number, number % 3 ? 0 : O_CLOEXEC);
	dup2(fd, 1900);
	close(fd);
	close(1);
}

static void descriptors_get_their_numbers_and_no_others_stay(void **state)
{
	struct file_target target = file_target_start(scattered);
	static char before[8192], after[8192];
	struct file_copy copy;
	struct stub stub = {0};

	list(target.process.pid, before, sizeof(before));
	restore(&target, &copy, &stub);
	list(stub.process.pid, after, sizeof(after));
	assert_string_equal(after, before);
	stub_end(&stub);
	file_copy_release(&copy);
	file_target_end(&target);
}

static long kcmp_files(pid_t pid, int one, int other)
{
	return syscall(SYS_kcmp, pid, pid, KCMP_FILE, one, other);
}

static void duplicates_are_duplicates_again(void **state)
{
	struct file_target target = file_target_start(scattered);
	struct file_copy copy;
	struct stub stub = {0};

	restore(&target, &copy, &stub);
	assert_int_equal(kcmp_files(stub.process.pid, 11, 1900), 0);
	assert_int_equal(kcmp_files(stub.process.pid, 10, 12), 0);
	assert_int_not_equal(kcmp_files(stub.process.pid, 10, 11), 0);
	stub_end(&stub);
	file_copy_release(&copy);
	file_target_end(&target);
}

#define MANY 10000

static void thousands(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < MANY; i++)
		if (open("/dev/zero", O_RDONLY) < 0)
			_exit(1);
}

static void ten_thousand_descriptors_are_placed(void **state)
{
	struct file_target target = file_target_start(thousands);
	struct file_copy copy;
	struct stub stub = {0};
	char path[64];

	restore(&target, &copy, &stub);
	for (int number = 3; number < 3 + MANY; number++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", stub.process.pid, number);
		assert_int_equal(access(path, F_OK), 0);
	}
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", stub.process.pid, 3 + MANY);
	assert_int_equal(access(path, F_OK), -1);
	stub_end(&stub);
	file_copy_release(&copy);
	file_target_end(&target);
}

static void locks_and_owner(void)
{
	struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = getpid()};
	struct flock lock = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5};
	int locked = open("locked", O_CREAT | O_RDWR, 0600);
	int ends[2];

	fcntl(locked, F_SETLK, &lock);
	flock(open("whole", O_CREAT | O_RDWR, 0600), LOCK_EX);
	pipe(ends);
	syscall(SYS_setresuid, 1, 2, 0);
	fcntl(ends[0], F_SETOWN_EX, &owner);
	syscall(SYS_setresuid, 0, 0, 0);
	fcntl(ends[0], F_SETSIG, SIGRTMIN + 1);
	fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK);
}

/* The stub has another pid than the target had, as no restored process has. */
static void own_by_stub(const struct file_copy *copy, pid_t pid)
{
	for (size_t i = 0; i < copy->checkpoint->files.count; i++) {
		Sealpoint__OpenFile *file = sp_array_pointer(&copy->checkpoint->files, i);

		if (file->owner)
			file->owner->id = (uint32_t)pid;
	}
}

static void locks_owner_and_signals_are_settled(void **state)
{
	struct file_target target = file_target_start(locks_and_owner);
	struct file_copy copy;
	struct stub stub = {0};
	struct flock lock = {.l_type = F_RDLCK, .l_start = 12, .l_len = 1};
	struct f_owner_ex owner = {0};
	struct sp_error err = {0};
	uid_t ids[2];
	int reader;

	restore(&target, &copy, &stub);
	reader = file_copy_fd(&copy, 5);
	own_by_stub(&copy, stub.process.pid);
	if (sp_files_settle(&copy.builder, &stub.remote, target.process.pid, &err))
		fail_with(&err);
	assert_int_equal(fcntl(file_copy_fd(&copy, 3), F_GETLK, &lock), 0);
	assert_int_equal(lock.l_type, F_WRLCK);
	assert_int_equal(lock.l_pid, stub.process.pid);
	assert_int_equal(lock.l_start, 10);
	assert_int_equal(flock(openat(target.scratch.dirfd, "whole", O_RDWR), LOCK_SH | LOCK_NB),
	                 -1);
	assert_int_equal(fcntl(reader, F_GETOWN_EX, &owner), 0);
	assert_int_equal(owner.pid, stub.process.pid);
	assert_int_equal(fcntl(reader, F_GETOWNER_UIDS, ids), 0);
	assert_int_equal(ids[0], 1);
	assert_int_equal(ids[1], 2);
	assert_int_equal(fcntl(reader, F_GETSIG), SIGRTMIN + 1);
	assert_int_equal(fcntl(reader, F_GETFL), O_ASYNC | O_NONBLOCK);
	assert_int_equal(geteuid(), 0);
	stub_end(&stub);
	file_copy_release(&copy);
	file_target_end(&target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(descriptors_get_their_numbers_and_no_others_stay),
	        cmocka_unit_test(duplicates_are_duplicates_again),
	        cmocka_unit_test(ten_thousand_descriptors_are_placed),
	        cmocka_unit_test(locks_owner_and_signals_are_settled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
