/*
 * File locks: what is read from a process, and the locks that belong to an open file when taken
 * again. POSIX locks are taken by the restored process itself: the subject "locks" looks at those.
 */
#include "unit/file_target.h"

#include "kinds/file_locks.h"

#include <signal.h>
#include <sys/file.h>

static void record_lock(int fd, int command, short type, off_t start, off_t length)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = length};

	if (fcntl(fd, command, &lock))
		_exit(1);
}

static void all_kinds(void)
{
	int posix = open("posix", O_CREAT | O_RDWR, 0600);
	int ofd = open("ofd", O_CREAT | O_RDWR, 0600);
	int whole = open("flock", O_CREAT | O_RDWR, 0600);

	record_lock(posix, F_SETLK, F_RDLCK, 100, 10);
	record_lock(posix, F_SETLK, F_WRLCK, 200, 0);
	record_lock(ofd, F_OFD_SETLK, F_WRLCK, 5, 1);
	flock(whole, LOCK_EX);
	dup(whole);
}

static const Sealpoint__OpenFile *record_of(const struct file_target *target,
                                            const struct file_copy *copy, int number)
{
	return sp_checkpoint_file(
	        copy->checkpoint,
	        sp_file_table_lookup(&target->table, target->process.pid, number)->id);
}

static void assert_lock(const Sealpoint__FileLock *lock, Sealpoint__FileLock__Type type,
                        bool exclusive, uint64_t start, uint64_t length, pid_t pid)
{
	assert_int_equal(lock->type, type);
	assert_int_equal(lock->exclusive, exclusive);
	assert_int_equal(lock->start, start);
	assert_int_equal(lock->length, length);
	assert_int_equal(lock->pid, pid);
}

static void every_lock_is_saved_with_its_file(void **state)
{
	struct file_target target = file_target_start(all_kinds);
	struct file_copy copy = file_target_copy(&target);
	const Sealpoint__OpenFile *posix = record_of(&target, &copy, 3);
	const Sealpoint__OpenFile *ofd = record_of(&target, &copy, 4);
	const Sealpoint__OpenFile *whole = record_of(&target, &copy, 5);

	assert_int_equal(posix->n_locks, 2);
	assert_lock(posix->locks[0], SEALPOINT__FILE_LOCK__TYPE__POSIX, false, 100, 10,
	            target.process.pid);
	assert_lock(posix->locks[1], SEALPOINT__FILE_LOCK__TYPE__POSIX, true, 200, 0,
	            target.process.pid);
	assert_int_equal(ofd->n_locks, 1);
	assert_lock(ofd->locks[0], SEALPOINT__FILE_LOCK__TYPE__OFD, true, 5, 1, 0);
	assert_int_equal(whole->n_locks, 1);
	assert_lock(whole->locks[0], SEALPOINT__FILE_LOCK__TYPE__FLOCK, true, 0, 0, 0);
	file_copy_release(&copy);
	file_target_end(&target);
}

/* Whether somebody else could take the lock now. */
static bool flock_is_free(const struct file_target *target)
{
	int fd = openat(target->scratch.dirfd, "flock", O_RDWR);
	bool is_free = flock(fd, LOCK_SH | LOCK_NB) == 0;

	close(fd);
	return is_free;
}

static bool ofd_is_free(const struct file_target *target)
{
	int fd = openat(target->scratch.dirfd, "ofd", O_RDWR);
	struct flock lock = {.l_type = F_RDLCK, .l_start = 5, .l_len = 1};
	bool is_free = fcntl(fd, F_OFD_SETLK, &lock) == 0;

	close(fd);
	return is_free;
}

static void locks_of_open_files_are_taken_again(void **state)
{
	struct file_target target = file_target_start(all_kinds);
	struct file_copy copy = file_target_copy(&target);
	const Sealpoint__OpenFile *ofd = record_of(&target, &copy, 4);
	const Sealpoint__OpenFile *whole = record_of(&target, &copy, 5);
	struct sp_error err = {0};

	assert_false(flock_is_free(&target)); /* the table holds what the target held */
	sp_file_table_release(&target.table);
	assert_true(flock_is_free(&target));
	assert_true(ofd_is_free(&target));
	assert_int_equal(sp_file_locks_take(&copy.builder, ofd, true, &err), 0);
	assert_int_equal(sp_file_locks_take(&copy.builder, whole, true, &err), 0);
	assert_false(flock_is_free(&target));
	assert_false(ofd_is_free(&target));
	file_copy_release(&copy);
	file_target_end(&target);
}

static void lock_that_another_process_holds_is_named(void **state)
{
	struct file_target target = file_target_start(all_kinds);
	struct file_copy copy = file_target_copy(&target);
	const Sealpoint__OpenFile *whole = record_of(&target, &copy, 5);
	struct sp_error err = {0};
	int fd;

	sp_file_table_release(&target.table);
	fd = openat(target.scratch.dirfd, "flock", O_RDWR);
	assert_int_equal(flock(fd, LOCK_SH), 0);
	assert_int_equal(sp_file_locks_take(&copy.builder, whole, true, &err), -EAGAIN);
	assert_non_null(strstr(err.message, "held by another process"));
	close(fd);
	file_copy_release(&copy);
	file_target_end(&target);
}

static void breaking_lease(void)
{
	int fd = open("leased", O_CREAT | O_RDONLY, 0600);

	signal(SIGIO, SIG_IGN);
	if (fcntl(fd, F_SETLEASE, F_RDLCK) || open("leased", O_WRONLY | O_NONBLOCK) >= 0)
		_exit(1);
}

static void lease_that_is_to_be_broken_is_refused_for_now(void **state)
{
	struct file_target target = file_target_start(breaking_lease);
	struct sp_error err = {0};

	assert_int_equal(sp_file_table_add_process(&target.table, &target.process, &err),
	                 -SP_NOT_YET);
	assert_non_null(strstr(err.message, "lease"));
	assert_non_null(strstr(err.message, "descriptor 3 of process"));
	file_target_end(&target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_lock_is_saved_with_its_file),
	        cmocka_unit_test(locks_of_open_files_are_taken_again),
	        cmocka_unit_test(lock_that_another_process_holds_is_named),
	        cmocka_unit_test(lease_that_is_to_be_broken_is_refused_for_now),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
