/*
 * The processor: every checkpoint says what the one it was made on can do, and a restore needs all of that. It
 * can be saved and compared without a program, too.
 */
#ifndef SEALPOINT_ENGINE_PROCESSOR_H
#define SEALPOINT_ENGINE_PROCESSOR_H

#include "base/log.h"
#include "image/checkpoint.h"

#define SP_PROCESSOR_FILE "processor"

/** Refuses a program that may use what is not here. */
int sp_processor_check(const Sealpoint__Manifest *saved, struct sp_error *err);
/** Warns if what is more here may do harm. */
void sp_processor_warn(const Sealpoint__Manifest *saved, struct sp_log *log);

/** Writes what this processor can do to SP_PROCESSOR_FILE of a directory, whose file of that name it replaces. */
int sp_processor_save(const char *directory, struct sp_error *err);
/** Checks, and warns, by that file, or by the manifest of a checkpoint: `name` in the directory. */
int sp_processor_compare(const char *directory, const char *name, struct sp_log *log,
                         struct sp_error *err);

#endif
