/*
 * Write tracking as the kernel offers it: thin functions over PAGEMAP_SCAN and userfaultfd write
 * protection. A page is protected; the first write to it takes the protection away, which is what
 * "written" means; a scan finds the written pages and can protect them again in the same step.
 *
 * Nothing is allocated, nothing is remembered, nothing is needed but libc. All functions return a
 * negative errno on failure and may be called by any number of threads at once. Descriptors may be
 * one's own or another process's: a userfaultfd always acts on the address space that created it
 * (ctx->mm in fs/userfaultfd.c), whoever holds the descriptor, and /proc/PID/pagemap on that of PID.
 * Addresses are those of that address space, multiples of the page size.
 *
 * Of the ways through PAGEMAP_SCAN only the kernel's fast ones are taken here: get, and get with
 * protection, for PAGE_IS_WRITTEN alone, and protection without a result (fs/proc/task_mmu.c,
 * pagemap_scan_pmd_entry()). Sources: ioctl_userfaultfd(2), PAGEMAP_SCAN(2const),
 * Documentation/admin-guide/mm/{userfaultfd,pagemap}.rst.
 *
 * What "written" says about a page:
 *  - A page of a mapping that is not registered always is written: nobody knows, so it has to be
 *    taken for changed. Protecting calls fail there with EPERM, see sp_scan_take().
 *  - A page that was discarded (MADV_DONTNEED) is written, until it is protected again. Not so a page
 *    of shared memory that has become a hole (MADV_REMOVE, fallocate(2)): its protection is kept.
 *  - A page that was never populated is written until it is protected; then it is not. So "written"
 *    does not mean that there are contents.
 *  - A page where nothing is mapped is never written. So nothing of a process that has ended or
 *    executed another program is: 6.18 answers with success, newer kernels with ESRCH. Whoever scans
 *    another process makes sure, after the scan, that it was alive (pidfd), before "nothing" is believed.
 *  - Tracking is per mapping: a write through another mapping of the same file or memfd, and
 *    write(2) to it, are not seen.
 * mremap(2) to another address and munmap(2) end the registration of what they move or remove,
 * fork(2) gives the child none, closing the last descriptor of the userfaultfd ends it for all.
 */
#ifndef SEALPOINT_TRACK_SCAN_H
#define SEALPOINT_TRACK_SCAN_H

#include "base/kernel_abi.h"
#include "base/range.h"

#include <linux/userfaultfd.h>
#include <stddef.h>

/** What asynchronous protection of every sort of memory needs: Linux 6.7. */
#define SP_UFFD_ASYNC \
	(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM)

/**
 * Opens a userfaultfd for one's own memory, close-on-exec and non-blocking: by the system call, from
 * /dev/userfaultfd, or, where neither is permitted, one that only handles faults of user mode
 * (UFFD_USER_MODE_ONLY, Linux 5.11, no privilege needed), in which case `*user_mode_only` becomes
 * true. Under asynchronous protection that makes no difference: the kernel's own writes are
 * resolved and seen all the same. Returns the descriptor, the caller's to close.
 */
int sp_uffd_open(bool *user_mode_only);

/**
 * Does the handshake (UFFDIO_API), which a userfaultfd accepts once: `features` are UFFD_FEATURE_
 * bits, SP_UFFD_ASYNC for asynchronous protection. -EINVAL if the kernel lacks one of them or the
 * handshake was done before.
 */
int sp_uffd_enable(int uffd, uint64_t features);

/**
 * Registers all mappings in a range for write protection, those that are registered already too.
 * Nothing is protected yet. With WP_ASYNC all sorts of memory can be registered, sealed memory too.
 * -EBUSY: a mapping belongs to another userfaultfd. -EINVAL: the range has no mapping, or one that
 * cannot be registered (device memory, a part of a hugetlb page). -EPERM: a shared mapping of a file
 * that was opened for reading only. -ENOMEM: too many mappings.
 */
int sp_uffd_register(int uffd, struct sp_range range);
/**
 * Ends registration and protection in a range; what is not registered is passed over. Older kernels
 * (6.12) do not look whose registration it is, and end that of another userfaultfd as well.
 */
int sp_uffd_unregister(int uffd, struct sp_range range);

/**
 * Protects all pages of a range, populated or not. All of it must be registered with `uffd`: -ENOENT
 * if not, and then a part may have been protected. -EAGAIN: mappings are just being changed, try again.
 */
int sp_uffd_protect(int uffd, struct sp_range range);
/** Takes the protection away and wakes the threads that wait for it (synchronous protection). */
int sp_uffd_unprotect(int uffd, struct sp_range range);
/** Wakes the threads that wait for a page of a range: they try again (synchronous protection). */
int sp_uffd_wake(int uffd, struct sp_range range);

/**
 * Reports written pages as ascending regions, adjacent pages joined, into `regions`, which has room
 * for `room` (at least 1) and is the caller's. Returns their number, and moves `range->start` on to
 * where the next call has to go on; the range is empty when all has been scanned:
 *
 *	while (range.start < range.end)
 *		n = sp_scan_written(pagemap, &range, regions, room, 0);
 *
 * With `max_pages`, no more than so many pages of 4 KiB are reported (and taken); 0: no limit. For
 * hugetlb memory it must be a multiple of its page.
 *
 * Neither the program nor other callers are disturbed; nothing is protected. Linux 6.7.
 */
int sp_scan_written(int pagemap, struct sp_range *range, struct page_region *regions, size_t room,
                    uint64_t max_pages);

/**
 * As sp_scan_written(), and protects each reported page again in the same step: a write is either
 * reported by this call or by the next one, never by none.
 *
 * -EPERM: a mapping in the range is not registered for asynchronous protection. Pages before it may
 * have been protected, and `regions` holds them, but their number is not known; in an array that was
 * cleared before they end at the first region with an `end` of 0. To rule that out, scan mapping by
 * mapping, or ask sp_scan_check() before while mappings cannot change.
 */
int sp_scan_take(int pagemap, struct sp_range *range, struct page_region *regions, size_t room,
                 uint64_t max_pages);

enum sp_scan_dirty_flag {
	SP_SCAN_DIRTY_TAKE = 1, /* protect what is reported, as sp_scan_take() */
	SP_SCAN_DIRTY_FILE =
	        2, /* a private mapping of a file: leave out what still is the file's */
};

/**
 * As sp_scan_written() or sp_scan_take(), for those who count: reports only written pages that have
 * contents of their own, in memory or swapped out. No hole, no guard page, and no page of zeros that
 * was only read; those are left unprotected as well, so no page table is made for a hole. A little
 * slower than the fast ways; SP_SCAN_DIRTY_FILE much, because the kernel looks up each page.
 */
int sp_scan_dirty(int pagemap, struct sp_range *range, struct page_region *regions, size_t room,
                  unsigned flags);

/**
 * Protects all written pages of a range without saying which. -EPERM as sp_scan_take(), when a part
 * may have been protected.
 */
int sp_scan_protect(int pagemap, struct sp_range range);

/**
 * Returns 0 if all mappings in a range are registered for asynchronous protection, -EPERM if not. No
 * page table is walked: the cost is that of a few mappings.
 */
int sp_scan_check(int pagemap, struct sp_range range);

#endif
