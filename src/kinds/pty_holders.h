/* Who else has a pseudoterminal open: see pty_holders.c. */
#ifndef SEALPOINT_KINDS_PTY_HOLDERS_H
#define SEALPOINT_KINDS_PTY_HOLDERS_H

struct sp_error;
struct sp_file_saver;

/** Refuses, by name, a process that is not saved and has open an end of a pair in the saver's table. */
int sp_pty_check_holders(const struct sp_file_saver *saver, struct sp_error *err);

#endif
