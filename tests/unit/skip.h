/* Skipping a unit test, with the reason: tests/run.sh shows what a test has said last. */
#ifndef SEALPOINT_TESTS_SKIP_H
#define SEALPOINT_TESTS_SKIP_H

/** Ends the test that calls it. As cmocka's skip(), it leaves no chance to clean up. */
#define skip_because(reason)                   \
	do {                                   \
		print_message("%s\n", reason); \
		skip();                        \
	} while (0)

#endif
