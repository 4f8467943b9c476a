/* Pseudoterminals as terminals of sessions: see pty.c. */
#ifndef SEALPOINT_KINDS_PTY_H
#define SEALPOINT_KINDS_PTY_H

#include "kinds/kind.h"

/** True for the master of a pseudoterminal. */
bool sp_pty_is_master(const struct sp_open_file *file);
/** True if the file is a slave that is dead: its master was closed, or vhangup(2) was called for it. */
bool sp_pty_is_hung_up(const struct sp_open_file *file);
/** The terminal that a file is (TIOCGDEV), also where it was opened as /dev/tty; 0: that cannot be told. */
dev_t sp_pty_terminal(const struct sp_open_file *file);
/**
 * The master of a slave, by the slave's device: what sp_pty_terminal() tells, or /proc/PID/stat of who
 * has it as controlling terminal. NULL if no process of the table has it open.
 */
const struct sp_open_file *sp_pty_find_master(const struct sp_file_table *table, dev_t slave);

#endif
