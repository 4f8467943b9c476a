/* Pipes and FIFOs: contents, packets, ends, and ends that are outside. */
#include "unit/file_target.h"

#include <poll.h>
#include <sys/ioctl.h>

static int unread(int fd)
{
	int bytes = -1;

	ioctl(fd, FIONREAD, &bytes);
	return bytes;
}

static const char *read_once(int fd)
{
	static char text[8192];
	ssize_t size;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	size = read(fd, text, sizeof(text) - 1);
	if (size < 0)
		return strerrorname_np(errno);
	text[size] = '\0';
	return text;
}

static void put(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(1);
}

static void with_contents(void)
{
	int ends[2];

	pipe(ends); /* 3 and 4 */
	fcntl(4, F_SETPIPE_SZ, 32768);
	fchown(3, 21, 22);
	put(4, "first ");
	put(4, "second");
}

static void contents_size_and_owner_come_back(void **state)
{
	struct file_target target = file_target_start(with_contents);
	struct file_copy copy = file_target_copy(&target);
	int reader = file_copy_fd(&copy, 3), writer = file_copy_fd(&copy, 4);
	struct stat stat;

	assert_int_equal(fcntl(reader, F_GETPIPE_SZ), 32768);
	assert_int_equal(fcntl(reader, F_GETFL), O_RDONLY);
	assert_int_equal(fcntl(writer, F_GETFL), O_WRONLY);
	assert_int_equal(fstat(reader, &stat), 0);
	assert_int_equal(stat.st_uid, 21);
	assert_int_equal(stat.st_gid, 22);
	put(writer, " third");
	assert_string_equal(read_once(reader), "first second third");
	assert_string_equal(read_once(reader), "EAGAIN");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void reading_for_the_dump_takes_nothing_away(void **state)
{
	struct file_target target = file_target_start(with_contents);
	struct sp_error err = {0};
	int reader;

	file_target_read(&target);
	assert_int_equal(file_target_save(&target, &file_target_options, &err), 0);
	reader = sp_file_table_lookup(&target.table, target.process.pid, 3)->fd;
	assert_int_equal(unread(reader), 12);
	assert_string_equal(read_once(reader), "first second");
	file_target_end(&target);
}

static void full(void)
{
	int ends[2];

	pipe2(ends, O_NONBLOCK);
	for (char byte = 'a'; write(4, &byte, 1) == 1; byte = byte == 'z' ? 'a' : byte + 1)
		continue;
}

static void full_pipe_is_full_again(void **state)
{
	struct file_target target = file_target_start(full);
	struct file_copy copy = file_target_copy(&target);

	assert_int_equal(unread(file_copy_fd(&copy, 3)), 65536);
	assert_int_equal(write(file_copy_fd(&copy, 4), "x", 1), -1);
	assert_int_equal(errno, EAGAIN);
	file_copy_release(&copy);
	file_target_end(&target);
}

static void packets(void)
{
	int ends[2];

	pipe2(ends, O_DIRECT);
	put(4, "one");
	put(4, "two");
}

static void packets_stay_apart(void **state)
{
	struct file_target target = file_target_start(packets);
	struct file_copy copy = file_target_copy(&target);

	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "one");
	put(file_copy_fd(&copy, 4), "three");
	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "two");
	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "three");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void several_open_files(void)
{
	int ends[2];

	pipe(ends);
	open("/proc/self/fd/4", O_WRONLY | O_NONBLOCK); /* 5 */
	open("/proc/self/fd/3", O_RDWR);                /* 6 */
	put(5, "text");
}

static void further_open_files_join_the_same_pipe(void **state)
{
	struct file_target target = file_target_start(several_open_files);
	struct file_copy copy = file_target_copy(&target);
	struct stat first, other;

	fstat(file_copy_fd(&copy, 3), &first);
	for (int number = 4; number <= 6; number++) {
		fstat(file_copy_fd(&copy, number), &other);
		assert_int_equal(other.st_ino, first.st_ino);
	}
	assert_int_equal(fcntl(file_copy_fd(&copy, 6), F_GETFL) & O_ACCMODE, O_RDWR);
	assert_int_equal(fcntl(file_copy_fd(&copy, 5), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(fcntl(file_copy_fd(&copy, 4), F_GETFL) & O_NONBLOCK, 0);
	assert_string_equal(read_once(file_copy_fd(&copy, 6)), "text");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void writer_gone(void)
{
	int ends[2];

	pipe(ends);
	put(4, "last words");
	close(4);
}

static void reader_gone(void)
{
	int ends[2];

	pipe(ends);
	close(3);
}

static void ends_that_were_closed_stay_closed(void **state)
{
	struct file_target target = file_target_start(writer_gone);
	struct file_copy copy = file_target_copy(&target);
	struct pollfd poll_fd;

	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "last words");
	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "");
	file_copy_release(&copy);
	file_target_end(&target);

	target = file_target_start(reader_gone);
	copy = file_target_copy(&target);
	poll_fd = (struct pollfd){.fd = file_copy_fd(&copy, 4)};
	poll(&poll_fd, 1, 0);
	assert_true(poll_fd.revents & POLLERR);
	file_copy_release(&copy);
	file_target_end(&target);
}

static int outside[2];

static void output_to_outside(void)
{
	char path[64];

	/* file_target_start() has closed the pipe here; the parent has it still. */
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), outside[1]);
	dup2(open(path, O_WRONLY), 1);
	close(3);
}

static void pipe_to_outside_is_refused_with_a_way_out(void **state)
{
	struct file_target target;
	struct sp_error err = {0};

	assert_int_equal(pipe(outside), 0);
	target = file_target_start(output_to_outside);
	file_target_read(&target);
	assert_int_equal(file_target_save(&target, &file_target_options, &err), -ENOTSUP);
	assert_non_null(strstr(err.message, "cannot save descriptor 1 of process"));
	assert_non_null(strstr(err.message, "standard output redirected to a file"));
	assert_non_null(strstr(err.message, "--shell-job"));
	file_target_end(&target);
	close(outside[0]);
	close(outside[1]);
}

static void pipe_to_outside_becomes_our_own_output(void **state)
{
	const struct sp_kind_options options = {.shell_job = true};
	struct file_target target;
	struct sp_error err = {0};
	struct file_copy copy;
	struct stat ours, restored;

	assert_int_equal(pipe(outside), 0);
	target = file_target_start(output_to_outside);
	file_target_read(&target);
	if (file_target_save(&target, &options, &err) || file_target_open(&target, &copy, &err))
		fail_msg("%s", err.message);
	fstat(STDOUT_FILENO, &ours);
	fstat(file_copy_fd(&copy, 1), &restored);
	assert_int_equal(restored.st_ino, ours.st_ino);
	file_copy_release(&copy);
	file_target_end(&target);
	close(outside[0]);
	close(outside[1]);
}

static void fifo_with_contents(void)
{
	mkfifo("fifo", 0600);
	open("fifo", O_RDONLY | O_NONBLOCK); /* 3 */
	open("fifo", O_WRONLY);              /* 4 */
	put(4, "in the fifo");
}

static void fifo_comes_back_with_contents(void **state)
{
	struct file_target target = file_target_start(fifo_with_contents);
	struct file_copy copy = file_target_copy_alone(&target);

	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "in the fifo");
	put(file_copy_fd(&copy, 4), "more");
	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "more");
	file_copy_release(&copy);
	file_target_end(&target);
}

/* The table's own descriptors keep the FIFO's pipe alive, and what is in it. */
static void fifo_that_others_kept_open_is_not_filled_twice(void **state)
{
	struct file_target target = file_target_start(fifo_with_contents);
	struct file_copy copy = file_target_copy(&target);

	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "in the fifo");
	assert_string_equal(read_once(file_copy_fd(&copy, 3)), "EAGAIN");
	file_copy_release(&copy);
	file_target_end(&target);
}

static void fifo_reader(void)
{
	mkfifo("fifo", 0600);
	open("fifo", O_RDONLY | O_NONBLOCK); /* 3: no writer has ever come */
}

static void fifo_writer_gone(void)
{
	fifo_reader();
	close(open("fifo", O_WRONLY));
}

static short events_of(void (*set_up)(void))
{
	struct file_target target = file_target_start(set_up);
	struct file_copy copy = file_target_copy_alone(&target);
	struct pollfd poll_fd = {.fd = file_copy_fd(&copy, 3), .events = POLLIN};

	poll(&poll_fd, 1, 0);
	file_copy_release(&copy);
	file_target_end(&target);
	return poll_fd.revents;
}

static void fifo_remembers_whether_a_writer_has_gone(void **state)
{
	assert_int_equal(events_of(fifo_reader), 0);
	assert_int_equal(events_of(fifo_writer_gone), POLLHUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(contents_size_and_owner_come_back),
	        cmocka_unit_test(reading_for_the_dump_takes_nothing_away),
	        cmocka_unit_test(full_pipe_is_full_again),
	        cmocka_unit_test(packets_stay_apart),
	        cmocka_unit_test(further_open_files_join_the_same_pipe),
	        cmocka_unit_test(ends_that_were_closed_stay_closed),
	        cmocka_unit_test(pipe_to_outside_is_refused_with_a_way_out),
	        cmocka_unit_test(pipe_to_outside_becomes_our_own_output),
	        cmocka_unit_test(fifo_comes_back_with_contents),
	        cmocka_unit_test(fifo_that_others_kept_open_is_not_filled_twice),
	        cmocka_unit_test(fifo_remembers_whether_a_writer_has_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
