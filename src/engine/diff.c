/*
 * What changed between two checkpoints.
 *
 * Mappings are compared by address: the boundaries of both lists cut the address space into stretches
 * that lie in one mapping, or none, of each. A stretch that was only before and one like it that is
 * only afterwards are one mapping that moved. Everything else has a name or a number to go by.
 */
#include "engine/engine.h"

#include "base/cleanup.h"
#include "image/checkpoint.h"
#include "image/vma_numbers.h"

#include <string.h>

static bool same_bytes(ProtobufCBinaryData a, ProtobufCBinaryData b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* --- mappings --- */

/* Is the second the first one going on `distance` bytes higher? Their extents are not looked at. */
static bool same_thing(const Sealpoint__Vma *a, const Sealpoint__Vma *b, uint64_t distance)
{
	return a->kind == b->kind && strcmp(a->path, b->path) == 0 &&
	       strcmp(a->name, b->name) == 0 &&
	       (!sp_vma_kind_maps_file(a->kind) ||
	        a->offset - a->start == b->offset - b->start + distance);
}

static bool same_access(const Sealpoint__Vma *a, const Sealpoint__Vma *b)
{
	return a->prot == b->prot && a->flags == b->flags && a->protection_key == b->protection_key;
}

static int compare_pages(struct sp_difference *difference, struct sp_mapping_change *change,
                         struct sp_error *err)
{
	uint64_t size = sp_range_size(change->range);
	struct sp_range before = {change->moved_from, change->moved_from + size};
	int rc = sp_page_store_compare(
	        difference->before->pages, difference->process_before->memory_object, before,
	        difference->after->pages, difference->process_after->memory_object,
	        change->range.start, &change->pages, err);

	difference->memory.contents += change->pages.contents;
	difference->memory.states += change->pages.states;
	return rc;
}

/* One stretch: kept if there is something to tell of it. */
static int add_stretch(struct sp_difference *difference, const Sealpoint__Vma *before,
                       const Sealpoint__Vma *after, struct sp_range range, struct sp_error *err)
{
	struct sp_mapping_change change = {before, after, range, range.start, {0}};
	int rc = 0;

	if (before && after && !same_thing(before, after, 0)) {
		change.after = NULL;
		sp_array_append(&difference->mappings, &change);
		change = (struct sp_mapping_change){NULL, after, range, range.start, {0}};
	} else if (before && after) {
		rc = compare_pages(difference, &change, err);
		if (same_access(before, after) && !change.pages.contents && !change.pages.states)
			return rc;
	}
	sp_array_append(&difference->mappings, &change);
	return rc;
}

/* The mapping at or behind an address, of one process, from `*number` on. */
static const Sealpoint__Vma *vma_from(const struct sp_checkpoint *checkpoint, uint32_t pid,
                                      size_t *number, uint64_t address)
{
	for (; *number < checkpoint->vmas.count; ++*number) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, *number);

		if (vma->pid == pid && vma->end > address)
			return vma;
	}
	return NULL;
}

/* Where a mapping, or the gap before it, ends. */
static uint64_t next_boundary(const Sealpoint__Vma *vma, uint64_t address)
{
	if (!vma)
		return UINT64_MAX;
	return vma->start > address ? vma->start : vma->end;
}

static int compare_mappings(struct sp_difference *difference, struct sp_error *err)
{
	size_t number_before = 0, number_after = 0;
	uint64_t address = 0;
	int rc = 0;

	while (rc == 0) {
		const Sealpoint__Vma *before =
		        vma_from(difference->before, difference->process_before->pid,
		                 &number_before, address);
		const Sealpoint__Vma *after = vma_from(
		        difference->after, difference->process_after->pid, &number_after, address);
		uint64_t end_before = next_boundary(before, address);
		uint64_t end_after = next_boundary(after, address);
		uint64_t end = end_before < end_after ? end_before : end_after;

		if (!before && !after)
			break;
		before = before && before->start <= address ? before : NULL;
		after = after && after->start <= address ? after : NULL;
		if (before || after)
			rc = add_stretch(difference, before, after, (struct sp_range){address, end},
			                 err);
		address = end;
	}
	return rc;
}

/* --- mappings that moved --- */

static bool has_moved(const struct sp_mapping_change *gone, const struct sp_mapping_change *come)
{
	return gone->before && !gone->after && come->after && !come->before &&
	       sp_range_size(gone->range) == sp_range_size(come->range) &&
	       gone->before->prot == come->after->prot &&
	       same_thing(gone->before, come->after, come->range.start - gone->range.start);
}

/* The only change that `change` can be one with, or NULL. */
static struct sp_mapping_change *find_counterpart(const struct sp_difference *difference,
                                                  const struct sp_mapping_change *change)
{
	struct sp_mapping_change *found = NULL;

	for (size_t i = 0; i < difference->mappings.count; i++) {
		struct sp_mapping_change *other = sp_array_at(&difference->mappings, i);

		if (!has_moved(other, change) && !has_moved(change, other))
			continue;
		if (found)
			return NULL;
		found = other;
	}
	return found;
}

static int find_moved(struct sp_difference *difference, struct sp_error *err)
{
	sp_cleanup_array struct sp_array kept = SP_ARRAY_OF(struct sp_mapping_change);

	for (size_t i = 0; i < difference->mappings.count; i++) {
		struct sp_mapping_change *come = sp_array_at(&difference->mappings, i);
		struct sp_mapping_change *gone =
		        come->before ? NULL : find_counterpart(difference, come);

		if (!gone || find_counterpart(difference, gone) != come)
			continue;
		come->before = gone->before;
		come->moved_from = gone->range.start;
		gone->before = NULL;
		if (compare_pages(difference, come, err) < 0)
			return -err->code;
	}
	for (size_t i = 0; i < difference->mappings.count; i++) {
		struct sp_mapping_change *change = sp_array_at(&difference->mappings, i);

		if (change->before || change->after)
			sp_array_append(&kept, change);
	}
	sp_array_release(&difference->mappings);
	difference->mappings = kept;
	kept = SP_ARRAY_OF(struct sp_mapping_change);
	return 0;
}

/* --- contents of files --- */

/* Is it the memory of a process, not a file's? */
static bool is_memory(const struct sp_checkpoint *checkpoint, uint32_t object)
{
	for (size_t i = 0; i < checkpoint->processes.count; i++) {
		const Sealpoint__Process *process = sp_array_pointer(&checkpoint->processes, i);

		if (process->memory_object == object)
			return true;
	}
	return false;
}

/*
 * By number, in the order in which a dump came across the files. Where others were opened or closed
 * in between, two different files are compared; then descriptors have changed, too, and are told.
 * Of a tree, those of all its processes are compared.
 */
static int compare_files(struct sp_difference *difference, struct sp_error *err)
{
	const struct sp_range all = {0, 1ULL << 52};
	struct sp_page_store *before = difference->before->pages, *after = difference->after->pages;
	uint32_t object = 0;
	int rc = 0;

	while (rc == 0 && (object = sp_page_store_object_behind(after, object)) != 0) {
		if (!is_memory(difference->before, object) && !is_memory(difference->after, object))
			rc = sp_page_store_compare(before, object, all, after, object, 0,
			                           &difference->files, err);
	}
	return rc;
}

/* --- facets, threads --- */

static const Sealpoint__Facet *find_facet(Sealpoint__Facet *const *facets, size_t count,
                                          const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(facets[i]->name, name) == 0)
			return facets[i];
	return NULL;
}

static void compare_facets(struct sp_difference *difference, uint32_t tid,
                           Sealpoint__Facet *const *before, size_t count_before,
                           Sealpoint__Facet *const *after, size_t count_after)
{
	for (size_t i = 0; i < count_before; i++) {
		struct sp_facet_change change = {before[i], NULL, tid};

		change.after = find_facet(after, count_after, before[i]->name);
		if (!change.after || !same_bytes(change.before->body, change.after->body))
			sp_array_append(&difference->facets, &change);
	}
	for (size_t i = 0; i < count_after; i++) {
		struct sp_facet_change change = {NULL, after[i], tid};

		if (!find_facet(before, count_before, after[i]->name))
			sp_array_append(&difference->facets, &change);
	}
}

static const Sealpoint__Thread *find_thread(const struct sp_checkpoint *checkpoint, uint32_t pid,
                                            uint32_t tid)
{
	for (size_t i = 0; i < checkpoint->threads.count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(&checkpoint->threads, i);

		if (thread->pid == pid && thread->tid == tid)
			return thread;
	}
	return NULL;
}

static bool same_registers(const Sealpoint__Thread *a, const Sealpoint__Thread *b)
{
	return same_bytes(a->general, b->general) && same_bytes(a->xstate, b->xstate);
}

static bool same_thread(const Sealpoint__Thread *a, const Sealpoint__Thread *b)
{
	return same_registers(a, b) && a->signal_mask == b->signal_mask &&
	       strcmp(a->comm, b->comm) == 0;
}

static void compare_threads(struct sp_difference *difference)
{
	const struct sp_array *before = &difference->before->threads;
	const struct sp_array *after = &difference->after->threads;

	for (size_t i = 0; i < before->count; i++) {
		struct sp_thread_change change = {.before = sp_array_pointer(before, i)};

		if (change.before->pid != difference->process_before->pid)
			continue;
		change.after = find_thread(difference->after, difference->process_after->pid,
		                           change.before->tid);
		change.registers = change.after && !same_registers(change.before, change.after);
		if (!change.after || !same_thread(change.before, change.after))
			sp_array_append(&difference->threads, &change);
		if (change.after)
			compare_facets(difference, change.after->tid, change.before->facets,
			               change.before->n_facets, change.after->facets,
			               change.after->n_facets);
	}
	for (size_t i = 0; i < after->count; i++) {
		struct sp_thread_change change = {.after = sp_array_pointer(after, i)};

		if (change.after->pid == difference->process_after->pid &&
		    !find_thread(difference->before, difference->process_before->pid,
		                 change.after->tid))
			sp_array_append(&difference->threads, &change);
	}
}

/* --- descriptors --- */

static const Sealpoint__Descriptor *find_descriptor(const struct sp_checkpoint *checkpoint,
                                                    uint32_t pid,
                                                    const Sealpoint__Descriptor *wanted)
{
	for (size_t i = 0; i < checkpoint->descriptors.count; i++) {
		const Sealpoint__Descriptor *descriptor =
		        sp_array_pointer(&checkpoint->descriptors, i);

		if (descriptor->pid == pid && descriptor->number == wanted->number)
			return descriptor;
	}
	return NULL;
}

static bool same_descriptor(const struct sp_difference *difference, const Sealpoint__Descriptor *a,
                            const Sealpoint__Descriptor *b)
{
	const Sealpoint__OpenFile *file_a = sp_checkpoint_file(difference->before, a->file);
	const Sealpoint__OpenFile *file_b = sp_checkpoint_file(difference->after, b->file);

	return a->close_on_exec == b->close_on_exec && strcmp(file_a->kind, file_b->kind) == 0 &&
	       file_a->flags == file_b->flags && same_bytes(file_a->body, file_b->body);
}

static void compare_descriptors(struct sp_difference *difference)
{
	const struct sp_array *before = &difference->before->descriptors;
	const struct sp_array *after = &difference->after->descriptors;

	for (size_t i = 0; i < before->count; i++) {
		struct sp_descriptor_change change = {sp_array_pointer(before, i), NULL};

		if (change.before->pid != difference->process_before->pid)
			continue;
		change.after = find_descriptor(difference->after, difference->process_after->pid,
		                               change.before);
		if (!change.after || !same_descriptor(difference, change.before, change.after))
			sp_array_append(&difference->descriptors, &change);
	}
	for (size_t i = 0; i < after->count; i++) {
		struct sp_descriptor_change change = {NULL, sp_array_pointer(after, i)};

		if (change.after->pid == difference->process_after->pid &&
		    !find_descriptor(difference->before, difference->process_before->pid,
		                     change.after))
			sp_array_append(&difference->descriptors, &change);
	}
}

/* --- the whole --- */

static int compare_all(struct sp_difference *difference, struct sp_error *err)
{
	const Sealpoint__Process *before = difference->process_before;
	const Sealpoint__Process *after = difference->process_after;
	int rc = compare_mappings(difference, err);

	if (rc == 0)
		rc = find_moved(difference, err);
	if (rc == 0)
		rc = compare_files(difference, err);
	if (difference->before->manifest->memory_only || difference->after->manifest->memory_only)
		return rc;
	compare_facets(difference, 0, before->facets, before->n_facets, after->facets,
	               after->n_facets);
	compare_threads(difference);
	compare_descriptors(difference);
	return rc;
}

/* That one of a tree says the same would be taken for all of it, so nobody chooses but the user. */
static int find_process(const struct sp_checkpoint *checkpoint, pid_t pid,
                        const Sealpoint__Process **process, struct sp_error *err)
{
	if (!pid && checkpoint->processes.count > 1)
		return sp_fail(err, ENOTSUP,
		               "%s holds %zu processes; say with --pid PID which one to compare "
		               "(\"sealpoint inspect %s\" lists them)",
		               checkpoint->path, checkpoint->processes.count, checkpoint->path);
	return sp_checkpoint_find_process(checkpoint, pid, process, err);
}

int sp_diff(const char *before, const char *after, pid_t pid, struct sp_difference *difference,
            struct sp_error *err)
{
	int rc;

	*difference = (struct sp_difference){
	        .mappings = SP_ARRAY_OF(struct sp_mapping_change),
	        .threads = SP_ARRAY_OF(struct sp_thread_change),
	        .descriptors = SP_ARRAY_OF(struct sp_descriptor_change),
	        .facets = SP_ARRAY_OF(struct sp_facet_change),
	};
	rc = sp_checkpoint_open(&difference->before, before, err);
	if (rc == 0)
		rc = sp_checkpoint_open(&difference->after, after, err);
	if (rc == 0)
		rc = find_process(difference->before, pid, &difference->process_before, err);
	if (rc == 0)
		rc = find_process(difference->after, pid, &difference->process_after, err);
	if (rc == 0)
		rc = compare_all(difference, err);
	if (rc < 0)
		sp_difference_release(difference);
	return rc;
}

void sp_difference_release(struct sp_difference *difference)
{
	sp_array_release(&difference->mappings);
	sp_array_release(&difference->threads);
	sp_array_release(&difference->descriptors);
	sp_array_release(&difference->facets);
	sp_checkpoint_close(sp_steal_ptr(&difference->before));
	sp_checkpoint_close(sp_steal_ptr(&difference->after));
}
