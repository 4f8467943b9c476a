/* sealpoint's own resource limits. */
#ifndef SEALPOINT_BASE_LIMIT_H
#define SEALPOINT_BASE_LIMIT_H

#include <stdint.h>

struct sp_error;

/**
 * Raises the soft limit of open files to the hard one, and where `needed`, or what sealpoint needs in any
 * case beside those that it has open already, is more than that and the caller may, the hard one too.
 * Fails with EMFILE and says how to raise it if that is not reached.
 */
int sp_raise_descriptor_limit(uint64_t needed, struct sp_error *err);

/**
 * Raises a soft limit of sealpoint's own (RLIMIT_*) to the hard one, as far as that is possible.
 */
void sp_raise_soft_limit(int resource);

#endif
