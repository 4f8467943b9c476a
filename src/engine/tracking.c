/* Tracking as a user sees it: beginning sessions of all processes of a tree, their status, ending them. */
#include "engine/dump_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
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

static int add_mappings(struct sp_tracking_status *status, const struct sp_session *session,
                        struct sp_error *err)
{
	struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	int rc = sp_page_scan_open(&scan, sp_living_thread(status->pid), err);

	if (rc == 0 && session->backend == SP_SESSION_SOFT_DIRTY)
		sp_page_scan_use_soft_dirty(&scan);
	if (rc == 0)
		rc = sp_vma_list_read(sp_living_thread(status->pid), &vmas, err);
	for (size_t i = 0; i < vmas.count && rc == 0; i++)
		rc = add_mapping(status, session, &scan, sp_array_at(&vmas, i), err);
	sp_vma_list_release(&vmas);
	return rc;
}

/* A process that has no session, or one that is not NULL. */
static int add_status(struct sp_array *statuses, pid_t pid, const struct sp_session *session,
                      struct sp_error *err)
{
	struct sp_tracking_status status = {.pid = pid};
	int rc = 0;

	if (!statuses)
		return 0;
	if (session) {
		status.tracked = true;
		status.backend = session->backend;
		status.generation = session->generation;
		status.holder = session->holder;
		memcpy(status.id, session->id, sizeof(status.id));
		rc = add_mappings(&status, session, err);
	}
	if (rc == 0)
		sp_array_append(statuses, &status);
	return rc;
}

/* --- a tree --- */

/* Does something with each process, in the order of the tree. A descendant may end meanwhile. */
static int do_with_each(pid_t root, int (*act)(void *context, pid_t pid, struct sp_error *err),
                        void *context, struct sp_error *err)
{
	struct tree tree;
	int rc = 0;

	sp_tree_init(&tree, root);
	sp_tree_list(&tree);
	for (size_t i = 0; i < tree.tasks.count && rc == 0; i++) {
		pid_t pid = sp_tree_task(&tree, i)->process.pid;

		rc = act(context, pid, err);
		if (rc == 0 || i == 0 || !sp_tree_has_lost(pid, rc))
			continue;
		*err = (struct sp_error){0};
		rc = 0;
	}
	sp_tree_release(&tree);
	return rc;
}

struct starting {
	enum sp_session_backend backend;
	uint64_t deadline_ns;
	struct sp_cuts cuts;
	struct sp_array *statuses;
	bool made; /* a session */
};

/* Takes once, so that all mappings are in the session. */
static int take(struct sp_cut *cut, uint64_t deadline_ns, struct sp_error *err)
{
	struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
	int rc = sp_vma_list_read(cut->living, &vmas, err);

	if (rc == 0)
		rc = sp_cut_take(cut, &vmas, false, deadline_ns, err);
	sp_vma_list_release(&vmas);
	return rc;
}

static int start_one(void *context, pid_t pid, struct sp_error *err)
{
	struct starting *starting = context;
	struct sp_cut *cut = sp_cuts_of(&starting->cuts, pid, true);
	int rc = sp_process_check(pid, err);

	if (rc == 0)
		rc = sp_session_find_live(&cut->session, pid, err);
	if (rc == 0) {
		cut->backend = starting->backend;
		rc = sp_cut_begin(cut, pid, SP_CUT_TRACK, NULL, starting->deadline_ns, NULL, err);
		if (rc == 0)
			rc = take(cut, starting->deadline_ns, err);
		starting->made |= rc == 0;
	}
	return rc < 0 ? rc : add_status(starting->statuses, pid, &cut->session, err);
}

int sp_tracking_start(pid_t pid, enum sp_session_backend backend, struct sp_array *statuses,
                      struct sp_error *err)
{
	struct starting starting = {
	        .backend = backend,
	        .deadline_ns = sp_now_ns() + SP_DUMP_TIMEOUT_NS,
	        .cuts = SP_CUTS_NONE,
	        .statuses = statuses,
	};
	int rc = do_with_each(pid, start_one, &starting, err);

	if (rc == 0 && !starting.made)
		rc = sp_fail(err, EEXIST, "the writes of %s are tracked already",
		             sp_process_name(pid).text);
	if (rc == 0)
		rc = sp_cuts_keep_sessions(&starting.cuts, err);
	sp_cuts_end(&starting.cuts);
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

static int read_one(void *statuses, pid_t pid, struct sp_error *err)
{
	sp_cleanup_session struct sp_session session;
	int rc = find_session(&session, pid, err);

	return rc < 0 ? rc : add_status(statuses, pid, rc == 1 ? &session : NULL, err);
}

int sp_tracking_read_status(pid_t pid, struct sp_array *statuses, struct sp_error *err)
{
	return do_with_each(pid, read_one, statuses, err);
}

bool sp_tracking_is_on(pid_t pid)
{
	sp_cleanup_session struct sp_session session;

	return find_session(&session, pid, NULL) == 1;
}

struct stopping {
	struct sp_array *statuses;
	bool ended; /* a session */
};

static int stop_one(void *context, pid_t pid, struct sp_error *err)
{
	struct stopping *stopping = context;
	sp_cleanup_session struct sp_session session;
	int rc = find_session(&session, pid, err);

	if (rc == 1) {
		rc = sp_session_end(&session, err);
		stopping->ended |= rc == 0;
	}
	return rc < 0 ? rc : add_status(stopping->statuses, pid, NULL, err);
}

int sp_tracking_stop(pid_t pid, struct sp_array *statuses, struct sp_error *err)
{
	struct stopping stopping = {.statuses = statuses};
	int rc = do_with_each(pid, stop_one, &stopping, err);

	if (rc == 0 && !stopping.ended)
		return sp_fail(err, ENOENT, "the writes of %s are not tracked",
		               sp_process_name(pid).text);
	return rc;
}
