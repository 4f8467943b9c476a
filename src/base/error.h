/*
 * The one error object (docs/architecture.md, D8).
 *
 * A function that can fail takes a `struct sp_error *` and returns 0 or a negative errno. The place
 * that knows what went wrong fills the error with sp_fail(); each caller that knows more about the
 * circumstances puts its own words in front with sp_error_context(). The command prints the result
 * once: "cannot restore descriptor 7 of process 4242 (listening unix socket /run/x.sock):
 * another program answers at /run/x.sock; stop it before the restore".
 *
 * A sentence says what cannot be done, then the reason, then behind a semicolon the way out, if
 * there is one: "cannot ...: reason; way out".
 *
 * An error object belongs to one thread at a time. Passing NULL is allowed: the code is still
 * returned, the words are dropped. So a function that itself looks at err->code has to be given one,
 * or to make one.
 */
#ifndef SEALPOINT_BASE_ERROR_H
#define SEALPOINT_BASE_ERROR_H

#include <stdbool.h>

struct sp_error {
	int code;           /* positive errno; 0 while nothing has failed */
	char message[1024]; /* complete sentence without a final full stop, never empty once set */
};

/**
 * Sets the error to `code` (a positive errno) and the formatted message, as it is: nothing is
 * appended. Use it for refusals whose words already say everything. Returns -code.
 */
int sp_fail(struct sp_error *err, int code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/**
 * As sp_fail(), and appends ": " and the text of `code`. For failed system calls. Returns -code.
 */
int sp_fail_errno(struct sp_error *err, int code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/**
 * For what cannot be in an image: EBADMSG, and "the record is damaged: " in front of the formatted
 * words, which name it ("an impossible size"). Returns -EBADMSG.
 */
int sp_fail_damaged(struct sp_error *err, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/**
 * Puts "<formatted words>: " in front of the message. Returns -err->code, so that a caller can end
 * with `return sp_error_context(err, "cannot ...")`. With err NULL it returns -EIO.
 */
int sp_error_context(struct sp_error *err, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

struct sp_array;
/**
 * For those who want to hear of all that stands in the way, and not only of the first thing: moves the
 * error to `list`, of struct sp_error, and returns 0. Without a list, or if it is no refusal but the end of
 * the run (EINTR, ESRCH), `rc` stays what it is; so does 0.
 */
int sp_error_collect(struct sp_array *list, int rc, struct sp_error *err);

static inline bool sp_failed(const struct sp_error *err)
{
	return err->code != 0;
}

#endif
