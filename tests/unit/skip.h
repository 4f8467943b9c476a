/* Skipping a unit test, with the reason: tests/run.sh shows what a test has said last. */
#ifndef SEALPOINT_TESTS_SKIP_H
#define SEALPOINT_TESTS_SKIP_H

/** Ends the test that calls it. As cmocka's skip(), it leaves no chance to clean up. */
#define skip_because(reason)                   \
	do {                                   \
		print_message("%s\n", reason); \
		skip();                        \
	} while (0)

/* 1 in a program that was built with the address sanitizer, or that for threads. */
#define is_sanitized 0
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef is_sanitized
#define is_sanitized 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef is_sanitized
#define is_sanitized 1
#endif
#endif

#endif
