/* A userfaultfd of another process's memory. */
#ifndef SEALPOINT_REMOTE_USERFAULTFD_H
#define SEALPOINT_REMOTE_USERFAULTFD_H

#include "remote/remote.h"

/**
 * Lets the driver create a userfaultfd, takes it over and closes the target's copy: it acts on the
 * target's memory as long as the caller holds it. Not enabled yet (UFFDIO_API). It does not report
 * faults of the kernel's (UFFD_USER_MODE_ONLY), so no privilege is needed; asynchronous write
 * protection does not report any, and works for the kernel's writes too.
 *
 * Returns the descriptor, close-on-exec and non-blocking. ENOSYS where the kernel has none.
 */
int sp_remote_userfaultfd(struct sp_remote *remote, struct sp_error *err);

/**
 * As above, one that also reports the kernel's own faults: a read(2) into protected memory waits,
 * and does not fail. A target that may not make one itself is handed /dev/userfaultfd for it, which
 * the caller must be able to open (EACCES, ENOENT if not); a caller that is killed just then leaves a
 * few close-on-exec descriptors in the target.
 */
int sp_remote_userfaultfd_for_kernel(struct sp_remote *remote, struct sp_error *err);

/**
 * The same of a process that runs: it is stopped for a moment, until `deadline_ns` at the latest, and
 * driven by one of both functions, `drive`. `foothold` was found in it before.
 */
int sp_userfaultfd_of(pid_t pid, const struct sp_foothold *foothold,
                      int (*drive)(struct sp_remote *remote, struct sp_error *err),
                      uint64_t deadline_ns, struct sp_error *err);

#endif
