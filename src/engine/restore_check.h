/* Whether a checkpoint can be restored on this machine, now: see restore_check.c. */
#ifndef SEALPOINT_ENGINE_RESTORE_CHECK_H
#define SEALPOINT_ENGINE_RESTORE_CHECK_H

#include "base/log.h"
#include "image/checkpoint.h"

/** Refuses by name what is missing or in the way, warns of what may be. Changes nothing. */
int sp_restore_check(const struct sp_checkpoint *checkpoint, struct sp_log *log,
                     struct sp_error *err);

#endif
