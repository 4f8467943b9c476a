/* Tracking sessions as a user sees them: beginning one, its status, ending it. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/cleanup.h"
#include "mem/page_scan.h"
#include "mem/vma.h"
#include "proc/stat.h"
#include "track/scan.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define REGIONS 1024

static int add_run(void *bytes, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	*(uint64_t *)bytes += sp_range_size(run);
	return 0;
}

/* Written and populated: what is only reserved counts as written, and is nothing to store. */
static uint64_t count_written(struct sp_page_scan *scan, struct sp_range range)
{
	struct page_region regions[REGIONS];
	uint64_t bytes = 0;

	while (range.start < range.end) {
		int count = sp_scan_written(scan->pagemap, &range, regions, REGIONS, 0);

		for (int i = 0; i < count; i++)
			sp_page_scan_walk(scan, (struct sp_range){regions[i].start, regions[i].end},
			                  add_run, &bytes, NULL);
		if (count < 0)
			break;
	}
	return bytes;
}

/* Adds what is tracked of a mapping, and what was written of that. */
static int add_mapping(struct sp_tracking_status *status, const struct sp_session *session,
                       struct sp_page_scan *scan, const struct sp_vma *vma, struct sp_error *err)
{
	if (session->backend == SP_SESSION_SOFT_DIRTY)
		return sp_cut_count_soft_dirty(scan, vma, &status->tracked_bytes,
		                               &status->written_bytes, err);
	if (sp_scan_check(scan->pagemap, vma->range) < 0)
		return 0;
	status->tracked_bytes += sp_range_size(vma->range);
	status->written_bytes += count_written(scan, vma->range);
	return 0;
}

static int fill_in(pid_t pid, const struct sp_session *session, struct sp_tracking_status *status,
                   struct sp_error *err)
{
	struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	int rc = sp_page_scan_open(&scan, pid, err);

	if (rc == 0 && session->backend == SP_SESSION_SOFT_DIRTY)
		sp_page_scan_use_soft_dirty(&scan);
	if (rc == 0)
		rc = sp_vma_list_read(pid, &vmas, err);
	*status = (struct sp_tracking_status){
	        .tracked = true,
	        .backend = session->backend,
	        .generation = session->generation,
	        .holder = session->holder,
	};
	memcpy(status->id, session->id, sizeof(status->id));
	for (size_t i = 0; i < vmas.count && rc == 0; i++)
		rc = add_mapping(status, session, &scan, sp_array_at(&vmas, i), err);
	sp_vma_list_release(&vmas);
	return rc;
}

int sp_tracking_start(pid_t pid, enum sp_session_backend backend, struct sp_tracking_status *status,
                      struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + SP_DUMP_TIMEOUT_NS;
	struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
	sp_cleanup_cut struct sp_cut cut;
	int rc = sp_process_check(pid, err);

	sp_cut_init(&cut);
	cut.backend = backend;
	if (rc == 0)
		rc = sp_session_find_live(&cut.session, pid, err);
	if (rc == 1)
		return sp_fail(err, EEXIST, "the writes of %s are tracked already",
		               sp_process_name(pid).text);
	if (rc == 0)
		rc = sp_cut_begin(&cut, pid, SP_CUT_TRACK, NULL, deadline, NULL, err);
	if (rc == 0)
		rc = sp_vma_list_read(pid, &vmas, err);
	if (rc == 0)
		rc = sp_cut_take(&cut, &vmas, false, err);
	if (rc == 0)
		rc = fill_in(pid, &cut.session, status, err);
	if (rc == 0)
		rc = sp_cut_keep_session(&cut, err);
	sp_vma_list_release(&vmas);
	return rc;
}

/* As sp_session_find_live(), but a process that is not there is an error. */
static int find_session(struct sp_session *session, pid_t pid, struct sp_error *err)
{
	int rc = sp_session_find_live(session, pid, err);

	if (rc == 0 && kill(pid, 0) < 0 && errno == ESRCH)
		return sp_fail(err, ESRCH, "there is no process %d", pid);
	return rc;
}

int sp_tracking_read_status(pid_t pid, struct sp_tracking_status *status, struct sp_error *err)
{
	sp_cleanup_session struct sp_session session;
	int rc = find_session(&session, pid, err);

	*status = (struct sp_tracking_status){0};
	return rc == 1 ? fill_in(pid, &session, status, err) : rc;
}

int sp_tracking_stop(pid_t pid, struct sp_error *err)
{
	sp_cleanup_session struct sp_session session;
	int rc = find_session(&session, pid, err);

	if (rc == 0)
		return sp_fail(err, ENOENT, "the writes of %s are not tracked",
		               sp_process_name(pid).text);
	return rc < 0 ? rc : sp_session_end(&session, err);
}
