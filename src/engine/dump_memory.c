/* The memory of a dump: see dump_parts.h. */
#include "engine/dump_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "mem/memory.h"
#include "proc/file.h"
#include "proc/stat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* When rounds of copying end: what is left is copied in a fraction of a millisecond, also if it is scattered. */
#define ROUND_ENOUGH (1ULL << 20)
#define ROUNDS_MAX 8
/* Of one mapping, in the freeze, if the program writes as fast as it is copied; reading it takes some 50 ms. */
#define READ_AT_MOST (64ULL << 20)

/* --- mappings --- */

/*
 * The mappings, with what is only in smaps, which takes long: the kernel walks the page tables for
 * it. A list that was read while the program ran serves if it says what maps says, as long as that
 * has not changed.
 */
static int read_mappings(const struct dump *dump, struct task *task, struct sp_error *err)
{
	sp_cleanup_free char *maps = NULL;
	pid_t pid = sp_process_living(&task->process);
	int rc = sp_proc_read(pid, "maps", &maps, NULL, err);

	if (rc || (task->maps && !strcmp(maps, task->maps)))
		return rc;
	free(sp_steal_ptr(&task->maps));
	sp_vma_list_release(&task->vmas);
	rc = sp_vma_list_read(pid, &task->vmas, err);
	if (!rc && !dump->frozen && sp_vma_list_agrees(&task->vmas, maps))
		task->maps = sp_steal_ptr(&maps);
	return rc;
}

/*
 * Advice, locks, seals and the protection key of a whole mapping are not in maps. Had they changed
 * between that list and the freeze, they would be saved as they were before. A mapping that was
 * replaced when the program ran on tells nothing.
 */
int sp_dump_check_mappings(const struct task *task, struct sp_error *err)
{
	struct sp_array now = SP_ARRAY_OF(struct sp_vma);
	int rc = task->maps ? sp_vma_list_read(sp_process_living(&task->process), &now, err) : 0;

	for (size_t i = 0; i < now.count && !rc; i++) {
		const struct sp_vma *vma = sp_array_at(&now, i);
		const struct sp_vma *saved = sp_vma_find(&task->vmas, vma->range.start);

		if (!saved || !sp_vma_is_same(saved, vma) || saved->kind != vma->kind ||
		    (saved->protection_key == vma->protection_key &&
		     !((saved->flags ^ vma->flags) & ~(uint32_t)SP_VMA_UFFD)))
			continue;
		rc = sp_fail(err, EAGAIN,
		             "%s has changed the advice, the lock, the seal or the protection key "
		             "of its memory at 0x%" PRIx64 "-0x%" PRIx64
		             " while it was being saved: try again",
		             sp_process_name(task->process.pid).text, vma->range.start,
		             vma->range.end);
	}
	sp_vma_list_release(&now);
	return rc;
}

/* What has changed since the last layer, or everything. */
int sp_dump_save_pages(struct dump *dump, struct task *task, bool running, struct sp_error *err)
{
	struct holding *holding = &task->holding;
	struct sp_memory_selection selection = {
	        .changed = sp_task_is_tracked(task) ? &task->cut->changed : NULL,
	        .changed_only = running && !dump->options->memory_only,
	        .running = running,
	        .shared = dump->tree.tasks.count > 1,
	        .common = task->origin != 0,
	        .list = !running && holding->uffd >= 0 ? &holding->listed : NULL,
	        .aside = holding->armed ? &task->cut->aside : NULL,
	};
	int rc = sp_memory_save(sp_process_living(&task->process), &task->vmas, &selection,
	                        dump->writer.pages, task->memory_object, err);

	return rc ? rc : sp_page_writer_drain(dump->writer.pages, err);
}

/*
 * They are stored with the parent's, unless that has the later number: of some that are in a chain already the
 * parent can have joined later.
 */
int sp_dump_find_inherited(struct dump *dump, struct task *task, struct sp_error *err)
{
	const struct task *parent = task->parent->memory_of;
	int rc = sp_memory_find_inherited(sp_process_living(&task->process), &task->vmas,
	                                  sp_process_living(&parent->process), err);

	if (rc || parent->memory_object > task->memory_object)
		return rc;
	task->origin = parent->memory_object;
	sp_page_writer_set_origin(dump->writer.pages, task->memory_object, task->origin);
	return 0;
}

int sp_dump_save_vmas(struct dump *dump, struct task *task, struct sp_error *err)
{
	if (sp_task_is_tracked(task)) {
		sp_cut_saved(task->cut, &task->vmas);
		sp_cut_list_huge(task->cut, &task->vmas);
	}
	return sp_task_write_vmas(task, &dump->writer.records, err);
}

/* --- while the program runs --- */

/*
 * Takes what has changed in the mappings, and says whether they can be saved at all: only then are
 * those known that a userfaultfd which is not ours keeps from being tracked.
 */
int sp_dump_take(struct dump *dump, struct task *task, struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + dump->options->timeout_ns;
	int rc = read_mappings(dump, task, err);

	/* What was protected in advance are mappings of a list that is not true any more. */
	if (dump->frozen && (!task->maps || task->shares_memory))
		sp_dump_disarm(task);
	if (task->cut)
		task->cut->living = sp_process_living(&task->process);
	if (!rc && sp_task_is_tracked(task))
		rc = sp_cut_take(task->cut, &task->vmas, dump->frozen, deadline, err);
	return rc ? rc : sp_memory_check(task->process.pid, &task->vmas, err);
}

/*
 * What has changed in one process is saved, unless it is so much that the next round would find as much
 * again, and it can be held.
 */
static int copy_task(struct dump *dump, struct task *task, struct sp_error *err)
{
	uint64_t before = task->written;
	int rc = sp_dump_take(dump, task, err);

	task->written = task->cut->written;
	if (rc)
		return rc;
	sp_dump_expect_to_hold(dump, task);
	if (task->written >= before / 2 && sp_dump_is_worth_holding(task, task->written) &&
	    sp_dump_will_arm(task, before ? READ_AT_MOST : UINT64_MAX)) {
		task->written = 0;
		return 0;
	}
	rc = sp_dump_save_pages(dump, task, true, err);
	if (!rc)
		sp_cut_saved(task->cut, &task->vmas);
	return rc;
}

/* A descendant that ends meanwhile, or is not to be read just now, has its turn in the freeze. */
static void copy_descendant(struct dump *dump, struct task *task)
{
	struct sp_error failure = {0};

	if (!copy_task(dump, task, &failure))
		return;
	sp_verbose(dump->options->log, "all memory of process %d is saved in the freeze: %s",
	           task->process.pid, failure.message);
	sp_cut_failed(task->cut);
	task->written = 0;
}

/* One round over all processes is one layer of the page store. `*size` becomes the bytes written. */
static int copy_round(struct dump *dump, uint64_t *size, struct sp_error *err)
{
	int rc = 0;

	*size = 0;
	for (size_t i = 0; i < dump->tree.tasks.count && !rc; i++) {
		struct task *task = sp_tree_task(&dump->tree, i);

		if (!sp_task_is_tracked(task) || task->holding.areas.count)
			continue;
		if (i == 0)
			rc = copy_task(dump, task, err);
		else
			copy_descendant(dump, task);
		*size += task->written;
	}
	return rc ? rc : sp_page_writer_next_layer(dump->writer.pages, err);
}

/*
 * With a session, all is saved before the freeze that can be: in rounds, of which each only has to
 * copy what was written during the one before. They end when little is left, or when the program
 * writes as fast as it is copied. Those that do are protected when all others have been copied: they are
 * watched from then on, and wait for us.
 */
int sp_dump_copy_ahead(struct dump *dump, struct sp_error *err)
{
	uint64_t size = UINT64_MAX, before;
	int rc = 0, rounds = 0;

	do {
		before = size;
		rc = copy_round(dump, &size, err);
		sp_verbose(dump->options->log, "round %d: %" PRIu64 " KiB were written", ++rounds,
		           size >> 10);
	} while (!rc && size > ROUND_ENOUGH && size < before / 2 && rounds < ROUNDS_MAX);
	return rc ? rc : sp_dump_arm_all(dump, err);
}
