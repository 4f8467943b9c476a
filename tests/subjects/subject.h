/*
 * What a subject is: a program that is dumped and restored, and that finds out for itself whether
 * anything has changed.
 *
 *	int main(void)
 *	{
 *		int fd = eventfd(7, 0);		// set up the state under test
 *
 *		subject_need(fd >= 0, "eventfd");	// the set-up itself failed
 *		subject_ready();			// the dumps and restores happen in here
 *		subject_check(read_counter(fd) == 7, "counter is %llu", ...);
 *		return subject_end();
 *	}
 *
 * A subject shares nothing with the outside but two regular files: descriptor 0 is an empty one,
 * and what the subject says goes to descriptor 1. subject_ready() says READY and waits until the
 * empty file has a first byte: reading at the end of a file needs no signal, no path, no user and
 * no memory, so that waiting disturbs no state that a subject may want to look at. Checks that fail
 * say "FAIL: what differs", with file and line, and the others still run. subject_end() says PASS
 * if all held.
 *
 * Continuous subjects start threads before subject_ready() that work and check while the dump
 * happens, as long as subject_running() is true.
 *
 * A subject is run in several modes (tests/subject.sh): killed by the dump and restored ("kill"),
 * left running, then restored from the image after it has passed ("running"), dumped and restored
 * twice ("twice"), dumped three times with its writes tracked, each dump on the one before, and
 * restored from the last ("delta"), saved ahead twice before the dump ("pre-dump"), left running by
 * a dump that saves it while it runs ("live"), and killed and restored as a process of a user without
 * privileges ("user"). So a check must not destroy outside itself what the image needs again:
 * a file's contents, for example. A line in the subject's opening comment may change how it is run:
 *
 *	subject: except=running,user user=nobody dump=--tcp-close timeout=120 ignore=maps
 *
 *	except=LIST	not in these modes; the comment says why
 *	modes=none	in no mode: a script runs it
 *	user=NAME	runs as this user; sealpoint itself runs as root
 *	dump=OPTIONS	for sealpoint dump, separated by commas
 *	restore=OPTIONS	for sealpoint restore
 *	timeout=S	seconds for one mode (default 60)
 *	ignore=LIST	parts of /proc that may differ afterwards (see proc_snapshot in
 * tests/lib.sh)
 */
#ifndef SEALPOINT_TESTS_SUBJECT_H
#define SEALPOINT_TESTS_SUBJECT_H

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SUBJECT_SKIPPED 77 /* exit status: this machine cannot run the subject */

static atomic_int subject_failures;
static atomic_bool subject_went;

/** Says one line: a single write(2), with no buffer of the C library between. Thread safe. */
static inline void subject_say(const char *verdict, const char *file, int line, const char *format,
                               va_list args)
{
	char text[512];
	int used = snprintf(text, sizeof(text), "%s: %s:%d: ", verdict, file, line);

	used += vsnprintf(text + used, sizeof(text) - 1 - (size_t)used, format, args);
	if ((size_t)used > sizeof(text) - 2)
		used = sizeof(text) - 2;
	text[used++] = '\n';
	if (write(STDOUT_FILENO, text, (size_t)used) != used)
		_exit(3);
}

static inline bool subject_check_at(bool holds, const char *file, int line, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
static inline void subject_need_at(bool holds, const char *file, int line, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
static inline void subject_skip(const char *format, ...)
        __attribute__((format(printf, 1, 2), noreturn));

static inline bool subject_check_at(bool holds, const char *file, int line, const char *format, ...)
{
	va_list args;

	if (holds)
		return true;
	atomic_fetch_add(&subject_failures, 1);
	va_start(args, format);
	subject_say("FAIL", file, line, format, args);
	va_end(args);
	return false;
}

static inline void subject_need_at(bool holds, const char *file, int line, const char *format, ...)
{
	char text[256];
	int saved = errno;
	va_list args;

	if (holds)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	subject_check_at(false, file, line, "set-up: %s: %s", text, strerror(saved));
	_exit(1);
}

/** Checks that something still is as it was; says the rest if not. True if it holds. */
#define subject_check(holds, ...) subject_check_at((holds), __FILE__, __LINE__, __VA_ARGS__)
/** Ends the subject if a step of the set-up failed; adds the text of errno. */
#define subject_need(holds, ...) subject_need_at((holds), __FILE__, __LINE__, __VA_ARGS__)

/** Ends the subject before READY: this machine lacks what it needs. */
static inline void subject_skip(const char *format, ...)
{
	va_list args;

	fputs("SKIP: ", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	_exit(SUBJECT_SKIPPED);
}

/** True until it is time to check: for threads that work while the subject is dumped. */
static inline bool subject_running(void)
{
	return !atomic_load_explicit(&subject_went, memory_order_relaxed);
}

/** Waits until descriptor 0 has a first byte. */
static inline void subject_wait(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) == 0)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	atomic_store(&subject_went, true);
}

/** Says READY and waits: everything after this call may happen in the restored process. */
static inline void subject_ready(void)
{
	if (write(STDOUT_FILENO, "READY\n", 6) != 6)
		_exit(3);
	subject_wait();
}

/** Says PASS if nothing has failed. Returns the exit status. */
static inline int subject_end(void)
{
	if (atomic_load(&subject_failures))
		return 1;
	return write(STDOUT_FILENO, "PASS\n", 5) == 5 ? 0 : 3;
}

#endif
