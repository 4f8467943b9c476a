/* Regular files: with a name, without one, and changed since. */
#include "unit/file_target.h"

#include <sys/mman.h>

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0640);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* What stands in the file behind a descriptor, from its start on. */
static const char *text_of(int fd)
{
	static char text[256];
	char path[64];
	ssize_t size;
	int reader;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY);
	size = read(reader, text, sizeof(text) - 1);
	close(reader);
	text[size < 0 ? 0 : size] = '\0';
	return text;
}

static int64_t position_of(int fd)
{
	return lseek(fd, 0, SEEK_CUR);
}

static void named(void)
{
	write_file("a", "0123456789");
	lseek(open("a", O_RDWR), 4, SEEK_SET);          /* 3 */
	open("a", O_WRONLY | O_APPEND | O_DSYNC);       /* 4 */
	open("a", O_RDONLY | O_NOATIME | O_NONBLOCK);   /* 5 */
	open("a", O_PATH);                              /* 6 */
	open(".", O_RDONLY | O_DIRECTORY);              /* 7 */
	open("a", O_WRONLY | O_CREAT | O_APPEND, 0600); /* 8 */
}

static void position_and_flags_come_back(void **state)
{
	struct file_target target = file_target_start(named);
	struct file_copy copy;

	file_target_read(&target);
	copy = file_target_copy(&target);
	assert_int_equal(position_of(file_copy_fd(&copy, 3)), 4);
	for (int number = 3; number <= 8; number++) {
		const struct sp_open_file *file =
		        sp_file_table_lookup(&target.table, target.process.pid, number);

		assert_int_equal(fcntl(file_copy_fd(&copy, number), F_GETFL), file->flags);
	}
	assert_string_equal(text_of(file_copy_fd(&copy, 3)), "0123456789");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void renamed(void)
{
	write_file("before", "text");
	open("before", O_RDONLY);
	rename("before", "after");
}

static void renamed_file_is_found(void **state)
{
	struct file_target target = file_target_start(renamed);
	struct file_copy copy = file_target_copy(&target);

	assert_string_equal(text_of(file_copy_fd(&copy, 3)), "text");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void unlinked(void)
{
	struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1000000000, .tv_nsec = 7}};

	write_file("gone", "unlinked text");
	lseek(open("gone", O_RDWR), 3, SEEK_SET);   /* 3 */
	lseek(open("gone", O_RDONLY), 5, SEEK_SET); /* 4 */
	open("gone", O_PATH);                       /* 5 */
	fchown(3, 11, 12);
	unlink("gone");
	futimens(3, times);
}

static void unlinked_file_comes_back_with_contents_shared_by_all(void **state)
{
	struct file_target target = file_target_start(unlinked);
	struct file_copy copy = file_target_copy(&target);
	struct stat stat, other;

	assert_int_equal(fstat(file_copy_fd(&copy, 3), &stat), 0);
	assert_int_equal(stat.st_nlink, 0);
	assert_int_equal(stat.st_mode & 07777, 0640);
	assert_int_equal(stat.st_uid, 11);
	assert_int_equal(stat.st_gid, 12);
	assert_int_equal(stat.st_mtim.tv_sec, 1000000000);
	assert_int_equal(position_of(file_copy_fd(&copy, 3)), 3);
	assert_int_equal(position_of(file_copy_fd(&copy, 4)), 5);
	for (int number = 4; number <= 5; number++) {
		assert_int_equal(fstat(file_copy_fd(&copy, number), &other), 0);
		assert_int_equal(other.st_ino, stat.st_ino);
	}
	pwrite(file_copy_fd(&copy, 3), "UN", 2, 0);
	assert_string_equal(text_of(file_copy_fd(&copy, 4)), "UNlinked text");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void temporary(void)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);

	if (write(fd, "nameless", 8) != 8)
		_exit(1);
}

static void nameless_file_comes_back_with_its_flags(void **state)
{
	struct file_target target = file_target_start(temporary);
	struct file_copy copy = file_target_copy(&target);

	assert_string_equal(text_of(file_copy_fd(&copy, 3)), "nameless");
	assert_int_equal(position_of(file_copy_fd(&copy, 3)), 8);
	assert_int_equal(fcntl(file_copy_fd(&copy, 3), F_GETFL) & O_TMPFILE, O_TMPFILE);
	file_copy_release(&copy);
	file_target_end(&target);
}

static void directory_gone(void)
{
	mkdir("directory", 0700);
	write_file("directory/gone", "text");
	open("directory/gone", O_RDWR);
	unlink("directory/gone");
	rmdir("directory");
}

static void unlinked_file_outlives_its_directory(void **state)
{
	struct file_target target = file_target_start(directory_gone);
	struct file_copy copy = file_target_copy(&target);

	assert_string_equal(text_of(file_copy_fd(&copy, 3)), "text");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void sparse(void)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);

	ftruncate(fd, 1LL << 40);
	pwrite(fd, "end", 3, (1LL << 40) - 3);
}

static void holes_of_an_unlinked_file_do_not_count(void **state)
{
	struct file_target target = file_target_start(sparse);
	struct file_copy copy = file_target_copy(&target);
	struct stat stat;
	char end[4] = "";

	assert_int_equal(fstat(file_copy_fd(&copy, 3), &stat), 0);
	assert_int_equal(stat.st_size, 1LL << 40);
	assert_true(stat.st_blocks < 64);
	assert_int_equal(pread(file_copy_fd(&copy, 3), end, 3, (1LL << 40) - 3), 3);
	assert_string_equal(end, "end");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void large(void)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);

	posix_fallocate(fd, 0, 2 << 20);
}

static void refused(void (*set_up)(void), const char *words)
{
	struct file_target target = file_target_start(set_up);
	struct sp_error err = {0};

	if (!sp_file_table_add_process(&target.table, &target.process, &err))
		file_target_save(&target, &file_target_options, &err);
	assert_true(sp_failed(&err));
	if (!strstr(err.message, words))
		fail_msg("\"%s\" is not in: %s", words, err.message);
	file_target_end(&target);
}

static void unlinked_file_beyond_the_limit_is_refused(void **state)
{
	refused(large, "--unlinked-limit");
}

static void linked_again(void)
{
	char path[64];

	open(".", O_TMPFILE | O_RDWR, 0600);
	if (write(3, "linked", 6) != 6)
		_exit(1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", 3);
	linkat(AT_FDCWD, path, AT_FDCWD, "name", AT_SYMLINK_FOLLOW);
}

static void file_is_found_by_another_name_in_its_directory(void **state)
{
	struct file_target target = file_target_start(linked_again);
	struct file_copy copy = file_target_copy(&target);
	struct stat stat;

	assert_string_equal(text_of(file_copy_fd(&copy, 3)), "linked");
	assert_int_equal(fstat(file_copy_fd(&copy, 3), &stat), 0);
	assert_int_equal(stat.st_nlink, 1);
	file_copy_release(&copy);
	file_target_end(&target);
}

static void linked_elsewhere(void)
{
	mkdir("elsewhere", 0700);
	write_file("name", "text");
	open("name", O_RDWR);
	link("name", "elsewhere/name");
	unlink("name");
}

static void file_with_an_unknown_name_is_refused_with_a_way_out(void **state)
{
	refused(linked_elsewhere, "ln -L /proc/");
}

static void watched_directory(void)
{
	signal(SIGIO, SIG_IGN);
	fcntl(open(".", O_RDONLY), F_NOTIFY, DN_CREATE | DN_MULTISHOT);
}

static void directory_with_notifications_is_refused(void **state)
{
	refused(watched_directory, "F_NOTIFY");
}

static void proc_file_of_its_parent(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/maps", getppid());
	open(path, O_RDONLY);
}

static void file_of_a_process_outside_is_refused(void **state)
{
	refused(proc_file_of_its_parent, "which is not saved along");
}

static void missing_file_is_named_at_restore(void **state)
{
	struct file_target target = file_target_start(named);
	struct sp_error err = {0};
	struct file_copy copy;

	file_target_read(&target);
	assert_int_equal(file_target_save(&target, &file_target_options, &err), 0);
	assert_int_equal(unlinkat(target.scratch.dirfd, "a", 0), 0);
	assert_int_equal(file_target_open(&target, &copy, &err), -ENOENT);
	assert_non_null(strstr(err.message, "cannot restore descriptor 3"));
	assert_non_null(strstr(err.message, "/a was there at the dump"));
	file_copy_release(&copy);
	file_target_end(&target);
}

static void other_type_is_refused_at_restore(void **state)
{
	struct file_target target = file_target_start(named);
	struct sp_error err = {0};
	struct file_copy copy;

	file_target_read(&target);
	assert_int_equal(file_target_save(&target, &file_target_options, &err), 0);
	unlinkat(target.scratch.dirfd, "a", 0);
	assert_int_equal(mkfifoat(target.scratch.dirfd, "a", 0600), 0);
	assert_int_equal(file_target_open(&target, &copy, &err), -EINVAL);
	assert_non_null(strstr(err.message, "is a FIFO now"));
	file_copy_release(&copy);
	file_target_end(&target);
}

#define MAPPED 0x10000000ULL

/* Says that the program has `size` bytes of the file at descriptor 3 mapped. */
static void map(struct file_copy *copy, uint64_t size, int prot)
{
	Sealpoint__Vma *vma = sp_alloc(sizeof(*vma));

	sealpoint__vma__init(vma);
	vma->start = MAPPED;
	vma->end = MAPPED + size;
	vma->prot = (uint32_t)prot;
	for (size_t i = 0; i < copy->checkpoint->descriptors.count; i++) {
		const Sealpoint__Descriptor *descriptor =
		        sp_array_pointer(&copy->checkpoint->descriptors, i);

		if (descriptor->number == 3)
			vma->file = descriptor->file;
	}
	*(Sealpoint__Vma **)sp_array_push(&copy->checkpoint->vmas) = vma;
}

static void three_pages(void)
{
	ftruncate(open("pages", O_CREAT | O_RDWR, 0600), 3 * SP_PAGE_SIZE);
}

/* What a restore says when the file has `size` bytes now and is mapped as a whole. */
static int open_after_change(off_t size, int prot, struct sp_error *err)
{
	struct file_target target = file_target_start(three_pages);
	struct file_copy copy;
	int result, fd;

	file_target_read(&target);
	assert_int_equal(file_target_save(&target, &file_target_options, err), 0);
	fd = openat(target.scratch.dirfd, "pages", O_RDWR);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
	file_target_open_checkpoint(&target, &copy);
	map(&copy, 4 * SP_PAGE_SIZE, prot); /* one page behind the end, as before */
	result = file_copy_open(&copy, err);
	file_copy_release(&copy);
	file_target_end(&target);
	return result;
}

static void mapped_file_that_has_shrunk_is_refused(void **state)
{
	struct sp_error err = {0};

	assert_int_equal(open_after_change(2 * SP_PAGE_SIZE, PROT_READ, &err), -EINVAL);
	assert_non_null(strstr(err.message, "has shrunk from 12288 to 8192 bytes"));
	assert_int_equal(open_after_change(2 * SP_PAGE_SIZE + 1, PROT_READ, &err), 0);
	assert_int_equal(open_after_change(9 * SP_PAGE_SIZE, PROT_READ, &err), 0);
}

static void code_of_another_version_is_refused(void **state)
{
	struct sp_error err = {0};

	assert_int_equal(open_after_change(9 * SP_PAGE_SIZE, PROT_READ | PROT_EXEC, &err), -EINVAL);
	assert_non_null(strstr(err.message, "is another version than at the dump"));
	assert_int_equal(open_after_change(3 * SP_PAGE_SIZE, PROT_READ | PROT_EXEC, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(position_and_flags_come_back),
	        cmocka_unit_test(renamed_file_is_found),
	        cmocka_unit_test(unlinked_file_comes_back_with_contents_shared_by_all),
	        cmocka_unit_test(nameless_file_comes_back_with_its_flags),
	        cmocka_unit_test(unlinked_file_outlives_its_directory),
	        cmocka_unit_test(holes_of_an_unlinked_file_do_not_count),
	        cmocka_unit_test(unlinked_file_beyond_the_limit_is_refused),
	        cmocka_unit_test(file_is_found_by_another_name_in_its_directory),
	        cmocka_unit_test(file_with_an_unknown_name_is_refused_with_a_way_out),
	        cmocka_unit_test(directory_with_notifications_is_refused),
	        cmocka_unit_test(file_of_a_process_outside_is_refused),
	        cmocka_unit_test(missing_file_is_named_at_restore),
	        cmocka_unit_test(mapped_file_that_has_shrunk_is_refused),
	        cmocka_unit_test(code_of_another_version_is_refused),
	        cmocka_unit_test(other_type_is_refused_at_restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
