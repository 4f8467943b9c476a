/* The words of an error: one sentence, whatever the names in it are. */
#include "base/array.h"
#include "base/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void names_cannot_steer_a_terminal(void **state)
{
	struct sp_error err = {0};

	assert_int_equal(sp_fail(&err, EINVAL, "cannot open %s", "a\nb\033[2J\177"), -EINVAL);
	assert_string_equal(err.message, "cannot open a?b?[2J?");
	sp_error_context(&err, "cannot restore \"%s\"", "x\ty");
	assert_string_equal(err.message, "cannot restore \"x?y\": cannot open a?b?[2J?");
}

static void other_letters_stay(void **state)
{
	struct sp_error err = {0};

	sp_fail(&err, EINVAL, "%s", "caf\xc3\xa9");
	assert_string_equal(err.message, "caf\xc3\xa9");
}

static void a_list_takes_refusals_but_not_the_end_of_a_run(void **state)
{
	struct sp_array list = SP_ARRAY_OF(struct sp_error);
	struct sp_error err = {0};

	assert_int_equal(sp_error_collect(&list, 0, &err), 0);
	assert_int_equal(list.count, 0);
	assert_int_equal(sp_error_collect(&list, sp_fail(&err, ENOTSUP, "not this"), &err), 0);
	assert_false(sp_failed(&err));
	assert_int_equal(list.count, 1);
	assert_string_equal(((struct sp_error *)sp_array_at(&list, 0))->message, "not this");
	assert_int_equal(sp_error_collect(&list, sp_fail(&err, EINTR, "stopped"), &err), -EINTR);
	assert_int_equal(sp_error_collect(&list, sp_fail(&err, ESRCH, "gone"), &err), -ESRCH);
	assert_int_equal(sp_error_collect(NULL, sp_fail(&err, EPERM, "never"), &err), -EPERM);
	assert_string_equal(err.message, "never");
	assert_int_equal(list.count, 1);
	sp_array_release(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_cannot_steer_a_terminal),
	        cmocka_unit_test(other_letters_stay),
	        cmocka_unit_test(a_list_takes_refusals_but_not_the_end_of_a_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
