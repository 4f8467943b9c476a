/*
 * Which pages of my memory were written since I last asked?
 *
 * A watch covers one range of the calling process's own memory, or several mappings of the same
 * memory (mirrors). It reports the pages that were written since they were last reset: as ranges, as
 * addresses (what GetWriteWatch and ResetWriteWatch of Windows give), as a bitmap or as a number.
 *
 *	struct sp_write_watch *watch;
 *	struct sp_span ram = {memory, memory + size}, written[64];
 *
 *	sp_write_watch_open(&watch, ram, SP_WRITE_WATCH_AUTO);
 *	...
 *	for (struct sp_span left = ram; left.start < left.end;) {
 *		n = sp_write_watch_ranges(watch, &left, SP_WRITE_WATCH_RESET, written, 64);
 *		for (i = 0; i < n; i++)
 *			redraw(written[i].start, written[i].end);
 *	}
 *	sp_write_watch_close(watch);
 *
 * Conventions of all functions:
 *  - A span is half open, lies inside the watched range, and its ends are multiples of the
 *    granularity (sp_write_watch_granularity()). Otherwise: -EINVAL.
 *  - Those that can fail return a negative errno, and nothing has been reset then. In a child of
 *    fork(2) they return -ECHILD: a watch belongs to the process that opened it; the child's memory
 *    is ordinary memory, and the child may close its copy and open watches of its own.
 *  - All may be called by several threads at once, also on the same watch, while other threads write
 *    to the memory; only sp_write_watch_close() must be the last call on its watch.
 *  - What is returned or filled in is the caller's. No call but open and close allocates anything.
 *
 * What counts as written, with every backend:
 *  - Nothing, when the watch has just been opened: it starts with a reset.
 *  - A page that any thread stored to, whether the value changed or not. Reading never counts.
 *  - A write that ended before a call began is reported by that call, if the page was not reset in
 *    between. A page may be reported although nothing was written (after a write in the same huge
 *    page, for example): more is reported, never less, except as the guarantees say.
 *  - Not: writes through mappings that are not part of the watch, by other processes, and changes of
 *    the file or memfd behind a mapping, by write(2) or by punching holes (madvise(2) too).
 * What only some backends can do is told by sp_write_watch_guarantees().
 *
 * While it is watched, memory may be unmapped, discarded and mapped anew (see
 * SP_WRITE_WATCH_DISCARDS and _REMAPS); memory that mremap(2) moves away is no longer watched. Close
 * the watch before its addresses are used for something else.
 *
 * Linux on x86_64; the backends name the versions. Overview: sp_write_watch(7).
 */
#ifndef SEALPOINT_WRITE_WATCH_H
#define SEALPOINT_WRITE_WATCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SP_WRITE_WATCH_API __attribute__((visibility("default")))

struct sp_write_watch;

/** Memory from `start` up to, not including, `end`. */
struct sp_span {
	char *start;
	char *end;
};

/** How writes are found. The first one that works is taken by SP_WRITE_WATCH_AUTO. */
enum sp_write_watch_backend {
	SP_WRITE_WATCH_AUTO = 0,
	/**
	 * PAGEMAP_SCAN and asynchronous userfaultfd write protection, Linux 6.7. The kernel does it
	 * all: no thread, no signal handler, no cost but a short fault at the first write to each
	 * page.
	 */
	SP_WRITE_WATCH_SCAN = 1,
	/**
	 * userfaultfd write protection served by a thread, Linux 6.4. Each first write to a page waits
	 * for that thread.
	 */
	SP_WRITE_WATCH_USERFAULT = 2,
	/**
	 * Soft-dirty bits (/proc/PID/clear_refs), Linux 3.11 with MEM_SOFT_DIRTY. They are reset
	 * for the whole process, which disturbs other users of these bits, and writes of other
	 * threads during a reset may be lost.
	 */
	SP_WRITE_WATCH_SOFT_DIRTY = 3,
	/**
	 * mprotect(2) and a handler for SIGSEGV. System calls that write to the memory fail with EFAULT
	 * until the program has written there itself. The memory must be readable and writable, and the
	 * program must keep the handler and the protection as they are.
	 */
	SP_WRITE_WATCH_MPROTECT = 4,
};

/** What a watch can be relied on for, as bits. */
enum sp_write_watch_guarantee {
	/** A write during a call with reset is reported by that call or by the next one. */
	SP_WRITE_WATCH_ATOMIC = 1 << 0,
	/** System calls can write to the memory (read(2), io_uring, ...), and these writes count. */
	SP_WRITE_WATCH_KERNEL_WRITES = 1 << 1,
	/** Discarded private pages (madvise(2) with MADV_DONTNEED) count. */
	SP_WRITE_WATCH_DISCARDS = 1 << 2,
	/** Memory that was mapped anew in the range counts as written, and is watched from the next reset. */
	SP_WRITE_WATCH_REMAPS = 1 << 3,
	/** A reset concerns the given span only, and nobody else. */
	SP_WRITE_WATCH_LOCAL = 1 << 4,
	/** No handler for SIGSEGV is needed. */
	SP_WRITE_WATCH_NO_SIGNALS = 1 << 5,
};

/** For the functions that take flags: reset what is reported, in the same step. */
#define SP_WRITE_WATCH_RESET 1u

/**
 * Starts to watch `memory`, all of which must be mapped, and starts with a reset. Private, shared
 * and file mappings can be watched, sealed and hugetlb memory too. `*watch` is the caller's to close.
 *
 * -EINVAL: not page-aligned (hugetlb memory: to its pages), empty, or not to be watched (device
 * memory). -ENOMEM: not all mapped, or out of memory. -EBUSY: watched already, or under a userfaultfd
 * of the program. -EOPNOTSUPP: this kernel does not have the backend. -EPERM: not permitted to use it,
 * or (SCAN, USERFAULT) a shared mapping of a file opened for reading only, or (MPROTECT) sealed memory.
 * -EACCES: (MPROTECT) a mapping that cannot be made writable. Thread-safe.
 */
SP_WRITE_WATCH_API int sp_write_watch_open(struct sp_write_watch **watch, struct sp_span memory,
                                           enum sp_write_watch_backend backend);

/**
 * As sp_write_watch_open(), for memory that is mapped `count` times (1 to 64): a write through any of
 * the mappings counts. `starts` are where they begin, `size` bytes each, not overlapping; the array is
 * not kept. Spans and results are in terms of the first one. Pages reached through one mapping count
 * as written only once it was written through a watched mapping, not by write(2) to the memfd.
 */
SP_WRITE_WATCH_API int sp_write_watch_open_mirrored(struct sp_write_watch **watch,
                                                    char *const *starts, size_t count, size_t size,
                                                    enum sp_write_watch_backend backend);

/**
 * Ends the watch: the memory is ordinary memory again. No other call on it may be running. NULL is
 * allowed. Threads may be writing to the memory meanwhile.
 */
SP_WRITE_WATCH_API void sp_write_watch_close(struct sp_write_watch *watch);

/**
 * Reports written pages as ascending ranges, adjacent ones joined where they are found together.
 * Returns how many of the `room` (at least 1) entries of `ranges` were filled in, and moves
 * `left->start` on: behind what this call has reported or found unwritten. The span is empty when all
 * has been seen; until then, call again. `flags`: 0 or SP_WRITE_WATCH_RESET.
 */
SP_WRITE_WATCH_API ssize_t sp_write_watch_ranges(struct sp_write_watch *watch, struct sp_span *left,
                                                 unsigned flags, struct sp_span *ranges,
                                                 size_t room);

/**
 * As sp_write_watch_ranges(), but reports the address of each written page, of
 * sp_write_watch_granularity() bytes. It may leave entries free although the span is not empty yet.
 */
SP_WRITE_WATCH_API ssize_t sp_write_watch_addresses(struct sp_write_watch *watch,
                                                    struct sp_span *left, unsigned flags,
                                                    char **addresses, size_t room);

/**
 * Reports written pages as bits: bit i % 64 of `bits[i / 64]` is page i of the span, of
 * sp_write_watch_granularity() bytes. All bits of the words that the span needs, rounded up, are set
 * or cleared. Returns the number of written pages.
 */
SP_WRITE_WATCH_API ssize_t sp_write_watch_bitmap(struct sp_write_watch *watch, struct sp_span span,
                                                 unsigned flags, uint64_t *bits);

/** Returns the number of written pages, of sp_write_watch_granularity() bytes. */
SP_WRITE_WATCH_API ssize_t sp_write_watch_count(struct sp_write_watch *watch, struct sp_span span,
                                                unsigned flags);

/** Forgets what was written in a span: as if nothing had been. Returns 0 or a negative errno. */
SP_WRITE_WATCH_API int sp_write_watch_reset(struct sp_write_watch *watch, struct sp_span span);

/** The backend in use, never SP_WRITE_WATCH_AUTO. */
SP_WRITE_WATCH_API enum sp_write_watch_backend sp_write_watch_backend(
        const struct sp_write_watch *watch);

/** Its guarantees for this watch: bits of enum sp_write_watch_guarantee. */
SP_WRITE_WATCH_API unsigned sp_write_watch_guarantees(const struct sp_write_watch *watch);

/** The bytes of a page as it is reported: 4096, or the size of the pages of hugetlb memory. */
SP_WRITE_WATCH_API size_t sp_write_watch_granularity(const struct sp_write_watch *watch);

/** A short name such as "scan", a constant; "unknown" for what is none. */
SP_WRITE_WATCH_API const char *sp_write_watch_backend_name(enum sp_write_watch_backend backend);

/**
 * Tries a backend out on a page of its own. Returns 0, and the guarantees that a watch would have in
 * `*guarantees` (NULL: not wanted), or the error that sp_write_watch_open() would give.
 */
SP_WRITE_WATCH_API int sp_write_watch_probe(enum sp_write_watch_backend backend,
                                            unsigned *guarantees);

#ifdef __cplusplus
}
#endif

#endif
