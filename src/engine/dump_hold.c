/*
 * Memory that is held as it was, and saved while the program runs again: see dump_parts.h.
 *
 * Pages are protected while the program still runs, in rounds, each of which protects again what was
 * written during the one before. So the freeze has only the last of them to do. What is to be saved of
 * a page, its contents or that there is nothing, is looked up behind its protection: it is true as long
 * as the page stays protected, and what does not stay so is looked at again by the next round.
 */
#include "engine/dump_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "mem/memory.h"
#include "mem/page_scan.h"
#include "proc/maps.h"
#include "remote/userfaultfd.h"
#include "track/hold.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Copying more than this takes longer than to make the program wait for its first writes. */
#define HOLD_MIN (8ULL << 20)
/* When rounds of protecting end: the freeze can do the rest in no time. */
#define PROTECT_ENOUGH (1ULL << 20)
#define PROTECT_ROUNDS 8

bool sp_dump_is_worth_holding(const struct task *task, uint64_t size)
{
	return task->holding.stash.memory >= 0 && size > HOLD_MIN;
}

static void tell_why_not(const struct dump *dump, const struct task *task,
                         const struct sp_error *why)
{
	sp_verbose(dump->options->log, "all memory of process %d is saved in the freeze: %s",
	           task->process.pid, why->message);
}

/* To make a file may take milliseconds, when the file system is just writing its journal. */
void sp_dump_expect_to_hold(struct dump *dump, struct task *task)
{
	struct holding *holding = &task->holding;
	int rc;

	if (!dump->may_hold || task->written <= HOLD_MIN || holding->stash.memory >= 0 ||
	    task->cut->session.backend != SP_SESSION_SCAN)
		return;
	rc = sp_stash_open(&holding->stash, dump->writer.dirfd);
	if (rc == 0)
		return;
	sp_stash_close(&holding->stash);
	sp_verbose(dump->options->log,
	           "all memory of process %d is saved in the freeze: cannot make a file for pages: "
	           "%s",
	           task->process.pid, strerror(-rc));
}

static int open_hold(struct task *task, int uffd, const struct sp_array *areas,
                     struct sp_error *err)
{
	const struct sp_hold_request request = {
	        .pid = task->process.pid,
	        .uffd = uffd,
	        .asynchronous = task->cut->session.memory,
	        .stash = &task->holding.stash,
	        .areas = areas,
	};

	return sp_hold_open(&task->holding.hold, &request, err);
}

/* --- in advance --- */

void sp_dump_disarm(struct task *task)
{
	struct holding *holding = &task->holding;

	if (!holding->armed)
		return;
	holding->armed = false;
	sp_array_clear(&task->cut->aside);
	sp_array_clear(&holding->listed.pages);
	holding->stash = sp_hold_take_stash(holding->hold);
	sp_hold_end(sp_steal_ptr(&holding->hold));
}

/* A thread that ends leaves word of it in memory, which must not be protected: see track/hold.h. */
static void thread_is_ending(void *task)
{
	sp_dump_disarm(task);
}

/* Those that are watched wait for us with each signal, whichever of them is being protected. */
static void attend_all(struct dump *dump)
{
	for (size_t i = 0; i < dump->tree.tasks.count; i++) {
		struct task *task = sp_tree_task(&dump->tree, i);

		if (task->process.watched && !sp_process_attend(&task->process))
			sp_dump_disarm(task);
	}
}

struct attention {
	struct dump *dump;
	const struct task *task;
};

static bool attend(void *context)
{
	const struct attention *attention = context;

	attend_all(attention->dump);
	return attention->task->holding.armed;
}

static int add_populated(void *context, struct sp_range run, uint64_t categories,
                         struct sp_error *err)
{
	sp_ranges_add(context, run);
	return 0;
}

/* Only pages that are there: to protect one that is not takes a page table. */
static int protect_populated(struct dump *dump, struct task *task, const struct sp_array *written,
                             struct sp_error *err)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	sp_cleanup_array struct sp_array populated = SP_ARRAY_OF(struct sp_range);
	struct attention attention = {dump, task};
	int rc = sp_page_scan_open(&scan, sp_process_living(&task->process), err);

	for (size_t i = 0; i < written->count && rc >= 0; i++)
		rc = sp_page_scan_walk(&scan, *(struct sp_range *)sp_array_at(written, i),
		                       add_populated, &populated, err);
	if (rc < 0)
		return rc;
	sp_ranges_normalize(&populated);
	rc = sp_hold_protect(task->holding.hold, &populated, attend, &attention);
	return rc < 0 ? sp_fail_errno(err, -rc, "cannot protect memory") : 0;
}

/* What is there of the pages that were written, into the layer; those with contents are to be held. */
static int list_written(struct dump *dump, struct task *task, const struct sp_array *written,
                        struct sp_memory_list *list, struct sp_error *err)
{
	struct sp_array *pages = &task->holding.listed.pages;
	const struct sp_memory_selection selection = {
	        .changed = written,
	        .changed_only = true,
	        .running = !dump->frozen,
	        .list = list,
	        .aside = &task->cut->aside,
	        .aside_only = true,
	};
	int rc = sp_memory_save(sp_process_living(&task->process), &task->vmas, &selection,
	                        dump->writer.pages, task->memory_object, err);

	sp_ranges_subtract(pages, written);
	sp_ranges_add_all(pages, &list->pages);
	sp_ranges_normalize(pages);
	return rc;
}

/* Protects again what was written since the last round, and adds the bytes to `*size`. */
static int protect_round(struct dump *dump, struct task *task, const struct sp_array *written,
                         uint64_t *size, struct sp_error *err)
{
	struct sp_memory_list list = {SP_ARRAY_OF(struct sp_range), SP_ARRAY_OF(struct sp_range)};
	int rc = dump->frozen ? 0 : protect_populated(dump, task, written, err);

	if (!rc)
		rc = list_written(dump, task, written, &list, err);
	if (!rc && dump->frozen) {
		rc = sp_hold_protect(task->holding.hold, &list.pages, NULL, NULL);
		if (rc < 0)
			sp_fail_errno(err, -rc, "cannot protect memory");
	}
	*size += sp_ranges_total(&list.pages);
	sp_array_release(&list.pages);
	sp_array_release(&list.areas);
	return rc;
}

static int protect_written(struct dump *dump, struct task *task, uint64_t *size,
                           struct sp_error *err)
{
	sp_cleanup_array struct sp_array written = SP_ARRAY_OF(struct sp_range);
	int rc = sp_hold_written(task->holding.hold, &written);

	return rc < 0 ? sp_fail_errno(err, -rc, "cannot look for written memory")
	              : protect_round(dump, task, &written, size, err);
}

static void give_up(const struct dump *dump, struct task *task, const struct sp_error *why)
{
	sp_verbose(dump->options->log, "memory of process %d is protected in the freeze: %s",
	           task->process.pid, why->message);
	sp_dump_disarm(task);
}

/* The first time, all of it. */
static void protect(struct dump *dump, struct task *task, bool first, uint64_t *size)
{
	struct attention attention = {dump, task};
	struct sp_error failure = {0};
	int rc = 0;

	if (!attend(&attention))
		rc = sp_fail(&failure, ECANCELED, "it ends a thread");
	if (!rc)
		rc = first ? protect_round(dump, task, &task->holding.areas, size, &failure)
		           : protect_written(dump, task, size, &failure);
	if (rc)
		give_up(dump, task, &failure);
}

/* One round over all processes is one layer of the page store. */
static int protect_in_rounds(struct dump *dump, struct sp_error *err)
{
	uint64_t size = UINT64_MAX, before;
	int rc, rounds = 0;

	do {
		before = size;
		size = 0;
		for (size_t i = 0; i < dump->tree.tasks.count; i++) {
			struct task *task = sp_tree_task(&dump->tree, i);

			if (task->holding.armed)
				protect(dump, task, rounds == 0, &size);
		}
		rc = sp_page_writer_next_layer(dump->writer.pages, err);
		sp_verbose(dump->options->log, "round %d of protecting: %" PRIu64 " KiB", ++rounds,
		           size >> 10);
	} while (!rc && size > PROTECT_ENOUGH && size < before && rounds < PROTECT_ROUNDS);
	return rc;
}

/*
 * The list is as old as the last round. To take over what is only a part of a mapping by now would cut that
 * in two, and mremap(2) of both would fail.
 */
static int check_areas(pid_t pid, const struct sp_array *areas, struct sp_error *err)
{
	sp_cleanup_array struct sp_array maps = SP_ARRAY_OF(struct sp_map);
	int rc = sp_maps_read(pid, &maps, err);
	size_t next = 0;

	for (size_t i = 0; i < areas->count && rc == 0; i++) {
		const struct sp_range *area = sp_array_at(areas, i);
		const struct sp_map *map = NULL;

		while (next < maps.count && (!map || map->range.start < area->start))
			map = sp_array_at(&maps, next++);
		if (!map || map->range.start != area->start || map->range.end != area->end)
			rc = sp_fail(err, ESTALE, "it changes the mapping at 0x%" PRIx64,
			             area->start);
	}
	return rc;
}

static int arm(struct dump *dump, struct task *task, struct sp_error *err)
{
	pid_t pid = task->process.pid;
	uint64_t deadline = sp_now_ns() + dump->options->timeout_ns;
	sp_cleanup_close int uffd = -1;
	int rc;

	/* Looked for again in the stop, if in vain. */
	if (!task->foothold.instruction)
		sp_foothold_find(pid, (struct sp_range){0}, &task->foothold, NULL);
	rc = sp_userfaultfd_of(pid, &task->foothold, sp_remote_userfaultfd_for_kernel, deadline,
	                       err);
	if (rc < 0)
		return rc;
	uffd = rc;
	rc = check_areas(pid, &task->holding.areas, err);
	if (rc == 0)
		rc = open_hold(task, sp_steal_fd(&uffd), &task->holding.areas, err);
	if (rc < 0)
		return rc;
	task->holding.armed = true;
	sp_ranges_add_all(&task->cut->aside, &task->holding.areas);
	rc = sp_process_watch(&task->process, pid, err);
	task->process.ending = thread_is_ending;
	task->process.ending_context = task;
	return rc < 0 ? rc : 0;
}

bool sp_dump_will_arm(struct task *task, uint64_t most)
{
	struct sp_array *areas = &task->holding.areas;

	for (size_t i = 0; i < task->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&task->vmas, i);

		if (sp_memory_is_worth_holding(vma, &task->cut->changed, most))
			sp_array_append(areas, &vma->range);
	}
	if (areas->count)
		sp_cut_not_saved(task->cut);
	return areas->count > 0;
}

int sp_dump_arm_all(struct dump *dump, struct sp_error *err)
{
	bool armed = false;

	for (size_t i = 0; i < dump->tree.tasks.count; i++) {
		struct task *task = sp_tree_task(&dump->tree, i);
		struct sp_error failure = {0};

		attend_all(dump);
		if (task->holding.areas.count && arm(dump, task, &failure) < 0)
			give_up(dump, task, &failure);
		armed |= task->holding.armed;
	}
	return armed ? protect_in_rounds(dump, err) : 0;
}

/* --- in the freeze --- */

/* What has to be saved and can be held, but for parts where nothing is: those are no work. */
static uint64_t size_to_hold(const struct task *task)
{
	sp_cleanup_array struct sp_array changed = SP_ARRAY_OF(struct sp_range);
	uint64_t size = 0;

	sp_ranges_add_all(&changed, &task->cut->changed);
	sp_ranges_subtract(&changed, &task->cut->holes);
	for (size_t i = 0; i < task->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&task->vmas, i);

		if (sp_memory_is_worth_holding(vma, &changed, UINT64_MAX))
			size += sp_ranges_total_within(&changed, vma->range);
	}
	return size;
}

/*
 * Before the pages are looked at: whether much has to be read. What cannot be held is read in the
 * freeze.
 */
void sp_dump_prepare_hold(struct dump *dump, struct task *task)
{
	struct sp_error failure = {0};

	if (!sp_task_is_tracked(task) || task->holding.armed || task->shares_memory ||
	    !sp_dump_is_worth_holding(task, size_to_hold(task)))
		return;
	task->holding.uffd = sp_remote_userfaultfd_for_kernel(&task->remote, &failure);
	if (task->holding.uffd < 0)
		tell_why_not(dump, task, &failure);
}

/* The pages are protected, unless that was not begun in advance. */
static int protect_all(struct dump *dump, struct task *task, struct sp_error *err)
{
	struct holding *holding = &task->holding;
	uint64_t *size = &dump->result->protected_bytes;
	int rc;

	if (holding->armed)
		return protect_written(dump, task, size, err);
	*size += sp_ranges_total(&holding->listed.pages);
	rc = open_hold(task, sp_steal_fd(&holding->uffd), &holding->listed.areas, err);
	if (rc == 0)
		rc = sp_hold_protect(holding->hold, &holding->listed.pages, NULL, NULL);
	return rc < 0 && !err->code ? sp_fail_errno(err, -rc, "cannot protect memory") : rc;
}

static void begin_hold(struct dump *dump, struct task *task)
{
	struct holding *holding = &task->holding;
	struct sp_error failure = {0};
	int rc = protect_all(dump, task, &failure);

	holding->armed = false;
	sp_array_clear(&task->cut->aside);
	if (rc == 0)
		rc = sp_hold_begin(holding->hold, &holding->listed.pages, &task->last_words,
		                   &failure);
	if (rc == 0)
		return;
	tell_why_not(dump, task, &failure);
	sp_hold_end(sp_steal_ptr(&holding->hold));
}

static bool is_armed(const struct dump *dump)
{
	for (size_t i = 0; i < dump->tree.tasks.count; i++)
		if (sp_tree_task(&dump->tree, i)->holding.armed)
			return true;
	return false;
}

/* Holds the pages that were listed if they are many, or else saves them now. */
int sp_dump_hold_pages(struct dump *dump, struct sp_error *err)
{
	const struct tree *tree = &dump->tree;
	uint64_t listed = 0;
	int rc = is_armed(dump) ? sp_page_writer_next_layer(dump->writer.pages, err) : 0;

	for (size_t i = 0; i < tree->tasks.count; i++) {
		struct task *task = sp_tree_task(tree, i);
		const struct sp_array *pages = &task->holding.listed.pages;

		if (!rc && (task->holding.armed || sp_ranges_total(pages) > HOLD_MIN))
			begin_hold(dump, task);
		listed += pages->count;
	}
	if (!rc && listed)
		rc = sp_page_writer_next_layer(dump->writer.pages, err);
	for (size_t i = 0; i < tree->tasks.count && !rc; i++) {
		const struct task *task = sp_tree_task(tree, i);

		if (!task->holding.hold)
			rc = sp_memory_save_listed(sp_process_living(&task->process),
			                           &task->holding.listed.pages, NULL,
			                           dump->writer.pages, task->memory_object, err);
	}
	return rc;
}

/* --- while the program runs --- */

static int save_held(struct dump *dump, struct task *task, struct sp_error *err)
{
	struct holding *holding = &task->holding;
	const struct sp_page_source source = {.read = sp_hold_read, .context = holding->hold};
	int rc = sp_memory_save_listed(sp_process_living(&task->process), &holding->listed.pages,
	                               &source, dump->writer.pages, task->memory_object, err);

	dump->result->held_bytes += sp_ranges_total(&holding->listed.pages);
	dump->result->held_writes += sp_hold_faults(holding->hold);
	sp_hold_end(sp_steal_ptr(&holding->hold));
	return rc;
}

int sp_dump_save_held(struct dump *dump, struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++) {
		struct task *task = sp_tree_task(&dump->tree, i);

		if (task->holding.hold)
			rc = save_held(dump, task, err);
	}
	return rc;
}

void sp_dump_end_hold(struct task *task)
{
	struct holding *holding = &task->holding;

	sp_dump_disarm(task);
	sp_hold_end(sp_steal_ptr(&holding->hold));
	sp_close_scope(&holding->uffd);
	holding->uffd = -1;
	sp_stash_close(&holding->stash);
	sp_array_release(&holding->areas);
	sp_array_release(&holding->listed.pages);
	sp_array_release(&holding->listed.areas);
}
