/* Restartable sequences, as far as the restore itself has to do with them. */
#ifndef SEALPOINT_KINDS_RSEQ_H
#define SEALPOINT_KINDS_RSEQ_H

#include "remote/remote.h"

/**
 * Takes back the rseq(2) registration that the driver has inherited from sealpoint's C library. To
 * be called for a stub before sealpoint's memory is unmapped from it: the kernel writes to the
 * registered area whenever a task returns to user mode, and ends it with SIGSEGV if it cannot.
 */
int sp_rseq_drop_own(struct sp_remote *remote, struct sp_error *err);

#endif
