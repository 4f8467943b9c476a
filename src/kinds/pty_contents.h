/*
 * What waits in a pseudoterminal: see pty_contents.c. For a pair of which nobody else can make use
 * just now: one of stopped processes, or one that is being made.
 */
#ifndef SEALPOINT_KINDS_PTY_CONTENTS_H
#define SEALPOINT_KINDS_PTY_CONTENTS_H

#include "base/array.h"

#include "pty.pb-c.h"

#include <asm/termbits.h>

struct sp_error;

struct sp_pty {
	int master;            /* not in packet mode */
	int slave;             /* an open file of our own, with O_NONBLOCK */
	struct termios2 modes; /* that the slave has, or is to have */
};

struct sp_pty_contents {
	Sealpoint__Pty__Contents message; /* of what the arrays have */
	struct sp_array output, lines, input, unseen;
};

void sp_pty_contents_init(struct sp_pty_contents *contents);
void sp_pty_contents_release(struct sp_pty_contents *contents);
/** Reads what waits, and puts it back. Needs CAP_SYS_ADMIN if there is something. */
int sp_pty_contents_save(const struct sp_pty *pty, struct sp_pty_contents *contents,
                         struct sp_error *err);
/** Gives the slave its modes, and puts into the empty pair what is to wait in it. */
int sp_pty_contents_put(const struct sp_pty *pty, const Sealpoint__Pty__Contents *contents,
                        struct sp_error *err);

#endif
