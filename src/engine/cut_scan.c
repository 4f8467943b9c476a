/*
 * Takes of a session that rests on asynchronous write protection (see cut.h): PAGEMAP_SCAN finds the
 * pages that are not protected, and protects them in the same step.
 *
 * What the kernel does not say in that way is added: parts where nothing is, pages of files that may
 * have been discarded, mappings that have just joined, and those that cannot be tracked.
 */
#include "engine/cut.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "mem/page_scan.h"
#include "track/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define REGIONS 1024

struct taker {
	struct sp_cut *cut;
	struct sp_page_scan populated;
	struct page_region *regions;
	bool frozen;
	uint64_t next; /* behind the last populated page */
};

static void add_hole(struct taker *taker, uint64_t end)
{
	struct sp_range hole = {
	        (taker->next + SP_HUGE_PAGE_SIZE - 1) & ~(SP_HUGE_PAGE_SIZE - 1),
	        end & ~(SP_HUGE_PAGE_SIZE - 1),
	};

	if (hole.start < hole.end)
		sp_ranges_add(&taker->cut->holes, hole);
}

static int visit_populated(void *context, struct sp_range run, uint64_t categories,
                           struct sp_error *err)
{
	struct taker *taker = context;

	add_hole(taker, run.start);
	taker->next = run.end;
	return 0;
}

/*
 * To protect a page that is not populated takes a page table for it. Programs reserve more address
 * space than that could be done for, so the parts where nothing is are left out: what appears there
 * is not protected, and so counts as written.
 */
static int find_holes(struct taker *taker, struct sp_range range)
{
	while (range.start < range.end && sp_range_size(range) >= SP_HUGE_PAGE_SIZE) {
		int count = sp_scan_written(taker->populated.pagemap, &range, taker->regions,
		                            REGIONS, 0);

		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			struct sp_range written = {taker->regions[i].start, taker->regions[i].end};
			int rc;

			if (sp_range_size(written) < SP_HUGE_PAGE_SIZE)
				continue;
			taker->next = written.start;
			rc = sp_page_scan_walk(&taker->populated, written, visit_populated, taker,
			                       NULL);
			if (rc < 0)
				return rc;
			add_hole(taker, written.end);
		}
	}
	return 0;
}

/* EPERM while the program runs: the mapping has just been replaced by another. */
static int take_range(struct taker *taker, struct sp_range range)
{
	while (range.start < range.end) {
		int count =
		        sp_scan_take(taker->populated.pagemap, &range, taker->regions, REGIONS, 0);

		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			struct sp_range written = {taker->regions[i].start, taker->regions[i].end};

			sp_ranges_add(&taker->cut->changed, written);
			taker->cut->written += sp_range_size(written);
		}
	}
	return 0;
}

/*
 * A page that was protected and is discarded counts as written, but not so in mappings of files and
 * of hugetlb pages, private ones too: there the kernel keeps the protection, in a marker, and gives
 * it to what comes next. That is the file's page, or a new hugetlb page of zeros. So only a page of
 * the mapping's own that is not zero can be unchanged.
 */
struct discarded {
	struct taker *taker;
	const struct sp_vma *vma;
	uint64_t next; /* behind the last page that may be unchanged */
};

/* Looks at the beginning: what is not zero there was not discarded. */
static bool may_be_zero(pid_t pid, uint64_t page)
{
	static const uint8_t zeros[SP_PAGE_SIZE];
	uint8_t bytes[SP_PAGE_SIZE];
	struct iovec to = {bytes, sizeof(bytes)}, from = {(void *)(uintptr_t)page, sizeof(bytes)};

	return process_vm_readv(pid, &to, 1, &from, 1, 0) != (ssize_t)sizeof(bytes) ||
	       memcmp(bytes, zeros, sizeof(bytes)) == 0;
}

static int visit_own(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	struct discarded *discarded = context;
	struct sp_array *changed = &discarded->taker->cut->changed;
	uint64_t size = 1ULL << discarded->vma->page_shift;

	if (categories & (PAGE_IS_FILE | PAGE_IS_GUARD))
		return 0;
	sp_ranges_add(changed, (struct sp_range){discarded->next, run.start});
	discarded->next = run.end;
	for (uint64_t page = run.start; size > SP_PAGE_SIZE && page < run.end; page += size)
		if (may_be_zero(discarded->taker->cut->living, page))
			sp_ranges_add(changed, (struct sp_range){page, page + size});
	return 0;
}

static int add_discarded(struct taker *taker, const struct sp_vma *vma)
{
	struct discarded discarded = {taker, vma, vma->range.start};
	int rc;

	if (vma->kind != SP_VMA_FILE_PRIVATE && vma->kind != SP_VMA_HUGETLB)
		return 0;
	rc = sp_page_scan_walk(&taker->populated, vma->range, visit_own, &discarded, NULL);
	sp_ranges_add(&taker->cut->changed, (struct sp_range){discarded.next, vma->range.end});
	return rc;
}

/* The first hole that ends behind `start`, cut to what ends at `end`; empty, there, if there is none. */
static struct sp_range next_hole(const struct sp_cut *cut, uint64_t start, uint64_t end)
{
	size_t i = sp_ranges_search(&cut->holes, start);
	struct sp_range hole = {end, end};

	if (i == cut->holes.count)
		return hole;
	hole = *(struct sp_range *)sp_array_at(&cut->holes, i);
	hole.start = hole.start > start ? hole.start : start;
	hole.end = hole.end < end ? hole.end : end;
	return hole.start < hole.end ? hole : (struct sp_range){end, end};
}

static int take_protected(struct taker *taker, const struct sp_vma *vma, bool joins)
{
	uint64_t next = vma->range.start, end = vma->range.end;
	int rc = taker->frozen && !joins ? 0 : find_holes(taker, vma->range);

	if (taker->frozen && joins)
		sp_ranges_normalize(&taker->cut->holes);
	while (next < end && rc >= 0) {
		struct sp_range hole = next_hole(taker->cut, next, end);

		sp_ranges_add(&taker->cut->changed, hole);
		rc = take_range(taker, (struct sp_range){next, hole.start});
		next = hole.end;
	}
	return rc;
}

static int take_tracked(struct taker *taker, struct sp_vma *vma, enum sp_membership membership)
{
	bool joins = membership == SP_NEW_MEMBER;
	int rc;

	if (membership != SP_MEMBER_OF_OTHERS)
		vma->flags &= ~(uint32_t)SP_VMA_UFFD;
	if (membership != SP_MEMBER && !joins)
		return -EINVAL;
	rc = take_protected(taker, vma, joins);
	if (joins)
		sp_ranges_add(&taker->cut->changed, vma->range);
	return rc < 0 ? rc : add_discarded(taker, vma);
}

/*
 * A mapping that is not to be tracked is registered with us all the same if it replaced another one
 * at the moment when that was registered. Registering it again tells whether it is ours.
 */
static void let_go(struct taker *taker, struct sp_vma *vma)
{
	int uffd = taker->cut->session.memory;

	if (vma->flags & SP_VMA_UFFD && sp_uffd_register(uffd, vma->range) == 0 &&
	    sp_uffd_unregister(uffd, vma->range) == 0)
		vma->flags &= ~(uint32_t)SP_VMA_UFFD;
}

int sp_cut_take_scan(struct sp_cut *cut, const struct sp_array *vmas, bool frozen,
                     struct sp_error *err)
{
	struct taker taker = {.cut = cut, .frozen = frozen};
	sp_cleanup_free uint8_t *membership = NULL;
	int rc = sp_page_scan_open(&taker.populated, cut->living, err);

	if (rc < 0)
		return rc;
	taker.regions = sp_alloc(REGIONS * sizeof(*taker.regions));
	membership = sp_alloc(vmas->count + 1);
	if (!frozen)
		sp_array_clear(&cut->holes);
	sp_cut_join(cut->session.memory, taker.populated.pagemap, vmas, &cut->aside, membership);
	for (size_t i = 0; i < vmas->count; i++) {
		struct sp_vma *vma = sp_array_at(vmas, i);

		if (!sp_cut_tracks(vma))
			let_go(&taker, vma);
		/* What cannot be tracked has changed. */
		if (sp_ranges_have(&cut->aside, vma->range)) {
			vma->flags &= ~(uint32_t)SP_VMA_UFFD;
			sp_ranges_add(&cut->changed, vma->range);
		} else if (!sp_cut_tracks(vma) || take_tracked(&taker, vma, membership[i]) < 0)
			sp_ranges_add(&cut->changed, vma->range);
	}
	sp_page_scan_close(&taker.populated);
	free(taker.regions);
	return 0;
}
