/* The memory of a dump: see dump_parts.h. */
#include "engine/dump_parts.h"

#include "base/cleanup.h"
#include "mem/memory.h"
#include "proc/file.h"
#include "proc/stat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* When rounds of copying end: what is left is copied in about a millisecond. */
#define ROUND_ENOUGH (4ULL << 20)
#define ROUNDS_MAX 8

/* --- mappings --- */

/*
 * The mappings, with what is only in smaps, which takes long: the kernel walks the page tables for
 * it. A list that was read while the program ran serves if it says what maps says, as long as that
 * has not changed.
 */
static int read_mappings(const struct dump *dump, struct task *task, struct sp_error *err)
{
	sp_cleanup_free char *maps = NULL;
	pid_t pid = task->process.pid;
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
	int rc = task->maps ? sp_vma_list_read(task->process.pid, &now, err) : 0;

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
	struct sp_memory_selection selection = {
	        .changed = dump->cut->active ? &dump->cut->changed : NULL,
	        .changed_only = running && !dump->options->memory_only,
	        .running = running,
	        .list = !running && dump->hold_uffd >= 0 ? &dump->held : NULL,
	        .aside = dump->armed ? &dump->cut->aside : NULL,
	};
	int rc = sp_memory_save(task->process.pid, &task->vmas, &selection, dump->writer.pages,
	                        task->memory_object, err);

	return rc ? rc : sp_page_writer_drain(dump->writer.pages, err);
}

int sp_dump_save_vmas(struct dump *dump, struct task *task, struct sp_error *err)
{
	if (dump->cut->active) {
		sp_cut_saved(dump->cut, &task->vmas);
		sp_cut_list_huge(dump->cut, &task->vmas);
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
	int rc = read_mappings(dump, task, err);

	/* What was protected in advance are mappings of a list that is not true any more. */
	if (dump->frozen && !task->maps)
		sp_dump_disarm(dump);
	if (!rc && dump->cut->active)
		rc = sp_cut_take(dump->cut, &task->vmas, dump->frozen, err);
	return rc ? rc : sp_memory_check(task->process.pid, &task->vmas, err);
}

/*
 * One round: what has changed is saved as a layer of the page store, unless it is so much that the
 * next round would find as much again. `*size` becomes its bytes.
 */
static int copy_round(struct dump *dump, uint64_t *size, struct sp_error *err)
{
	struct task *root = sp_dump_root(dump);
	uint64_t before = *size;
	int rc = sp_dump_take(dump, root, err);

	*size = dump->cut->written;
	if (!rc && *size >= before / 2 && sp_dump_is_worth_holding(dump, *size) &&
	    sp_dump_arm(dump))
		return 0;
	if (!rc)
		rc = sp_dump_save_pages(dump, root, true, err);
	if (rc)
		return rc;
	sp_cut_saved(dump->cut, &root->vmas);
	return sp_page_writer_next_layer(dump->writer.pages, err);
}

/* To make a file may take milliseconds, when the file system is just writing its journal. */
static void open_stash(struct dump *dump)
{
	int rc = dump->may_hold ? sp_stash_open(&dump->stash, dump->writer.dirfd) : 0;

	if (rc == 0)
		return;
	dump->may_hold = false;
	sp_verbose(dump->options->log,
	           "all memory is saved in the freeze: cannot make a file for pages: %s",
	           strerror(-rc));
}

/*
 * With a session, all is saved before the freeze that can be: in rounds, of which each only has to
 * copy what was written during the one before. They end when little is left, or when the program
 * writes as fast as it is copied.
 */
int sp_dump_copy_ahead(struct dump *dump, struct sp_error *err)
{
	uint64_t size = UINT64_MAX, before;
	int rc = 0, rounds = 0;

	open_stash(dump);
	do {
		before = size;
		rc = copy_round(dump, &size, err);
		sp_verbose(dump->options->log, "round %d: %" PRIu64 " KiB were written", ++rounds,
		           size >> 10);
	} while (!rc && size > ROUND_ENOUGH && size < before / 2 && rounds < ROUNDS_MAX);
	return rc;
}
