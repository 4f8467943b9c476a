/*
 * Checking the records of a checkpoint: every number is in its range, every reference leads
 * somewhere, nothing is there twice. What restore, inspect and core rely on is established here,
 * once; what the kinds keep in their own messages is theirs to check.
 */
#include "image/checkpoint_parts.h"

#include "arch/arch.h"
#include "base/error.h"
#include "image/page_store.h"
#include "image/vma_numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#define PID_END (1U << 22)        /* PID_MAX_LIMIT of the kernel */
#define DESCRIPTOR_END (1U << 30) /* the largest fs.nr_open */
#define ADDRESS_END (1ULL << 47)  /* user addresses with four-level page tables */
#define FILE_OFFSET_END (1ULL << 63)
#define VSYSCALL_START 0xffffffffff600000ULL

/* What is known of a process while the records that belong to it pass by. */
struct seen_process {
	const Sealpoint__Process *process;
	size_t threads;
	uint64_t vma_end; /* of the VMA before */
	uint64_t pages;   /* in the page store, inside of the VMAs so far */
};

struct checker {
	const struct sp_checkpoint *checkpoint;
	struct sp_array processes; /* struct seen_process, by pid */
	size_t last;               /* where the last one was found: records come in groups */
	struct sp_error *err;
};

static int compare_processes(const void *left, const void *right)
{
	const struct seen_process *a = left, *b = right;

	return sp_compare(a->process->pid, b->process->pid);
}

static struct seen_process *find_process(struct checker *checker, uint32_t pid)
{
	const Sealpoint__Process wanted = {.pid = pid};
	const struct seen_process key = {.process = &wanted};
	struct seen_process *last = sp_array_at(&checker->processes, checker->last);

	if (last->process->pid == pid)
		return last;
	last = sp_array_search(&checker->processes, &key, compare_processes);
	if (last)
		checker->last = (size_t)(last - (struct seen_process *)checker->processes.items);
	return last;
}

static bool is_open_file(const struct checker *checker, uint32_t id)
{
	return sp_checkpoint_file(checker->checkpoint, id) != NULL;
}

static int check_facets(const struct checker *checker, const char *owner, uint32_t number,
                        Sealpoint__Facet *const *facets, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (facets[i]->name[0] == '\0')
			return sp_fail(checker->err, EBADMSG,
			               "%s %" PRIu32 " has a part without a name", owner, number);
		for (size_t j = 0; j < i; j++) {
			if (strcmp(facets[i]->name, facets[j]->name) == 0)
				return sp_fail(checker->err, EBADMSG,
				               "%s %" PRIu32 " has \"%s\" twice", owner, number,
				               facets[i]->name);
		}
	}
	return 0;
}

/* --- files --- */

static int check_open_files(struct checker *checker)
{
	const struct sp_array *files = &checker->checkpoint->files;

	for (size_t i = 0; i < files->count; i++) {
		const Sealpoint__OpenFile *file = sp_array_pointer(files, i);

		if (file->id != i + 1)
			return sp_fail(checker->err, EBADMSG,
			               "open file %" PRIu32 " stands where %zu should", file->id,
			               i + 1);
		if (file->kind[0] == '\0')
			return sp_fail(checker->err, EBADMSG, "open file %" PRIu32 " has no kind",
			               file->id);
	}
	return 0;
}

static int check_descriptor(struct checker *checker, const Sealpoint__Descriptor *descriptor)
{
	const Sealpoint__OpenFile *file = sp_checkpoint_file(checker->checkpoint, descriptor->file);
	const struct seen_process *process = find_process(checker, descriptor->pid);

	if (!process || process->process->ended)
		return sp_fail(checker->err, EBADMSG,
		               "descriptor %" PRIu32 " belongs to the unknown process %" PRIu32,
		               descriptor->number, descriptor->pid);
	if (process->process->descriptors_of)
		return sp_fail(checker->err, EBADMSG,
		               "descriptor %" PRIu32 " belongs to process %" PRIu32
		               ", which shares those of process %" PRIu32,
		               descriptor->number, descriptor->pid,
		               process->process->descriptors_of);
	if (descriptor->number >= DESCRIPTOR_END)
		return sp_fail(checker->err, EBADMSG,
		               "process %" PRIu32 " has a descriptor %" PRIu32 ", which cannot be",
		               descriptor->pid, descriptor->number);
	if (!file || file->mapping_only)
		return sp_fail(checker->err, EBADMSG,
		               "descriptor %" PRIu32 " of process %" PRIu32
		               " refers to %s open file %" PRIu32,
		               descriptor->number, descriptor->pid,
		               file ? "the mapping-only" : "the unknown", descriptor->file);
	return 0;
}

/* Two numbers that must not occur twice together. */
struct pair {
	uint32_t owner, number;
};

static int compare_pairs(const void *left, const void *right)
{
	const struct pair *a = left, *b = right;

	return sp_compare(a->owner, b->owner) ?: sp_compare(a->number, b->number);
}

/* Sorts; returns one that is there twice, or NULL. */
static const struct pair *find_twice(struct sp_array *pairs)
{
	sp_array_sort(pairs, compare_pairs);
	for (size_t i = 1; i < pairs->count; i++) {
		const struct pair *pair = sp_array_at(pairs, i);

		if (compare_pairs(pair - 1, pair) == 0)
			return pair;
	}
	return NULL;
}

static int check_descriptors(struct checker *checker)
{
	const struct sp_array *descriptors = &checker->checkpoint->descriptors;
	sp_cleanup_array struct sp_array pairs = SP_ARRAY_OF(struct pair);
	const struct pair *twice;

	for (size_t i = 0; i < descriptors->count; i++) {
		const Sealpoint__Descriptor *descriptor = sp_array_pointer(descriptors, i);
		struct pair pair = {descriptor->pid, descriptor->number};
		int rc = check_descriptor(checker, descriptor);

		if (rc < 0)
			return rc;
		sp_array_append(&pairs, &pair);
	}
	twice = find_twice(&pairs);
	if (!twice)
		return 0;
	return sp_fail(checker->err, EBADMSG,
	               "process %" PRIu32 " has descriptor %" PRIu32 " twice", twice->owner,
	               twice->number);
}

/* --- processes and threads --- */

/* Of others the default is to be ignored, or to stop. */
static bool may_end_process(uint32_t signal)
{
	static const uint32_t others[] = {SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP,
	                                  SIGTTIN, SIGTTOU, SIGURG,  SIGWINCH};

	for (size_t i = 0; i < SP_COUNT_OF(others); i++)
		if (signal == others[i])
			return false;
	return signal <= 64;
}

/* One that has ended has nothing but its place in the tree and its status. */
static int check_ended(const struct checker *checker, const Sealpoint__Process *process)
{
	uint32_t status = process->wait_status, signal = status & 0x7f;

	if (process->memory_object || process->executable_file || process->n_facets ||
	    process->stopped || process->terminal || process->descriptors_of ||
	    process->directories_of || process->memory_of || process->actions_of)
		return sp_fail(checker->err, EBADMSG,
		               "process %" PRIu32 " has ended, and has more than a status",
		               process->pid);
	if (status >> 16 || !may_end_process(signal) || (signal ? status >> 8 : status & 0x80))
		return sp_fail(checker->err, EBADMSG,
		               "process %" PRIu32 " has ended with status %#" PRIx32
		               ", which cannot be",
		               process->pid, status);
	return 0;
}

static int check_process(struct checker *checker, const Sealpoint__Process *process)
{
	if (process->pid == 0 || process->pid >= PID_END || process->pgid >= PID_END ||
	    process->sid >= PID_END)
		return sp_fail(checker->err, EBADMSG,
		               "a process has the number %" PRIu32 ", group %" PRIu32
		               " and session %" PRIu32 ", which cannot be",
		               process->pid, process->pgid, process->sid);
	if (process->exit_signal > 64)
		return sp_fail(checker->err, EBADMSG,
		               "process %" PRIu32 " ends with signal %" PRIu32 ", which cannot be",
		               process->pid, process->exit_signal);
	if (process->continued && (process->ended || process->stopped))
		return sp_fail(checker->err, EBADMSG,
		               "process %" PRIu32 " goes on, and has ended or is stopped",
		               process->pid);
	if (process->ended)
		return check_ended(checker, process);
	if (process->wait_status > (process->stopped ? 64U : 0U))
		return sp_fail(checker->err, EBADMSG,
		               "process %" PRIu32 " is stopped with signal %" PRIu32
		               ", which cannot be",
		               process->pid, process->wait_status);
	if (process->leader_status & ~0xff00U || (process->leader_status && !process->leader_ended))
		return sp_fail(checker->err, EBADMSG,
		               "the main thread of process %" PRIu32
		               " has ended with status %#" PRIx32 ", which cannot be",
		               process->pid, process->leader_status);
	if (process->memory_object == 0)
		return sp_fail(checker->err, EBADMSG, "process %" PRIu32 " has no memory",
		               process->pid);
	if (process->executable_file != 0 && !is_open_file(checker, process->executable_file))
		return sp_fail(checker->err, EBADMSG,
		               "the executable of process %" PRIu32
		               " is the unknown open file %" PRIu32,
		               process->pid, process->executable_file);
	if (process->terminal != 0 && !is_open_file(checker, process->terminal))
		return sp_fail(checker->err, EBADMSG,
		               "the terminal of process %" PRIu32
		               " is the unknown open file %" PRIu32,
		               process->pid, process->terminal);
	return check_facets(checker, "process", process->pid, process->facets, process->n_facets);
}

static const Sealpoint__Process *process_at(const struct checker *checker, size_t index)
{
	return sp_array_pointer(&checker->checkpoint->processes, index);
}

/*
 * The root comes first, and every other process after its parent: so they form a tree. In a pre-dump, of
 * processes that ran, a parent may have ended meanwhile.
 */
static int check_parentage(struct checker *checker)
{
	const struct sp_array *processes = &checker->checkpoint->processes;
	size_t count = checker->checkpoint->manifest->memory_only ? 1 : processes->count;
	const Sealpoint__Process *root = process_at(checker, 0);

	if (root->ended)
		return sp_fail(checker->err, EBADMSG, "the root %" PRIu32 " has ended", root->pid);
	if (root->pid != checker->checkpoint->manifest->root_pid)
		return sp_fail(checker->err, EBADMSG,
		               "the first process is %" PRIu32 " and not the root %" PRIu32,
		               root->pid, checker->checkpoint->manifest->root_pid);
	for (size_t i = 1; i < count; i++) {
		const Sealpoint__Process *process = process_at(checker, i);
		size_t parent = 0;

		while (parent < i && (process_at(checker, parent)->pid != process->ppid ||
		                      process_at(checker, parent)->ended))
			parent++;
		if (parent == i)
			return sp_fail(checker->err, EBADMSG,
			               "process %" PRIu32 " comes before its parent %" PRIu32,
			               process->pid, process->ppid);
	}
	return 0;
}

static const struct shared {
	size_t offset; /* in Sealpoint__Process */
	const char *what;
} shared[] = {
        {offsetof(Sealpoint__Process, memory_of), "memory"},
        {offsetof(Sealpoint__Process, descriptors_of), "descriptors"},
        {offsetof(Sealpoint__Process, directories_of), "directories"},
        {offsetof(Sealpoint__Process, actions_of), "signal actions"},
};

static uint32_t shares_with(const Sealpoint__Process *process, const struct shared *what)
{
	return *(const uint32_t *)((const char *)process + what->offset);
}

/* One that shares names the first who does. */
static int check_shared(struct checker *checker, size_t index, const struct shared *what)
{
	const Sealpoint__Process *process = process_at(checker, index), *other;
	uint32_t with = shares_with(process, what);

	for (size_t i = 0; i < index && with; i++) {
		other = process_at(checker, i);
		if (other->pid == with && !other->ended && !shares_with(other, what) &&
		    (with != process->memory_of || other->memory_object == process->memory_object))
			return 0;
	}
	if (!with)
		return 0;
	return sp_fail(checker->err, EBADMSG,
	               "process %" PRIu32 " shares its %s with process %" PRIu32
	               ", which comes not before it or has none of its own",
	               process->pid, what->what, with);
}

/* The kernel has signal actions in common only together with memory. */
static int check_sharing(struct checker *checker)
{
	int rc = 0;

	for (size_t i = 0; i < checker->checkpoint->processes.count && !rc; i++) {
		const Sealpoint__Process *process = process_at(checker, i);

		for (size_t j = 0; j < SP_COUNT_OF(shared) && !rc; j++)
			rc = check_shared(checker, i, &shared[j]);
		if (!rc && process->actions_of && !process->memory_of)
			rc = sp_fail(checker->err, EBADMSG,
			             "process %" PRIu32 " shares signal actions, and no memory",
			             process->pid);
	}
	return rc;
}

static int check_processes(struct checker *checker)
{
	const struct sp_array *processes = &checker->checkpoint->processes;
	sp_cleanup_array struct sp_array objects = SP_ARRAY_OF(struct pair);

	if (processes->count == 0)
		return sp_fail(checker->err, EBADMSG, "there is no process in it");
	for (size_t i = 0; i < processes->count; i++) {
		struct seen_process seen = {.process = sp_array_pointer(processes, i)};
		struct pair object = {0, seen.process->memory_object};
		int rc = check_process(checker, seen.process);

		if (rc < 0)
			return rc;
		sp_array_append(&checker->processes, &seen);
		if (!seen.process->ended && !seen.process->memory_of)
			sp_array_append(&objects, &object);
	}
	sp_array_sort(&checker->processes, compare_processes);
	for (size_t i = 1; i < processes->count; i++) {
		const struct seen_process *seen = sp_array_at(&checker->processes, i);

		if (compare_processes(seen - 1, seen) == 0)
			return sp_fail(checker->err, EBADMSG, "process %" PRIu32 " is there twice",
			               seen->process->pid);
	}
	if (find_twice(&objects))
		return sp_fail(checker->err, EBADMSG, "two processes have the same memory");
	return check_sharing(checker) ? -checker->err->code : check_parentage(checker);
}

static int check_thread(struct checker *checker, const Sealpoint__Thread *thread)
{
	struct seen_process *process = find_process(checker, thread->pid);
	bool leads = process && !process->threads && !process->process->leader_ended;

	if (!process || process->process->ended)
		return sp_fail(checker->err, EBADMSG,
		               "thread %" PRIu32 " belongs to the unknown process %" PRIu32,
		               thread->tid, thread->pid);
	if (thread->tid == 0 || thread->tid >= PID_END)
		return sp_fail(checker->err, EBADMSG,
		               "process %" PRIu32 " has a thread %" PRIu32 ", which cannot be",
		               thread->pid, thread->tid);
	process->threads++;
	if (leads != (thread->tid == thread->pid))
		return sp_fail(checker->err, EBADMSG,
		               "thread %" PRIu32 " stands where the %s of process %" PRIu32
		               " should",
		               thread->tid, leads ? "leader" : "other threads", thread->pid);
	if (thread->general.len != sizeof(struct user_regs_struct))
		return sp_fail(checker->err, EBADMSG,
		               "thread %" PRIu32 " has %zu bytes of general registers, not %zu",
		               thread->tid, thread->general.len, sizeof(struct user_regs_struct));
	if (thread->xstate.len > SP_XSTATE_MAX)
		return sp_fail(checker->err, EBADMSG,
		               "thread %" PRIu32
		               " has %zu bytes of extended state, at most %d can be",
		               thread->tid, thread->xstate.len, SP_XSTATE_MAX);
	return check_facets(checker, "thread", thread->tid, thread->facets, thread->n_facets);
}

static int check_threads(struct checker *checker)
{
	const struct sp_array *threads = &checker->checkpoint->threads;
	sp_cleanup_array struct sp_array tids = SP_ARRAY_OF(struct pair);
	const struct pair *twice;

	for (size_t i = 0; i < threads->count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(threads, i);
		struct pair tid = {0, thread->tid};
		int rc = check_thread(checker, thread);

		if (rc < 0)
			return rc;
		sp_array_append(&tids, &tid);
	}
	twice = find_twice(&tids);
	if (twice)
		return sp_fail(checker->err, EBADMSG, "thread %" PRIu32 " is there twice",
		               twice->number);
	for (size_t i = 0; i < checker->processes.count; i++) {
		const struct seen_process *seen = sp_array_at(&checker->processes, i);

		if (seen->threads == 0 && !seen->process->ended &&
		    !checker->checkpoint->manifest->memory_only)
			return sp_fail(checker->err, EBADMSG, "process %" PRIu32 " has no thread",
			               seen->process->pid);
	}
	return 0;
}

/* --- mappings --- */

static int bad_vma(const struct checker *checker, const Sealpoint__Vma *vma, const char *what)
{
	return sp_fail(checker->err, EBADMSG,
	               "the mapping %#" PRIx64 "-%#" PRIx64 " of process %" PRIu32 " %s",
	               vma->start, vma->end, vma->pid, what);
}

static int check_vma_range(const struct checker *checker, const Sealpoint__Vma *vma)
{
	bool huge = vma->kind == SP_VMA_HUGETLB;
	uint64_t page;

	if (vma->page_shift != SP_PAGE_SHIFT && vma->page_shift != 21 && vma->page_shift != 30)
		return bad_vma(checker, vma, "has pages of an unknown size");
	page = huge ? 1ULL << vma->page_shift : SP_PAGE_SIZE;
	if (vma->start >= vma->end || vma->start % page || vma->end % page)
		return bad_vma(checker, vma, "is not a range of pages");
	if (vma->kind == SP_VMA_VSYSCALL)
		return vma->start == VSYSCALL_START && vma->end == VSYSCALL_START + SP_PAGE_SIZE
		               ? 0
		               : bad_vma(checker, vma, "is not where vsyscall is");
	if (vma->end > ADDRESS_END)
		return bad_vma(checker, vma, "lies outside of user memory");
	if (vma->offset % SP_PAGE_SIZE || vma->offset > FILE_OFFSET_END - (vma->end - vma->start))
		return bad_vma(checker, vma, "has an offset in its file that cannot be");
	return 0;
}

/* Private memory is all in the page store: a page without a state would be lost contents. */
static bool needs_pages(const Sealpoint__Vma *vma)
{
	return vma->kind == SP_VMA_ANONYMOUS || vma->kind == SP_VMA_STACK ||
	       vma->kind == SP_VMA_FILE_PRIVATE || vma->kind == SP_VMA_HUGETLB;
}

static int check_vma_pages(const struct checker *checker, const Sealpoint__Vma *vma,
                           struct seen_process *process)
{
	uint64_t first = vma->start / SP_PAGE_SIZE, end = vma->end / SP_PAGE_SIZE;
	uint64_t pages = sp_page_index_count(&checker->checkpoint->pages->index,
	                                     process->process->memory_object, first, end);

	process->pages += pages;
	if (needs_pages(vma) && pages != end - first)
		return bad_vma(checker, vma, "has pages that are not in the page index");
	return 0;
}

static int check_vma(struct checker *checker, const Sealpoint__Vma *vma)
{
	struct seen_process *process = find_process(checker, vma->pid);
	int rc;

	if (!process || process->process->ended || process->process->memory_of)
		return bad_vma(checker, vma, "belongs to nobody");
	if (vma->kind == 0 || vma->kind >= SP_VMA_KINDS)
		return bad_vma(checker, vma, "is of an unknown kind");
	rc = check_vma_range(checker, vma);
	if (rc < 0)
		return rc;
	if (vma->start < process->vma_end)
		return bad_vma(checker, vma, "overlaps the one before, or comes too late");
	process->vma_end = vma->end;
	if (vma->prot & ~(uint32_t)(PROT_READ | PROT_WRITE | PROT_EXEC))
		return bad_vma(checker, vma, "has an unknown protection");
	if (vma->flags & ~(uint32_t)SP_VMA_ALL_FLAGS)
		return bad_vma(checker, vma, "has unknown flags");
	if (vma->protection_key < 0 || vma->protection_key > 15)
		return bad_vma(checker, vma, "has an unknown protection key");
	if (vma->file ? !is_open_file(checker, vma->file)
	              : sp_vma_kind_maps_file(vma->kind) &&
	                        !checker->checkpoint->manifest->memory_only)
		return bad_vma(checker, vma, "is of an unknown file");
	return check_vma_pages(checker, vma, process);
}

/* Forgets pages of mappings that were gone when the program was stopped. */
static void drop_strays(const struct checker *checker, const struct seen_process *seen)
{
	const struct sp_array *vmas = &checker->checkpoint->vmas;
	sp_cleanup_array struct sp_array ranges = SP_ARRAY_OF(struct sp_range);

	for (size_t i = 0; i < vmas->count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(vmas, i);
		struct sp_range range = {vma->start, vma->end};

		if (vma->pid == seen->process->pid)
			sp_array_append(&ranges, &range);
	}
	sp_page_index_keep(&checker->checkpoint->pages->index, seen->process->memory_object,
	                   &ranges);
}

/*
 * Pages outside of all VMAs. Where a program was saved while it ran, lower layers have pages of
 * mappings that are gone; otherwise nobody knows how they came there.
 */
static int check_stray_pages(const struct checker *checker)
{
	const struct sp_page_index *index = &checker->checkpoint->pages->index;

	for (size_t i = 0; i < checker->processes.count; i++) {
		const struct seen_process *seen = sp_array_at(&checker->processes, i);
		uint64_t pages = sp_page_index_count(index, seen->process->memory_object, 0,
		                                     SP_INDEX_PAGES_END);

		if (pages == seen->pages || seen->process->memory_of)
			continue;
		if (index->layers == 1)
			return sp_fail(checker->err, EBADMSG,
			               "%" PRIu64 " pages of process %" PRIu32
			               " are in none of its mappings",
			               pages - seen->pages, seen->process->pid);
		drop_strays(checker, seen);
	}
	return 0;
}

static int check_vmas(struct checker *checker)
{
	const struct sp_array *vmas = &checker->checkpoint->vmas;

	for (size_t i = 0; i < vmas->count; i++) {
		int rc = check_vma(checker, sp_array_pointer(vmas, i));

		if (rc < 0)
			return rc;
	}
	return check_stray_pages(checker);
}

int sp_checkpoint_check(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	struct checker checker = {
	        .checkpoint = checkpoint,
	        .processes = SP_ARRAY_OF(struct seen_process),
	        .err = err,
	};
	int rc = check_open_files(&checker);

	if (rc == 0)
		rc = check_processes(&checker);
	if (rc == 0)
		rc = check_threads(&checker);
	if (rc == 0)
		rc = check_vmas(&checker);
	if (rc == 0)
		rc = check_descriptors(&checker);
	sp_array_release(&checker.processes);
	return rc < 0 ? sp_error_context(err, "%s", SP_IMAGE_RECORDS) : 0;
}
