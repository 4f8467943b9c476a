/*
 * Which pages of a process are populated, and with what: one view of PAGEMAP_SCAN (Linux 6.7) and,
 * where the kernel has none, of /proc/PID/pagemap.
 *
 * Reported are runs of populated pages in the categories of PAGEMAP_SCAN. Two of its traps are
 * dealt with here. It calls everything SWAPPED that is neither empty nor present, also the markers
 * that write protection and guard regions leave; such runs are looked up in pagemap, and only real
 * swap entries are reported as SWAPPED. And its walk_end cannot be relied on (see
 * sp_page_scan_walk()).
 */
#ifndef SEALPOINT_MEM_PAGE_SCAN_H
#define SEALPOINT_MEM_PAGE_SCAN_H

#include "base/kernel_abi.h"
#include "base/range.h"

#include <stdbool.h>
#include <sys/types.h>

struct sp_error;

struct sp_page_scan {
	int pagemap;
	uint64_t categories; /* that this kernel's PAGEMAP_SCAN knows; 0: it has no PAGEMAP_SCAN */
	uint64_t zero_frame; /* of the zero page, where only pagemap is there to tell; 0: unknown */
	bool soft_dirty;     /* PAGE_IS_SOFT_DIRTY is reported */
	struct page_region *regions;
};

/**
 * Receives runs of pages, ascending. `categories`: PAGE_IS_PRESENT, PAGE_IS_SWAPPED (a real swap
 * entry) or PAGE_IS_GUARD, with PAGE_IS_FILE, PAGE_IS_PFNZERO, PAGE_IS_HUGE as they apply. Without
 * PAGEMAP_SCAN huge pages are not told apart.
 */
typedef int (*sp_page_visitor)(void *context, struct sp_range run, uint64_t categories,
                               struct sp_error *err);

/** Opens the page table of process `pid`, which may be running. */
int sp_page_scan_open(struct sp_page_scan *scan, pid_t pid, struct sp_error *err);
/**
 * Does without PAGEMAP_SCAN from here on; sp_page_scan_open() does so where the kernel has none.
 */
void sp_page_scan_use_pagemap(struct sp_page_scan *scan);
/** Reports PAGE_IS_SOFT_DIRTY as well, which only pagemap tells on all kernels that have it. */
void sp_page_scan_use_soft_dirty(struct sp_page_scan *scan);
void sp_page_scan_close(struct sp_page_scan *scan);
/** Visits the populated pages of a page-aligned range; stops at the visitor's first error. */
int sp_page_scan_walk(struct sp_page_scan *scan, struct sp_range range, sp_page_visitor visit,
                      void *context, struct sp_error *err);

/**
 * Visits the pages of a range that two processes have in common: present in both, at the same address, in the
 * same frame, and not a file's. Their categories are not told (0). Without CAP_SYS_ADMIN there are none.
 */
int sp_page_scan_common(const struct sp_page_scan *scan, const struct sp_page_scan *other,
                        struct sp_range range, sp_page_visitor visit, void *context,
                        struct sp_error *err);

#endif
