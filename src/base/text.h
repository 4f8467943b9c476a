/*
 * Text that comes from a program or an image, on its way to a person: a name with a newline in it would
 * make two lines of one sentence, and one with an escape sequence would steer the terminal.
 */
#ifndef SEALPOINT_BASE_TEXT_H
#define SEALPOINT_BASE_TEXT_H

#include <ctype.h>

/** Replaces each control character by a question mark. */
static inline void sp_text_make_plain(char *text)
{
	for (; *text; text++)
		if (iscntrl((unsigned char)*text))
			*text = '?';
}

#endif
