/*
 * Memory that a child has in common with its parent since fork(2): pages that neither has written to.
 *
 * A dump notes which they are: those in the same frame at the same address. Their contents are stored with
 * the parent's. At restore, a parent is filled before its child is cloned from it, so that the child has
 * them already. It keeps the mappings in which there are such pages, lets all others of their pages go, and
 * leaves them out when it is filled itself.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "base/range_set.h"

/* --- saving --- */

/* What fork(2) copies lazily, and a restore can leave to it. */
static bool may_inherit(uint32_t kind, uint32_t page_shift, uint32_t flags)
{
	return (kind == SP_VMA_ANONYMOUS || kind == SP_VMA_STACK || kind == SP_VMA_FILE_PRIVATE) &&
	       page_shift == SP_PAGE_SHIFT && !(flags & SP_VMA_DROPPABLE);
}

struct search {
	struct sp_page_scan own, parent;
	struct sp_vma *vma;
};

static void close_search(struct search *search)
{
	sp_page_scan_close(&search->own);
	sp_page_scan_close(&search->parent);
}

static int note_common(void *context, struct sp_range run, uint64_t categories,
                       struct sp_error *err)
{
	struct search *search = context;
	struct sp_array *inherited = &search->vma->inherited;
	struct sp_range *last =
	        inherited->count ? sp_array_at(inherited, inherited->count - 1) : NULL;

	(void)categories;
	(void)err;
	if (last && last->end == run.start)
		last->end = run.end;
	else
		sp_array_append(inherited, &run);
	return 0;
}

static int compare_run(void *context, struct sp_range run, uint64_t categories,
                       struct sp_error *err)
{
	struct search *search = context;

	if (!(categories & PAGE_IS_PRESENT) || categories & (PAGE_IS_FILE | PAGE_IS_PFNZERO))
		return 0;
	return sp_page_scan_common(&search->own, &search->parent, run, note_common, search, err);
}

int sp_memory_find_inherited(pid_t pid, const struct sp_array *vmas, pid_t parent,
                             struct sp_error *err)
{
	sp_cleanup(close_search) struct search search = {{.pagemap = -1}, {.pagemap = -1}, NULL};
	int rc = sp_page_scan_open(&search.own, pid, err);

	if (!rc)
		rc = sp_page_scan_open(&search.parent, parent, err);
	for (size_t i = 0; i < vmas->count && !rc; i++) {
		search.vma = sp_array_at(vmas, i);
		sp_array_clear(&search.vma->inherited);
		if (may_inherit(search.vma->kind, search.vma->page_shift, search.vma->flags))
			rc = sp_page_scan_walk(&search.own, search.vma->range, compare_run, &search,
			                       err);
	}
	return rc;
}

/* --- what is kept --- */

/* The child's mapping could be a part of this one. */
static bool is_of_same_sort(const Sealpoint__Vma *vma, const Sealpoint__Vma *parent)
{
	const uint32_t fixed = SP_VMA_GROWS_DOWN | SP_VMA_NO_RESERVE | SP_VMA_DROPPABLE |
	                       SP_VMA_SYNC | SP_VMA_MAY_WRITE;

	return vma->kind == parent->kind && vma->file == parent->file &&
	       vma->page_shift == parent->page_shift && !((vma->flags ^ parent->flags) & fixed) &&
	       (!vma->file || vma->start - vma->offset == parent->start - parent->offset);
}

/* The parent has all of it, in one mapping or in several that follow each other. */
static bool has_parent(const struct sp_memory_build *build, const Sealpoint__Vma *vma)
{
	const Sealpoint__Vma *parent;
	uint64_t at = vma->start;
	size_t index = 0;

	while (at < vma->end && (parent = sp_next_vma(build->parent, &index)) != NULL) {
		if (parent->end <= at)
			continue;
		if (parent->start > at || !is_of_same_sort(vma, parent))
			return false;
		at = parent->end;
	}
	return at >= vma->end;
}

void sp_memory_plan_inherited(struct sp_memory_build *build)
{
	const Sealpoint__Vma *vma;
	size_t index = 0;

	build->kept = SP_ARRAY_OF(struct sp_range);
	build->inherited = SP_ARRAY_OF(struct sp_range);
	while (build->parent && (vma = sp_next_vma(build, &index)) != NULL) {
		struct sp_range range = sp_vma_record_range(vma);

		if (!vma->n_inherited || !may_inherit(vma->kind, vma->page_shift, vma->flags) ||
		    !has_parent(build, vma))
			continue;
		sp_array_append(&build->kept, &range);
		for (size_t i = 0; i + 1 < vma->n_inherited; i += 2) {
			struct sp_range pages = {vma->inherited[i], vma->inherited[i + 1]};

			sp_ranges_add(&build->inherited, pages);
		}
	}
	sp_ranges_normalize(&build->inherited);
}

bool sp_vma_is_kept(const struct sp_memory_build *build, const Sealpoint__Vma *vma)
{
	size_t index = sp_ranges_search(&build->kept, vma->start);
	const struct sp_range *range =
	        index < build->kept.count ? sp_array_at(&build->kept, index) : NULL;

	return range && range->start == vma->start;
}

void sp_memory_release(struct sp_memory_build *build)
{
	sp_array_release(&build->kept);
	sp_array_release(&build->inherited);
}

/* --- what is not --- */

static int drop_pages(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, uint64_t start,
                      uint64_t end, struct sp_error *err)
{
	int rc = sp_vma_batch_room(batch, err);

	if (!rc && start < end)
		sp_vma_batch_advise(batch, vma, (struct sp_range){start, end}, MADV_DONTNEED,
		                    "empty", SP_CALL_MUST);
	return rc;
}

static int adapt(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, struct sp_error *err)
{
	uint64_t at = vma->start;
	int prot, rc;

	if (!sp_vma_is_kept(batch->build, vma))
		return 0;
	rc = sp_vma_fill_prot(batch->build, vma, &prot, err);
	if (rc)
		return rc;
	sp_vma_batch_add(batch, vma, "protect", SP_CALL_MUST, SYS_mprotect,
	                 (uint64_t[6]){vma->start, vma->end - vma->start, (uint64_t)prot});
	for (size_t i = 0; i + 1 < vma->n_inherited && !rc; i += 2) {
		rc = drop_pages(batch, vma, at, vma->inherited[i], err);
		at = vma->inherited[i + 1];
	}
	return rc ? rc : drop_pages(batch, vma, at, vma->end, err);
}

int sp_memory_drop_uninherited(struct sp_memory_build *build, struct sp_error *err)
{
	return sp_vma_batch_all(build, adapt, err);
}
