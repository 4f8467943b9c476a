/*
 * Filling an address space from the page store.
 *
 * The program's private memory is cut into segments, each filled in one way:
 *
 *   COPY       4 KiB anonymous pages, by UFFDIO_COPY: the fastest way, and it makes exactly the
 *              pages that it is given. The stub opens the userfaultfd; sealpoint takes it over.
 *   POPULATED  the same where there is no userfaultfd: pages are populated by the stub first, with
 *              huge pages switched off for it, then written.
 *   HUGE       what were transparent huge pages: advised, written (the first write makes the huge
 *              page), and in the end populated and collapsed where they still are not huge.
 *   WRITE      modified pages of private file mappings, hugetlb, and the rest: written, zeros too.
 *
 * Pages that the stub has inherited from its parent are left out (inherit.c).
 *
 * One walk of the page store's workers serves all segments. A page that was not populated never is
 * after it, and a zero page that was populated is again: a program's resident size survives.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "base/range_set.h"
#include "base/log.h"
#include "mem/page_scan.h"
#include "remote/userfaultfd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

enum fill_method { FILL_COPY, FILL_POPULATED, FILL_HUGE, FILL_WRITE };

struct segment {
	struct sp_range range; /* first: segments are searched by address */
	enum fill_method method;
	const Sealpoint__Vma *vma;
};

struct filler {
	struct sp_memory_build *build;
	pid_t pid;                /* of the stub */
	int userfaultfd;          /* -1: there is none */
	struct sp_array segments; /* struct segment, ascending */
	void *zeros;              /* SP_FRAME_SIZE of them */
};

/* --- segments --- */

static void add_segment(struct filler *filler, uint64_t start, uint64_t end,
                        enum fill_method method, const Sealpoint__Vma *vma)
{
	struct segment segment = {{start, end}, method, vma};

	if (start < end)
		sp_array_append(&filler->segments, &segment);
}

/* What the stub has of its parent's, at `address` or next: empty if there is nothing. */
static struct sp_range next_inherited(const struct filler *filler, uint64_t address)
{
	const struct sp_array *inherited = &filler->build->inherited;
	size_t index = sp_ranges_search(inherited, address);

	if (index < inherited->count)
		return *(struct sp_range *)sp_array_at(inherited, index);
	return (struct sp_range){UINT64_MAX, UINT64_MAX};
}

static bool is_inherited(const struct filler *filler, uint64_t start, uint64_t end)
{
	struct sp_range inherited = next_inherited(filler, start);

	return inherited.start <= start && inherited.end >= end;
}

/*
 * How much of the pages from `start` on is to be dealt with in one way. `*inherited`: not at all, they are
 * the parent's.
 */
static uint64_t next_piece(const struct filler *filler, uint64_t start, uint64_t size,
                           bool *inherited)
{
	struct sp_range next = next_inherited(filler, start);
	uint64_t end;

	*inherited = next.start <= start;
	end = *inherited ? next.end : next.start;
	return end - start < size ? end - start : size;
}

static void cut_anonymous(struct filler *filler, const Sealpoint__Vma *vma)
{
	enum fill_method small = filler->userfaultfd >= 0 ? FILL_COPY : FILL_POPULATED;
	uint64_t at = vma->start;

	for (size_t i = 0; i + 1 < vma->n_huge; i += 2) {
		add_segment(filler, at, vma->huge[i], small, vma);
		if (!is_inherited(filler, vma->huge[i], vma->huge[i + 1]))
			add_segment(filler, vma->huge[i], vma->huge[i + 1], FILL_HUGE, vma);
		at = vma->huge[i + 1];
	}
	add_segment(filler, at, vma->end, small, vma);
}

static int cut_segments(struct filler *filler, struct sp_error *err)
{
	const Sealpoint__Vma *vma;
	size_t index = 0;

	while ((vma = sp_next_vma(filler->build, &index)) != NULL) {
		uint64_t pages[SP_PAGE_STATES];
		int rc;

		if (!sp_vma_is_made(vma) || sp_vma_kind_is_shared(vma->kind))
			continue;
		rc = sp_memory_count_pages(filler->build->checkpoint, filler->build->process, vma,
		                           pages, err);
		if (rc < 0)
			return rc;
		if (pages[SP_PAGE_DATA] + pages[SP_PAGE_ZERO] == 0)
			continue;
		if ((vma->kind == SP_VMA_ANONYMOUS || vma->kind == SP_VMA_STACK) &&
		    !(vma->flags & SP_VMA_DROPPABLE))
			cut_anonymous(filler, vma);
		else
			add_segment(filler, vma->start, vma->end, FILL_WRITE, vma);
	}
	return 0;
}

static const struct segment *find_segment(const struct filler *filler, uint64_t address)
{
	return sp_array_search(&filler->segments, &address, sp_range_locate);
}

/* --- the userfaultfd --- */

/* Leaves filler->userfaultfd at -1 where the stub cannot have one. */
static int open_userfaultfd(struct filler *filler, struct sp_error *err)
{
	struct sp_memory_build *build = filler->build;
	struct uffdio_api api = {.api = UFFD_API};
	struct sp_error refused = {0};
	sp_cleanup_close int fd = sp_remote_userfaultfd(build->remote, &refused);

	if (fd < 0 && sp_process_is_ending(build->remote->process))
		return sp_fail(err, refused.code, "%s", refused.message);
	if (fd < 0) {
		sp_verbose(build->log, "%s: filling memory the slower way", refused.message);
		return 0;
	}
	if (ioctl(fd, UFFDIO_API, &api) < 0)
		return sp_fail_errno(err, errno, "cannot set up the userfaultfd");
	filler->userfaultfd = sp_steal_fd(&fd);
	return 0;
}

static int register_segments(const struct filler *filler, struct sp_error *err)
{
	for (size_t i = 0; i < filler->segments.count; i++) {
		const struct segment *segment = sp_array_at(&filler->segments, i);
		struct uffdio_register request = {
		        .range = {segment->range.start, sp_range_size(segment->range)},
		        .mode = UFFDIO_REGISTER_MODE_MISSING,
		};

		if (segment->method == FILL_COPY &&
		    ioctl(filler->userfaultfd, UFFDIO_REGISTER, &request) < 0)
			return sp_fail_errno(err, errno,
			                     "cannot register memory at 0x%" PRIx64 "-0x%" PRIx64
			                     " with a userfaultfd",
			                     segment->range.start, segment->range.end);
	}
	return 0;
}

/* --- filling, by the page store's workers --- */

static int write_pages(const struct filler *filler, uint64_t to, const void *bytes, size_t size,
                       struct sp_error *err)
{
	return sp_process_write(filler->pid, to, bytes, size, err);
}

/* A page that is there already was made by nobody but us: its contents are replaced. */
static int copy_pages(const struct filler *filler, uint64_t to, const void *bytes, size_t size,
                      struct sp_error *err)
{
	while (size > 0) {
		struct uffdio_copy copy = {.dst = to, .src = (uintptr_t)bytes, .len = size};
		uint64_t done = size;

		if (ioctl(filler->userfaultfd, UFFDIO_COPY, &copy) < 0) {
			done = copy.copy > 0 ? (uint64_t)copy.copy : 0;
			if (!done && errno == EEXIST) {
				int rc = write_pages(filler, to, bytes, SP_PAGE_SIZE, err);

				if (rc < 0)
					return rc;
				done = SP_PAGE_SIZE;
			} else if (!done && errno != EAGAIN) {
				return sp_fail_errno(err, errno, "cannot copy pages to 0x%" PRIx64,
				                     to);
			}
		}
		to += done;
		bytes = (const char *)bytes + done;
		size -= done;
	}
	return 0;
}

static int fill_piece(const struct filler *filler, enum fill_method method, uint64_t to,
                      const void *bytes, size_t size, struct sp_error *err)
{
	if (method == FILL_COPY)
		return copy_pages(filler, to, bytes, size, err);
	return write_pages(filler, to, bytes, size, err);
}

static int no_mapping(uint64_t address, struct sp_error *err)
{
	return sp_fail(err, EBADMSG,
	               "the page store has contents at 0x%" PRIx64
	               ", where the process has no memory of its own",
	               address);
}

static int fill_data(void *context, uint64_t offset, const void *bytes, size_t size,
                     struct sp_error *err)
{
	const struct filler *filler = context;

	while (size > 0) {
		const struct segment *segment = find_segment(filler, offset);
		bool inherited;
		size_t piece = next_piece(filler, offset, size, &inherited);
		int rc = 0;

		if (!segment && !inherited)
			return no_mapping(offset, err);
		if (!inherited && piece > segment->range.end - offset)
			piece = segment->range.end - offset;
		if (!inherited)
			rc = fill_piece(filler, segment->method, offset, bytes, piece, err);
		if (rc < 0)
			return rc;
		offset += piece;
		bytes = (const char *)bytes + piece;
		size -= piece;
	}
	return 0;
}

/* Zero pages of the other segments are made by the kernel, which populates them. */
static bool zeros_are_written(enum fill_method method)
{
	return method == FILL_COPY || method == FILL_WRITE;
}

static int fill_zero(void *context, struct sp_range range, struct sp_error *err)
{
	const struct filler *filler = context;

	while (range.start < range.end) {
		const struct segment *segment = find_segment(filler, range.start);
		bool inherited;
		uint64_t size = next_piece(filler, range.start, sp_range_size(range), &inherited);
		int rc = 0;

		if (!segment && !inherited)
			return no_mapping(range.start, err);
		if (!inherited && size > segment->range.end - range.start)
			size = segment->range.end - range.start;
		if (!inherited && zeros_are_written(segment->method)) {
			size = size < SP_FRAME_SIZE ? size : SP_FRAME_SIZE;
			rc = fill_piece(filler, segment->method, range.start, filler->zeros, size,
			                err);
		}
		if (rc < 0)
			return rc;
		range.start += size;
	}
	return 0;
}

static int load(struct filler *filler, struct sp_error *err)
{
	const struct sp_page_sink sink = {fill_data, fill_zero, filler};

	return sp_page_store_load(
	        filler->build->checkpoint->pages, filler->build->process->memory_object,
	        (struct sp_range){0, UINT64_MAX & ~(SP_PAGE_SIZE - 1)}, &sink, 0, err);
}

/* --- what the stub populates itself --- */

struct populate {
	struct sp_vma_batch *batch;
	const struct segment *segment;
	struct sp_error *err;
};

static int disable_huge_pages(struct filler *filler, bool disable, struct sp_error *err)
{
	return sp_remote_try(filler->build->remote, NULL, err, "switch huge pages", SYS_prctl,
	                     PR_SET_THP_DISABLE, disable, 0, 0, 0, 0);
}

static int populate_run(void *context, const struct sp_page_run *run)
{
	struct populate *populate = context;

	if (run->state != SP_PAGE_DATA && run->state != SP_PAGE_ZERO)
		return 0;
	sp_vma_batch_advise(populate->batch, populate->segment->vma, run->range,
	                    MADV_POPULATE_WRITE, "populate", SP_CALL_MUST);
	return sp_vma_batch_room(populate->batch, populate->err);
}

static int populate_segment(const struct filler *filler, struct sp_vma_batch *batch,
                            const struct segment *segment, struct sp_error *err)
{
	struct populate populate = {batch, segment, err};

	return sp_page_store_walk(filler->build->checkpoint->pages,
	                          filler->build->process->memory_object, segment->range,
	                          populate_run, &populate, err);
}

/* POPULATED segments. Nothing to do, and no stop of the stub, where there is a userfaultfd. */
static int populate_small(struct filler *filler, struct sp_error *err)
{
	sp_cleanup(sp_vma_batch_release) struct sp_vma_batch batch = {0};
	int rc = 0;

	if (filler->userfaultfd >= 0)
		return 0;
	rc = disable_huge_pages(filler, true, err);
	if (rc < 0)
		return rc;
	sp_vma_batch_init(&batch, filler->build);
	for (size_t i = 0; rc == 0 && i < filler->segments.count; i++) {
		const struct segment *segment = sp_array_at(&filler->segments, i);

		if (segment->method == FILL_POPULATED)
			rc = populate_segment(filler, &batch, segment, err);
	}
	if (rc == 0)
		rc = sp_vma_batch_run(&batch, err);
	return rc < 0 ? rc : disable_huge_pages(filler, false, err);
}

/* --- huge pages --- */

static int advise_huge(struct filler *filler, int advice, const char *what,
                       enum sp_vma_call_policy policy, uint32_t only_flags, struct sp_error *err)
{
	sp_cleanup(sp_vma_batch_release) struct sp_vma_batch batch;
	int rc = 0;

	sp_vma_batch_init(&batch, filler->build);
	for (size_t i = 0; rc == 0 && i < filler->segments.count; i++) {
		const struct segment *segment = sp_array_at(&filler->segments, i);

		if (segment->method != FILL_HUGE ||
		    (segment->vma->flags & only_flags) != only_flags)
			continue;
		rc = sp_vma_batch_room(&batch, err);
		sp_vma_batch_advise(&batch, segment->vma, segment->range, advice, what, policy);
	}
	return rc < 0 ? rc : sp_vma_batch_run(&batch, err);
}

static int subtract_huge(void *context, struct sp_range run, uint64_t categories,
                         struct sp_error *err)
{
	if (categories & PAGE_IS_HUGE)
		*(uint64_t *)context -= sp_range_size(run);
	return 0;
}

/*
 * Sums up in `missing` how much of what should be huge is not, and collapses it if a batch is
 * given. What cannot be collapsed stays as it is: its contents are complete.
 */
static int find_small(const struct filler *filler, struct sp_page_scan *scan,
                      struct sp_vma_batch *batch, uint64_t *missing, struct sp_error *err)
{
	*missing = 0;
	for (size_t i = 0; i < filler->segments.count; i++) {
		const struct segment *segment = sp_array_at(&filler->segments, i);
		uint64_t small = sp_range_size(segment->range);
		int rc;

		if (segment->method != FILL_HUGE)
			continue;
		rc = sp_page_scan_walk(scan, segment->range, subtract_huge, &small, err);
		if (rc == 0 && small && batch) {
			rc = sp_vma_batch_room(batch, err);
			sp_vma_batch_advise(batch, segment->vma, segment->range, MADV_COLLAPSE,
			                    "collapse", SP_CALL_TRY);
		}
		if (rc < 0)
			return rc;
		*missing += small;
	}
	return 0;
}

static int collapse(const struct filler *filler, struct sp_error *err)
{
	sp_cleanup(sp_vma_batch_release) struct sp_vma_batch batch;
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	uint64_t missing = 0;
	int rc = sp_page_scan_open(&scan, filler->pid, err);

	sp_vma_batch_init(&batch, filler->build);
	if (rc == 0)
		rc = find_small(filler, &scan, &batch, &missing, err);
	if (rc < 0 || missing == 0)
		return rc;
	rc = sp_vma_batch_run(&batch, err) ?: find_small(filler, &scan, NULL, &missing, err);
	if (rc == 0 && missing)
		sp_verbose(filler->build->log,
		           "%" PRIu64 " KiB that were in huge pages are in small ones now",
		           missing >> 10);
	return rc;
}

static bool has_huge_segments(const struct filler *filler)
{
	for (size_t i = 0; i < filler->segments.count; i++) {
		if (((struct segment *)sp_array_at(&filler->segments, i))->method == FILL_HUGE)
			return true;
	}
	return false;
}

static int allow_huge(struct filler *filler, struct sp_error *err)
{
	if (!has_huge_segments(filler))
		return 0;
	return disable_huge_pages(filler, false, err)
	               ?: advise_huge(filler, MADV_HUGEPAGE, "allow huge pages for", SP_CALL_TRY,
	                              SP_VMA_HUGE, err);
}

/*
 * Everything has been written: what is left is huge pages of zeros, and those that came out small.
 */
static int settle_huge(struct filler *filler, struct sp_error *err)
{
	if (!has_huge_segments(filler))
		return 0;
	return advise_huge(filler, MADV_POPULATE_WRITE, "populate", SP_CALL_MUST, 0, err)
	               ?: collapse(filler, err);
}

/* --- all of it --- */

static void release_filler(struct filler *filler)
{
	if (filler->userfaultfd >= 0)
		close(filler->userfaultfd);
	sp_array_release(&filler->segments);
	free(filler->zeros);
}

int sp_memory_fill(struct sp_memory_build *build, struct sp_error *err)
{
	sp_cleanup(release_filler) struct filler filler = {
	        .build = build,
	        .pid = build->remote->process->pid,
	        .userfaultfd = -1,
	        .segments = SP_ARRAY_OF(struct segment),
	        .zeros = sp_alloc_zeroed(1, SP_FRAME_SIZE),
	};
	int rc = open_userfaultfd(&filler, err);

	if (rc == 0)
		rc = cut_segments(&filler, err);
	if (rc == 0)
		rc = register_segments(&filler, err);
	if (rc == 0)
		rc = populate_small(&filler, err);
	if (rc == 0)
		rc = allow_huge(&filler, err);
	if (rc == 0)
		rc = load(&filler, err);
	/* Registered memory does not collapse. */
	if (filler.userfaultfd >= 0)
		close(filler.userfaultfd);
	filler.userfaultfd = -1;
	return rc < 0 ? rc : settle_huge(&filler, err);
}
