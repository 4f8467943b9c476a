/* Cuts: see cut.h. */
#include "engine/cut.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "proc/stat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- the parent --- */

static const Sealpoint__Process *process_of(const struct sp_checkpoint *parent, pid_t pid)
{
	for (size_t i = 0; i < parent->processes.count; i++) {
		const Sealpoint__Process *process = sp_array_pointer(&parent->processes, i);

		if (process->pid == (uint32_t)pid && !process->ended)
			return process;
	}
	return NULL;
}

/* Why what this checkpoint has of the process cannot be the parent of the cut, or NULL. */
static const char *unfit(const struct sp_cut *cut, const Sealpoint__Process *process)
{
	if (!cut->active)
		return "its writes are not tracked";
	if (!process)
		return cut->named ? "this process is not in it" : "it is of another process";
	if (process->session_id.len == 0)
		return "writes were not tracked when it was made";
	if (process->session_id.len != sizeof(cut->session.id) ||
	    memcmp(process->session_id.data, cut->session.id, sizeof(cut->session.id)) != 0)
		return "the tracking session of that time has ended";
	if (process->generation != cut->session.generation - 1)
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

		if (vma->pid != (uint32_t)cut->session.pid)
			continue;
		for (size_t j = 0; j + 1 < vma->n_huge; j += 2)
			sp_ranges_add(&cut->huge,
			              (struct sp_range){vma->huge[j], vma->huge[j + 1]});
	}
	sp_ranges_normalize(&cut->huge);
}

/* Everything that the cut has to know of its parent, which need not stay open for that. */
static int stand_on(struct sp_cut *cut, struct sp_checkpoint *parent,
                    const Sealpoint__Process *process, struct sp_error *err)
{
	const struct sp_range everything = {0, 1ULL << 47};
	int rc = sp_page_store_walk(parent->pages, process->memory_object, everything, add_covered,
	                            &cut->covered, err);

	sp_ranges_normalize(&cut->covered);
	list_huge_of_parent(cut, parent);
	cut->object = process->memory_object;
	cut->parent = sp_strdup(parent->path);
	memcpy(cut->parent_id, parent->manifest->id.data, sizeof(cut->parent_id));
	return rc;
}

static void warn_unfit(const struct sp_cut *cut, const char *path, const char *reason,
                       struct sp_log *log)
{
	if (cut->named)
		sp_warn(log, "full contents of %s are stored: %s cannot be its parent, %s",
		        sp_process_name(cut->session.pid).text, path, reason);
	else
		sp_warn(log, "full contents are stored: %s cannot be the parent, %s", path, reason);
}

static int open_parent(struct sp_cut *cut, const char *path, struct sp_log *log,
                       struct sp_error *err)
{
	const Sealpoint__Process *process;
	struct sp_checkpoint *parent;
	const char *reason;
	int rc = sp_checkpoint_open(&parent, path, err);

	if (rc < 0)
		return rc;
	process = process_of(parent, cut->session.pid);
	reason = unfit(cut, process);
	if (reason)
		warn_unfit(cut, path, reason, log);
	else
		rc = stand_on(cut, parent, process, err);
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

/* The memory that it tracked is gone: another program was executed, or the pid is another process's. */
static void forget_session(struct sp_cut *cut)
{
	pid_t pid = cut->session.pid;
	bool named = cut->named;
	enum sp_session_backend backend = cut->backend;

	sp_cut_end(cut);
	sp_cut_init(cut);
	cut->session.pid = pid;
	cut->named = named;
	cut->backend = backend;
}

int sp_cut_begin(struct sp_cut *cut, pid_t pid, enum sp_cut_session which, const char *parent,
                 uint64_t deadline_ns, struct sp_log *log, struct sp_error *err)
{
	int rc;

	if (cut->active && sp_session_is_dead(&cut->session))
		forget_session(cut);
	sp_array_clear(&cut->taken);
	cut->living = sp_living_thread(pid);
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
	cut->object = 0;
	sp_array_clear(&cut->covered);
	sp_array_clear(&cut->huge);
}

int sp_cut_again(struct sp_cut *cut, struct sp_log *log, struct sp_error *err)
{
	sp_cleanup_free char *parent = sp_steal_ptr(&cut->parent);
	int rc;

	cut->object = 0;
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

/* --- several --- */

static struct sp_cut *cut_at(const struct sp_cuts *cuts, size_t index)
{
	return sp_array_pointer(&cuts->cuts, index);
}

struct sp_cut *sp_cuts_of(struct sp_cuts *cuts, pid_t pid, bool first)
{
	struct sp_cut *cut;

	for (size_t i = 0; i < cuts->cuts.count; i++)
		if (cut_at(cuts, i)->session.pid == pid)
			return cut_at(cuts, i);
	cut = sp_alloc(sizeof(*cut));
	sp_cut_init(cut);
	cut->session.pid = pid;
	cut->named = !first;
	sp_array_append(&cuts->cuts, &cut);
	return cut;
}

static bool has_pid(const struct sp_array *pids, pid_t pid)
{
	for (size_t i = 0; i < pids->count; i++)
		if (*(pid_t *)sp_array_at(pids, i) == pid)
			return true;
	return false;
}

void sp_cuts_keep(struct sp_cuts *cuts, const struct sp_array *pids)
{
	size_t kept = 0;

	for (size_t i = 0; i < cuts->cuts.count; i++) {
		struct sp_cut *cut = cut_at(cuts, i);

		if (has_pid(pids, cut->session.pid)) {
			((struct sp_cut **)cuts->cuts.items)[kept++] = cut;
			continue;
		}
		sp_cut_end(cut);
		free(cut);
	}
	cuts->cuts.count = kept;
}

int sp_cuts_committed(struct sp_cuts *cuts, const char *path, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < cuts->cuts.count && !rc; i++)
		if (cut_at(cuts, i)->active)
			rc = sp_cut_committed(cut_at(cuts, i), path, err);
	return rc;
}

void sp_cuts_failed(struct sp_cuts *cuts)
{
	for (size_t i = 0; i < cuts->cuts.count; i++)
		sp_cut_failed(cut_at(cuts, i));
}

int sp_cuts_keep_sessions(struct sp_cuts *cuts, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = cuts->cuts.count; i-- > 0;)
		rc = sp_cut_keep_session(cut_at(cuts, i), i == 0 ? err : NULL);
	return rc;
}

void sp_cuts_end(struct sp_cuts *cuts)
{
	const struct sp_array nobody = {0};

	sp_cuts_keep(cuts, &nobody);
	sp_array_release(&cuts->cuts);
}

/* --- taking --- */

bool sp_cut_tracks(const struct sp_vma *vma)
{
	return vma->kind == SP_VMA_ANONYMOUS || vma->kind == SP_VMA_STACK ||
	       vma->kind == SP_VMA_FILE_PRIVATE || vma->kind == SP_VMA_HUGETLB;
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

int sp_cut_take(struct sp_cut *cut, const struct sp_array *vmas, bool frozen, uint64_t deadline_ns,
                struct sp_error *err)
{
	int rc;

	sp_array_clear(&cut->changed);
	cut->written = 0;
	rc = cut->session.backend == SP_SESSION_SOFT_DIRTY
	             ? sp_cut_take_soft_dirty(cut, vmas, frozen, deadline_ns, err)
	             : sp_cut_take_scan(cut, vmas, frozen, err);
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
