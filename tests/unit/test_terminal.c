/* Terminals: only on request, and then the restore's own. */
#include "unit/file_target.h"

#include <sys/ioctl.h>

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

static void master_of_a_pseudoterminal_is_refused(void **state)
{
	const struct sp_kind_options options = {.shell_job = true};
	struct file_target target = file_target_start(hold_a_master);
	struct sp_error err = {0};

	file_target_read(&target);
	assert_int_equal(file_target_save(&target, &options, &err), -ENOTSUP);
	assert_non_null(strstr(err.message, "the master of a pseudoterminal"));
	file_target_end(&target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(terminal_is_refused_unless_asked_for),
	        cmocka_unit_test(program_gets_the_terminal_of_the_restore),
	        cmocka_unit_test(master_of_a_pseudoterminal_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
