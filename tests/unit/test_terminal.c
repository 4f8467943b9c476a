/* Terminals of others: only on request, and then the restore's own. A program's own: with their number. */
#include "kinds/registry.h"
#include "unit/file_target.h"

#include <sys/ioctl.h>
#include <sys/sysmacros.h>

static char slave_path[64];
static int master;

static void open_pair(void)
{
	master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || grantpt(master) || unlockpt(master) ||
	    ptsname_r(master, slave_path, sizeof(slave_path)))
		fail_msg("no pseudoterminals: %s", strerror(errno));
}

static void on_a_terminal(void)
{
	open(slave_path, O_RDWR | O_NOCTTY | O_NONBLOCK);
}

static void terminal_is_refused_unless_asked_for(void **state)
{
	struct file_target target;
	struct sp_error err = {0};

	open_pair();
	target = file_target_start(on_a_terminal);
	file_target_read(&target);
	assert_int_equal(file_target_save(&target, &file_target_options, &err), -ENOTSUP);
	assert_non_null(strstr(err.message, slave_path));
	assert_non_null(strstr(err.message, "--shell-job"));
	file_target_end(&target);
	close(master);
}

static void program_gets_the_terminal_of_the_restore(void **state)
{
	const struct sp_kind_options options = {.shell_job = true};
	int own_input = dup(STDIN_FILENO), own_terminal;
	struct file_target target;
	struct sp_error err = {0};
	struct file_copy copy;
	struct stat ours, restored;

	open_pair();
	target = file_target_start(on_a_terminal);
	file_target_read(&target);
	if (file_target_save(&target, &options, &err))
		fail_msg("%s", err.message);
	close(master);
	open_pair();
	own_terminal = open(slave_path, O_RDWR | O_NOCTTY);
	dup2(own_terminal, STDIN_FILENO);
	if (file_target_open(&target, &copy, &err))
		fail_msg("%s", err.message);
	fstat(STDIN_FILENO, &ours);
	fstat(file_copy_fd(&copy, 3), &restored);
	assert_int_equal(restored.st_rdev, ours.st_rdev);
	assert_true(fcntl(file_copy_fd(&copy, 3), F_GETFL) & O_NONBLOCK);
	assert_false(fcntl(STDIN_FILENO, F_GETFL) & O_NONBLOCK);
	dup2(own_input, STDIN_FILENO);
	close(own_input);
	close(own_terminal);
	close(master);
	file_copy_release(&copy);
	file_target_end(&target);
}

static void hold_a_master(void)
{
	posix_openpt(O_RDWR | O_NOCTTY);
}

/* The target still has it. */
static void number_that_is_taken_is_named(void **state)
{
	struct file_target target = file_target_start(hold_a_master);
	struct sp_error err = {0};
	struct file_copy copy;
	char name[32];

	file_target_read(&target);
	if (file_target_save(&target, &file_target_options, &err))
		fail_msg("%s", err.message);
	assert_int_equal(file_target_open(&target, &copy, &err), -EEXIST);
	assert_int_equal(ptsname_r(sp_file_table_lookup(&target.table, target.process.pid, 3)->fd,
	                           name, sizeof(name)),
	                 0);
	assert_non_null(strstr(err.message, name));
	assert_non_null(strstr(err.message, "mount -t devpts"));
	file_copy_release(&copy);
	file_target_end(&target);
}

static struct sp_open_file device_file(dev_t device)
{
	return (struct sp_open_file){
	        .fd = -1, .pid = getpid(), .stat = {.st_mode = S_IFCHR | 0600, .st_rdev = device}};
}

/* No hardware is needed: what a file is, its device number tells. */
static void hardware_is_told_by_its_number(void **state)
{
	const dev_t lines[] = {makedev(4, 1), makedev(4, 64), makedev(188, 0)};
	const dev_t consoles[] = {makedev(4, 0), makedev(5, 1)};
	const struct sp_kind_options options = {.shell_job = true};
	struct sp_file_saver saver = {.options = &options};

	for (size_t i = 0; i < SP_COUNT_OF(lines); i++) {
		const struct sp_open_file file = device_file(lines[i]);

		assert_true(sp_kind_line.claims(&file));
	}
	for (size_t i = 0; i < SP_COUNT_OF(consoles); i++) {
		const struct sp_open_file file = device_file(consoles[i]);
		struct sp_blob body = {0};
		struct sp_error err = {0};

		assert_false(sp_kind_line.claims(&file));
		assert_true(sp_kind_terminal.claims(&file));
		assert_int_equal(sp_kind_terminal.save(&saver, &file, &body, &err), -ENOTSUP);
		assert_non_null(strstr(err.message, "the console"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(terminal_is_refused_unless_asked_for),
	        cmocka_unit_test(program_gets_the_terminal_of_the_restore),
	        cmocka_unit_test(hardware_is_told_by_its_number),
	        cmocka_unit_test(number_that_is_taken_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
