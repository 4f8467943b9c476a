/*
 * The error object: see error.h. A message that does not fit is cut at its end, the outer words
 * stay.
 */
#include "base/error.h"

#include "base/array.h"
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_message(struct sp_error *err, int code, const char *format, va_list args)
{
	err->code = code;
	vsnprintf(err->message, sizeof(err->message), format, args);
	sp_text_make_plain(err->message);
}

int sp_fail(struct sp_error *err, int code, const char *format, ...)
{
	va_list args;

	if (!err)
		return -code;
	va_start(args, format);
	set_message(err, code, format, args);
	va_end(args);
	return -code;
}

int sp_fail_errno(struct sp_error *err, int code, const char *format, ...)
{
	va_list args;
	size_t used;

	if (!err)
		return -code;
	va_start(args, format);
	set_message(err, code, format, args);
	va_end(args);
	used = strlen(err->message);
	snprintf(err->message + used, sizeof(err->message) - used, ": %s", strerror(code));
	return -code;
}

int sp_fail_damaged(struct sp_error *err, const char *format, ...)
{
	va_list args;

	if (!err)
		return -EBADMSG;
	va_start(args, format);
	set_message(err, EBADMSG, format, args);
	va_end(args);
	return sp_error_context(err, "the record is damaged");
}

int sp_error_context(struct sp_error *err, const char *format, ...)
{
	char inner[sizeof(err->message)];
	va_list args;
	size_t used;

	if (!err)
		return -EIO;
	memcpy(inner, err->message, sizeof(inner));
	va_start(args, format);
	set_message(err, err->code, format, args);
	va_end(args);
	used = strlen(err->message);
	snprintf(err->message + used, sizeof(err->message) - used, ": %s", inner);
	return -err->code;
}

int sp_error_collect(struct sp_array *list, int rc, struct sp_error *err)
{
	if (!rc || !list || rc == -EINTR || rc == -ESRCH)
		return rc;
	sp_array_append(list, err);
	*err = (struct sp_error){0};
	return 0;
}
