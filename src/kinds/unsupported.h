/* Words for open files that no kind claims: what they are and what the user can do (D5). */
#ifndef SEALPOINT_KINDS_UNSUPPORTED_H
#define SEALPOINT_KINDS_UNSUPPORTED_H

#include "kinds/kind.h"

/**
 * Fills in the refusal: ENOTSUP, the descriptor or mapping by number, what it is, what to do.
 */
int sp_refuse_unsupported(const struct sp_open_file *file, struct sp_error *err);

#endif
