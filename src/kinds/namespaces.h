/* Whether a program sees the system that sealpoint sees, and all its threads the same one. */
#ifndef SEALPOINT_KINDS_NAMESPACES_H
#define SEALPOINT_KINDS_NAMESPACES_H

#include "remote/process.h"

/**
 * Refuses a thread that lives in another namespace than sealpoint, or that does not share with its
 * process what threads share: descriptors, directories. Whatever is looked up by a name, a path or
 * an id afterwards means the same here and there.
 */
int sp_namespaces_check(const struct sp_process *process, struct sp_error *err);
/**
 * The same, for namespaces alone, of a process that may run: who is gone meanwhile is no reason to refuse. The kernel
 * has at hand then what it is asked for in the freeze.
 */
int sp_namespaces_look(pid_t pid, struct sp_error *err);

#endif
