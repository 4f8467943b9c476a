/* The readers of /proc/PID/status and stat: odd names, missing lines, and our own task as it is. */
#include "base/cleanup.h"
#include "base/error.h"
#include "proc/capability.h"
#include "proc/stat.h"
#include "proc/status.h"

#include <errno.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char text[] = "Name:\tSigPnd: 5\\nUid: 7\n"
                           "Umask:\t0027\n"
                           "Uid:\t1\t2\t3\t4294967295\n"
                           "Groups:\t4 24 1000 \n"
                           "SigBlk:\tfffffffe7ffbfeff\n"
                           "Odd:\t-3\n"
                           "Empty:\t\n"
                           "Last:\t12";

static void values_are_found_behind_their_names(void **state)
{
	struct sp_error err = {};
	uint64_t number;

	assert_int_equal(sp_status_number(text, "Umask", 8, &number, &err), 0);
	assert_int_equal(number, 027);
	assert_int_equal(sp_status_number(text, "SigBlk", 16, &number, &err), 0);
	assert_true(number == 0xfffffffe7ffbfeffULL);
	assert_int_equal(sp_status_number(text, "Last", 10, &number, &err), 0);
	assert_int_equal(number, 12);
	assert_true(sp_status_is(text, "Umask", "0027"));
	assert_false(sp_status_is(text, "Umask", "002"));
}

static void a_name_inside_a_value_is_not_a_line(void **state)
{
	uint32_t ids[4];
	struct sp_error err = {};
	uint64_t number;
	size_t count;

	assert_int_equal(sp_status_number(text, "SigPnd", 16, &number, &err), -EBADMSG);
	assert_int_equal(sp_status_numbers(text, "Uid", ids, 4, &count, &err), 0);
	assert_int_equal(ids[0], 1);
	assert_true(ids[3] == UINT32_MAX);
}

static void lists_are_read_whole_or_refused(void **state)
{
	struct sp_error err = {};
	uint32_t groups[3];
	size_t count;

	assert_int_equal(sp_status_numbers(text, "Groups", groups, 3, &count, &err), 0);
	assert_int_equal(count, 3);
	assert_int_equal(groups[2], 1000);
	assert_int_equal(sp_status_numbers(text, "Groups", groups, 2, &count, &err), -E2BIG);
	assert_int_equal(sp_status_numbers(text, "Empty", groups, 3, &count, &err), 0);
	assert_int_equal(count, 0);
	assert_int_equal(sp_status_numbers(text, "Odd", groups, 3, &count, &err), -EBADMSG);
	assert_int_equal(sp_status_numbers(text, "SigBlk", groups, 3, &count, &err), -EBADMSG);
}

static void a_number_never_comes_from_the_next_line(void **state)
{
	struct sp_error err = {};
	uint64_t number;

	assert_int_equal(sp_status_number(text, "Empty", 10, &number, &err), -EBADMSG);
	assert_int_equal(sp_status_number(text, "Odd", 10, &number, &err), -EBADMSG);
}

static void own_status_is_read(void **state)
{
	sp_cleanup_free char *own = NULL;
	mode_t mask = umask(022);
	struct sp_error err = {};
	uint64_t number;

	umask(0135);
	assert_int_equal(sp_status_read(getpid(), gettid(), &own, &err), 0);
	umask(mask);
	assert_int_equal(sp_status_number(own, "Umask", 8, &number, &err), 0);
	assert_int_equal(number, 0135);
	assert_int_equal(sp_status_number(own, "CapPrm", 16, &number, &err), 0);
	assert_true(number == sp_capability_permitted());
}

static void own_stat_is_read_whatever_the_name(void **state)
{
	struct sp_error err = {};
	struct sp_stat stat;

	assert_int_equal(prctl(PR_SET_NAME, "a) R 1 (\n2) S"), 0);
	assert_int_equal(sp_stat_read(getpid(), gettid(), &stat, &err), 0);
	assert_string_equal(stat.comm, "a) R 1 (\n2) S");
	assert_int_equal(stat.state, 'R');
	assert_int_equal(stat.ppid, getppid());
	assert_int_equal(stat.pgrp, getpgrp());
	assert_int_equal(stat.session, getsid(0));
	assert_true(stat.start_stack > stat.start_code);
	assert_true(stat.env_end > stat.arg_start);
	assert_true(stat.start_code < stat.end_code);
}

static void damaged_stat_is_refused(void **state)
{
	struct sp_error err = {};
	struct sp_stat stat;

	assert_int_equal(sp_stat_parse("", &stat, &err), -EBADMSG);
	assert_int_equal(sp_stat_parse("1 (x", &stat, &err), -EBADMSG);
	assert_int_equal(sp_stat_parse(")(", &stat, &err), -EBADMSG);
	assert_int_equal(sp_stat_parse("1 (x) S 2 3", &stat, &err), -EBADMSG);
	assert_int_equal(sp_stat_read(getpid(), 1, &stat, &err), -ENOENT);
}

static void capabilities_have_names(void **state)
{
	char names[64], short_text[8];

	assert_string_equal(sp_capability_name(CAP_SYS_RESOURCE), "CAP_SYS_RESOURCE");
	assert_string_equal(sp_capability_name(CAP_CHECKPOINT_RESTORE), "CAP_CHECKPOINT_RESTORE");
	sp_capability_names(1ULL << CAP_KILL | 1ULL << 63, names, sizeof(names));
	assert_string_equal(names, "CAP_KILL, capability 63");
	sp_capability_names(~0ULL, short_text, sizeof(short_text));
	assert_string_equal(short_text, "CAP_CHO");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(values_are_found_behind_their_names),
	        cmocka_unit_test(a_name_inside_a_value_is_not_a_line),
	        cmocka_unit_test(lists_are_read_whole_or_refused),
	        cmocka_unit_test(a_number_never_comes_from_the_next_line),
	        cmocka_unit_test(own_status_is_read),
	        cmocka_unit_test(own_stat_is_read_whatever_the_name),
	        cmocka_unit_test(damaged_stat_is_refused),
	        cmocka_unit_test(capabilities_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
