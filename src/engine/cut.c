/* Cuts: see cut.h. */
#include "engine/cut.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "mem/page_scan.h"
#include "track/scan.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define REGIONS 1024

/* --- the parent --- */

/* Why this checkpoint cannot be the parent of the cut, or NULL. */
static const char *unfit(const struct sp_cut *cut, const struct sp_checkpoint *parent)
{
	const Sealpoint__Manifest *manifest = parent->manifest;

	if (manifest->root_pid != (uint32_t)cut->session.pid)
		return "it is of another process";
	if (manifest->session_id.len == 0)
		return "writes were not tracked when it was made";
	if (manifest->session_id.len != sizeof(cut->session.id) ||
	    memcmp(manifest->session_id.data, cut->session.id, sizeof(cut->session.id)) != 0)
		return "the tracking session of that time has ended";
	if (manifest->generation != cut->session.generation - 1)
		return "it is not the last that was cut from the tracking session";
	return NULL;
}

static int add_covered(void *context, const struct sp_page_run *run)
{
	sp_ranges_add(context, run->range);
	return 0;
}

static void list_huge_of_parent(struct sp_cut *cut, const struct sp_checkpoint *parent)
{
	for (size_t i = 0; i < parent->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&parent->vmas, i);

		for (size_t j = 0; j + 1 < vma->n_huge; j += 2)
			sp_ranges_add(&cut->huge,
			              (struct sp_range){vma->huge[j], vma->huge[j + 1]});
	}
	sp_ranges_normalize(&cut->huge);
}

/* Everything that the cut has to know of its parent, which need not stay open for that. */
static int stand_on(struct sp_cut *cut, struct sp_checkpoint *parent, struct sp_error *err)
{
	const struct sp_range everything = {0, 1ULL << 47};
	int rc = sp_page_store_walk(parent->pages, sp_checkpoint_root(parent)->memory_object,
	                            everything, add_covered, &cut->covered, err);

	sp_ranges_normalize(&cut->covered);
	list_huge_of_parent(cut, parent);
	cut->parent = sp_strdup(parent->path);
	memcpy(cut->parent_id, parent->manifest->id.data, sizeof(cut->parent_id));
	return rc;
}

static int open_parent(struct sp_cut *cut, const char *path, struct sp_log *log,
                       struct sp_error *err)
{
	struct sp_checkpoint *parent;
	const char *reason;
	int rc = sp_checkpoint_open(&parent, path, err);

	if (rc < 0)
		return rc;
	reason = cut->active ? unfit(cut, parent) : "its writes are not tracked";
	if (reason)
		sp_warn(log, "full contents are stored: %s cannot be the parent, %s", path, reason);
	else
		rc = stand_on(cut, parent, err);
	sp_checkpoint_close(parent);
	return rc;
}

/* --- the cut --- */

void sp_cut_init(struct sp_cut *cut)
{
	*cut = (struct sp_cut){
	        .session = SP_SESSION_NONE,
	        .covered = SP_ARRAY_OF(struct sp_range),
	        .changed = SP_ARRAY_OF(struct sp_range),
	        .taken = SP_ARRAY_OF(struct sp_range),
	        .holes = SP_ARRAY_OF(struct sp_range),
	        .aside = SP_ARRAY_OF(struct sp_range),
	        .huge = SP_ARRAY_OF(struct sp_range),
	};
}

static int find_or_make_session(struct sp_cut *cut, pid_t pid, enum sp_cut_session which,
                                uint64_t deadline_ns, struct sp_error *err)
{
	int rc = sp_session_find_live(&cut->session, pid, err);

	if (rc == 0 && which != SP_CUT_IF_TRACKED) {
		bool hold = which == SP_CUT_TRACK || sp_sessions_have_place();

		rc = sp_session_make(&cut->session, pid, cut->backend, hold, deadline_ns, err);
		cut->made = rc == 0;
	}
	cut->active = rc >= 0 && cut->session.memory >= 0;
	return rc < 0 ? rc : 0;
}

int sp_cut_begin(struct sp_cut *cut, pid_t pid, enum sp_cut_session which, const char *parent,
                 uint64_t deadline_ns, struct sp_log *log, struct sp_error *err)
{
	int rc;

	sp_array_clear(&cut->taken);
	if (cut->active)
		return sp_session_cut(&cut->session, err);
	rc = find_or_make_session(cut, pid, which, deadline_ns, err);
	if (rc == 0 && cut->active)
		rc = sp_session_cut(&cut->session, err);
	if (rc == 0 && parent)
		rc = open_parent(cut, parent, log, err);
	return rc;
}

int sp_cut_committed(struct sp_cut *cut, const char *path, struct sp_error *err)
{
	free(cut->parent);
	cut->parent = sp_strdup(path);
	return sp_checkpoint_read_id(path, cut->parent_id, err);
}

void sp_cut_failed(struct sp_cut *cut)
{
	free(sp_steal_ptr(&cut->parent));
	sp_array_clear(&cut->covered);
	sp_array_clear(&cut->huge);
}

int sp_cut_again(struct sp_cut *cut, struct sp_log *log, struct sp_error *err)
{
	sp_cleanup_free char *parent = sp_steal_ptr(&cut->parent);
	int rc;

	sp_array_clear(&cut->covered);
	sp_array_clear(&cut->huge);
	rc = parent ? open_parent(cut, parent, log, err) : 0;
	sp_ranges_normalize(&cut->taken);
	sp_ranges_subtract(&cut->covered, &cut->taken);
	sp_ranges_subtract(&cut->huge, &cut->taken);
	return rc;
}

int sp_cut_keep_session(struct sp_cut *cut, struct sp_error *err)
{
	int rc = cut->made ? sp_session_keep(&cut->session, err) : 0;

	cut->made = false;
	return rc;
}

void sp_cut_end(struct sp_cut *cut)
{
	if (cut->made)
		sp_session_end(&cut->session, NULL);
	sp_session_close(&cut->session);
	cut->made = false;
	free(sp_steal_ptr(&cut->parent));
	sp_array_release(&cut->covered);
	sp_array_release(&cut->changed);
	sp_array_release(&cut->taken);
	sp_array_release(&cut->holes);
	sp_array_release(&cut->aside);
	sp_array_release(&cut->huge);
	cut->active = false;
}

/* --- taking --- */

bool sp_cut_tracks(const struct sp_vma *vma)
{
	return vma->kind == SP_VMA_ANONYMOUS || vma->kind == SP_VMA_STACK ||
	       vma->kind == SP_VMA_FILE_PRIVATE || vma->kind == SP_VMA_HUGETLB;
}

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
		if (may_be_zero(discarded->taker->cut->session.pid, page))
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

/*
 * All of a mapping that was not registered is new, whatever its pages say: kernels before 6.13 leave
 * them protected when they are moved, and the empty ones of hugetlb do not count as written. And when
 * memory of the session is moved next to a mapping of it, the kernel makes one of both and ends the
 * registration of all of it (mremap_userfaultfd_prep()), but leaves the protection in the page tables,
 * which no write takes away then. So what joins loses all protection first.
 */
static int take_tracked(struct taker *taker, struct sp_vma *vma)
{
	bool joins = sp_scan_check(taker->populated.pagemap, vma->range) < 0;
	int rc = sp_uffd_register(taker->cut->session.memory, vma->range);

	/* Only EBUSY says that it is somebody else's; else it has gone since the list was read. */
	if (rc != -EBUSY)
		vma->flags &= ~(uint32_t)SP_VMA_UFFD;
	if (rc == 0 && joins)
		rc = sp_uffd_unprotect(taker->cut->session.memory, vma->range);
	if (rc < 0)
		return rc;
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

/* What neither a layer nor the parent has: never taken for unchanged. */
static void add_uncovered(struct sp_cut *cut, const struct sp_array *vmas)
{
	sp_cleanup_array struct sp_array all = SP_ARRAY_OF(struct sp_range);

	for (size_t i = 0; i < vmas->count; i++)
		sp_ranges_add(&all, ((struct sp_vma *)sp_array_at(vmas, i))->range);
	sp_ranges_normalize(&all);
	sp_ranges_subtract(&all, &cut->covered);
	sp_ranges_add_all(&cut->changed, &all);
	sp_ranges_normalize(&cut->changed);
}

static int take_by_scan(struct sp_cut *cut, const struct sp_array *vmas, bool frozen,
                        struct sp_error *err)
{
	struct taker taker = {.cut = cut, .frozen = frozen};
	int rc = sp_page_scan_open(&taker.populated, cut->session.pid, err);

	if (rc < 0)
		return rc;
	taker.regions = sp_alloc(REGIONS * sizeof(*taker.regions));
	if (!frozen)
		sp_array_clear(&cut->holes);
	for (size_t i = 0; i < vmas->count; i++) {
		struct sp_vma *vma = sp_array_at(vmas, i);

		if (!sp_cut_tracks(vma))
			let_go(&taker, vma);
		/* What cannot be tracked has changed. */
		if (sp_ranges_have(&cut->aside, vma->range)) {
			vma->flags &= ~(uint32_t)SP_VMA_UFFD;
			sp_ranges_add(&cut->changed, vma->range);
		} else if (!sp_cut_tracks(vma) || take_tracked(&taker, vma) < 0)
			sp_ranges_add(&cut->changed, vma->range);
	}
	sp_page_scan_close(&taker.populated);
	free(taker.regions);
	return 0;
}

int sp_cut_take(struct sp_cut *cut, const struct sp_array *vmas, bool frozen, struct sp_error *err)
{
	int rc;

	sp_array_clear(&cut->changed);
	cut->written = 0;
	rc = cut->session.backend == SP_SESSION_SOFT_DIRTY
	             ? sp_cut_take_soft_dirty(cut, vmas, frozen, err)
	             : take_by_scan(cut, vmas, frozen, err);
	if (rc < 0)
		return rc;
	add_uncovered(cut, vmas);
	sp_ranges_add_all(&cut->taken, &cut->changed);
	return 0;
}

/* --- what was saved --- */

void sp_cut_saved(struct sp_cut *cut, const struct sp_array *vmas)
{
	sp_ranges_subtract(&cut->huge, &cut->changed);
	for (size_t i = 0; i < vmas->count; i++) {
		const struct sp_vma *vma = sp_array_at(vmas, i);

		sp_ranges_add_all(&cut->huge, &vma->huge);
		if (sp_cut_tracks(vma))
			sp_ranges_add(&cut->covered, vma->range);
	}
	sp_ranges_normalize(&cut->huge);
	sp_ranges_normalize(&cut->covered);
}

void sp_cut_not_saved(struct sp_cut *cut)
{
	sp_ranges_subtract(&cut->covered, &cut->changed);
}

void sp_cut_list_huge(const struct sp_cut *cut, const struct sp_array *vmas)
{
	for (size_t i = 0; i < vmas->count; i++) {
		struct sp_vma *vma = sp_array_at(vmas, i);

		sp_array_clear(&vma->huge);
		for (size_t j = sp_ranges_search(&cut->huge, vma->range.start); j < cut->huge.count;
		     j++) {
			struct sp_range huge = *(struct sp_range *)sp_array_at(&cut->huge, j);

			if (huge.start >= vma->range.end)
				break;
			huge.start = huge.start > vma->range.start ? huge.start : vma->range.start;
			huge.end = huge.end < vma->range.end ? huge.end : vma->range.end;
			/* A huge page of which a part was replaced is none any more. */
			huge.start =
			        (huge.start + SP_HUGE_PAGE_SIZE - 1) & ~(SP_HUGE_PAGE_SIZE - 1);
			huge.end &= ~(SP_HUGE_PAGE_SIZE - 1);
			if (huge.start < huge.end)
				sp_array_append(&vma->huge, &huge);
		}
	}
}
