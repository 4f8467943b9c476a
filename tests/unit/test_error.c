/* The words of an error: one sentence, whatever the names in it are. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_cannot_steer_a_terminal),
	        cmocka_unit_test(other_letters_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
