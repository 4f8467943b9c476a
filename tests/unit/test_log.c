/* What a run tells a person: base/log.h. */
#include "base/cleanup.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* What is written to standard error when warnings are told. */
static void read_told(struct sp_log *log, void (*tell)(struct sp_log *log), char *text, size_t size)
{
	sp_cleanup_close int saved = dup(STDERR_FILENO);
	int ends[2];
	ssize_t got;

	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	tell(log);
	dup2(saved, STDERR_FILENO);
	got = read(ends[0], text, size - 1);
	close(ends[0]);
	text[got > 0 ? got : 0] = '\0';
}

static void a_warning_is_told_once_with_the_result(void **state)
{
	struct sp_log log;
	char text[512];

	sp_log_init(&log, false, false);
	for (int i = 0; i < 3; i++) {
		sp_warn(&log, "descriptor %d", 7);
		sp_warn(&log, "descriptor %d", 8);
	}
	read_told(&log, sp_log_succeeded, text, sizeof(text));
	assert_string_equal(text, "sealpoint: warning: descriptor 7\n"
	                          "sealpoint: warning: descriptor 8\n");
	sp_warn(&log, "descriptor %d", 7);
	read_told(&log, sp_log_succeeded, text, sizeof(text));
	assert_string_equal(text, "sealpoint: warning: descriptor 7\n");
}

static void a_run_that_fails_tells_none(void **state)
{
	struct sp_log log;
	char text[512];

	sp_log_init(&log, false, false);
	sp_warn(&log, "lost");
	read_told(&log, sp_log_failed, text, sizeof(text));
	assert_string_equal(text, "");
	read_told(&log, sp_log_succeeded, text, sizeof(text));
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_warning_is_told_once_with_the_result),
	        cmocka_unit_test(a_run_that_fails_tells_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
