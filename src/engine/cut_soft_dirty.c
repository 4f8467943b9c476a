/*
 * Takes of a session that rests on soft-dirty bits (see cut.h): for kernels without asynchronous write
 * protection.
 *
 * The kernel sets the bit of a page at its first write, and clears those of a whole process at once, when
 * "4" is written to its clear_refs (Documentation/admin-guide/mm/soft-dirty.rst). Whatever is written
 * between the reading and the clearing would be lost, so the process stands still for both.
 *
 * A bit tells of writes alone. A page that was discarded, and comes back as a page of zeros or of the file
 * behind it, has none: therefore only pages that are the mapping's own count as unchanged. The huge page
 * of zeros calls itself a file's. Pages of hugetlb have no bits at all. Memory that is mapped, moved or
 * grown has its bits set, all of them, by the kernel.
 */
#include "engine/cut.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "mem/page_scan.h"
#include "proc/file.h"
#include "remote/process.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define NOT_OWN (PAGE_IS_FILE | PAGE_IS_PFNZERO | PAGE_IS_GUARD)

struct reader {
	struct sp_array *changed; /* NULL: only counted */
	uint64_t written;
	uint64_t next; /* behind the last populated page */
};

static void add_changed(const struct reader *reader, struct sp_range range)
{
	if (reader->changed)
		sp_ranges_add(reader->changed, range);
}

static int visit(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	struct reader *reader = context;

	add_changed(reader, (struct sp_range){reader->next, run.start});
	reader->next = run.end;
	if (categories & (PAGE_IS_SOFT_DIRTY | NOT_OWN))
		add_changed(reader, run);
	if (categories & PAGE_IS_SOFT_DIRTY && !(categories & NOT_OWN))
		reader->written += sp_range_size(run);
	return 0;
}

static int read_bits(struct sp_page_scan *scan, const struct sp_vma *vma, struct reader *reader,
                     struct sp_error *err)
{
	int rc;

	reader->next = vma->range.start;
	rc = sp_page_scan_walk(scan, vma->range, visit, reader, err);
	add_changed(reader, (struct sp_range){reader->next, vma->range.end});
	return rc;
}

static bool has_bits(const struct sp_vma *vma)
{
	return sp_cut_tracks(vma) && vma->kind != SP_VMA_HUGETLB;
}

static int clear_bits(pid_t pid, struct sp_error *err)
{
	sp_cleanup_close int fd = sp_proc_open(pid, "clear_refs", O_WRONLY, err);

	if (fd < 0)
		return fd;
	return write(fd, "4", 1) == 1 ? 0
	                              : sp_fail_errno(err, errno,
	                                              "cannot clear the soft-dirty bits of "
	                                              "process %d",
	                                              pid);
}

static int take_stopped(struct sp_cut *cut, const struct sp_array *vmas, struct sp_error *err)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan;
	struct reader reader = {.changed = &cut->changed};
	int rc = sp_page_scan_open(&scan, cut->living, err);

	if (rc < 0)
		return rc;
	sp_page_scan_use_soft_dirty(&scan);
	if (!scan.zero_frame)
		return sp_fail(err, EPERM,
		               "cannot see frame numbers in pagemap: run as root, or with "
		               "CAP_SYS_ADMIN");
	for (size_t i = 0; i < vmas->count && rc == 0; i++) {
		const struct sp_vma *vma = sp_array_at(vmas, i);

		if (has_bits(vma))
			rc = read_bits(&scan, vma, &reader, err);
		else
			sp_ranges_add(&cut->changed, vma->range);
	}
	cut->written = reader.written;
	return rc < 0 ? rc : clear_bits(cut->living, err);
}

int sp_cut_take_soft_dirty(struct sp_cut *cut, const struct sp_array *vmas, bool frozen,
                           uint64_t deadline_ns, struct sp_error *err)
{
	struct sp_process process = {.pid = cut->session.pid, .pidfd = -1};
	int rc;

	if (frozen)
		return take_stopped(cut, vmas, err);
	rc = sp_process_seize(&process, cut->session.pid, deadline_ns, err);
	if (rc == 0) {
		rc = take_stopped(cut, vmas, err);
		sp_process_release(&process, SP_RELEASE_RUN);
	}
	sp_process_forget(&process);
	return rc;
}

int sp_cut_count_soft_dirty(struct sp_page_scan *scan, const struct sp_vma *vma, uint64_t *tracked,
                            uint64_t *written, struct sp_error *err)
{
	struct reader reader = {0};
	int rc;

	if (!has_bits(vma))
		return 0;
	rc = read_bits(scan, vma, &reader, err);
	*tracked += sp_range_size(vma->range);
	*written += reader.written;
	return rc;
}
