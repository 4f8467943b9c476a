/*
 * What a process has in its memory, read from outside while it stands: its mappings, the state of
 * each page of private mappings, and their contents. Comparing two of them, and the mappings of one
 * with those of a checkpoint. For tests/tools/deltas.c, which says what failed.
 */
#ifndef SEALPOINT_TESTS_SNAPSHOT_H
#define SEALPOINT_TESTS_SNAPSHOT_H

#include "mem/page_scan.h"
#include "mem/vma.h"

#include "../subjects/changing.h"

#include <inttypes.h>

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void need(int rc, const struct sp_error *err, const char *what);

/* --- what is in memory --- */

/* Pages of the same categories, and what they contain if that is the process's own. */
struct run {
	struct sp_range range;
	uint64_t categories;
	bool own;
	uint8_t *bytes;
};

struct snapshot {
	struct sp_array vmas; /* struct sp_vma */
	struct sp_array runs; /* struct run, ascending */
};

static void release_snapshot(struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->runs.count; i++)
		free(((struct run *)sp_array_at(&snapshot->runs, i))->bytes);
	sp_array_release(&snapshot->runs);
	sp_vma_list_release(&snapshot->vmas);
}

static bool is_private(unsigned kind)
{
	return kind == SP_VMA_ANONYMOUS || kind == SP_VMA_STACK || kind == SP_VMA_FILE_PRIVATE ||
	       kind == SP_VMA_HUGETLB;
}

static int add_run(void *context, struct sp_range range, uint64_t categories, struct sp_error *err)
{
	const uint64_t telling =
	        PAGE_IS_PRESENT | PAGE_IS_SWAPPED | PAGE_IS_FILE | PAGE_IS_PFNZERO | PAGE_IS_GUARD;
	struct run *run = sp_array_push(context);

	*run = (struct run){.range = range, .categories = categories & telling};
	run->own = !(categories & (PAGE_IS_FILE | PAGE_IS_PFNZERO | PAGE_IS_GUARD));
	return 0;
}

static void read_run(int memory, struct run *run)
{
	size_t size = sp_range_size(run->range);

	run->bytes = sp_alloc(size);
	if (pread(memory, run->bytes, size, (off_t)run->range.start) != (ssize_t)size)
		fail("cannot read the subject's memory at 0x%" PRIx64, run->range.start);
}

static void take_snapshot(struct snapshot *snapshot, pid_t pid)
{
	struct sp_page_scan scan;
	struct sp_error err = {0};
	char path[64];
	int memory;

	*snapshot = (struct snapshot){.runs = SP_ARRAY_OF(struct run)};
	need(sp_vma_list_read(pid, &snapshot->vmas, &err), &err, "its mappings");
	need(sp_page_scan_open(&scan, pid, &err), &err, "its pages");
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	memory = open(path, O_RDONLY | O_CLOEXEC);
	for (size_t i = 0; i < snapshot->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&snapshot->vmas, i);
		size_t first = snapshot->runs.count;

		if (!is_private(vma->kind))
			continue;
		need(sp_page_scan_walk(&scan, vma->range, add_run, &snapshot->runs, &err), &err,
		     "its pages");
		for (size_t j = first; j < snapshot->runs.count; j++) {
			struct run *run = sp_array_at(&snapshot->runs, j);

			/* The zero page in a private mapping of a file hides what the file has. */
			if (vma->kind == SP_VMA_FILE_PRIVATE && run->categories & PAGE_IS_PFNZERO)
				run->own = true;
			if (run->own)
				read_run(memory, run);
		}
	}
	close(memory);
	sp_page_scan_close(&scan);
}

/* --- an image against a snapshot: mappings --- */

/* What of a mapping is compared; neighbours that are alike count as one. */
struct mapping {
	struct sp_range range;
	uint64_t kind, prot, flags, offset, page_shift, key;
	char name[128];
};

static void add_mapping(struct sp_array *mappings, const char *name, struct mapping mapping)
{
	struct mapping *last = mappings->count ? sp_array_at(mappings, mappings->count - 1) : NULL;
	uint64_t size = last ? sp_range_size(last->range) : 0;
	struct mapping joined;

	mapping.flags &= ~(uint64_t)SP_VMA_UFFD;
	snprintf(mapping.name, sizeof(mapping.name), "%s", name);
	if (!sp_vma_kind_maps_file((enum sp_vma_kind)mapping.kind))
		mapping.offset = 0;
	if (last && last->range.end == mapping.range.start) {
		joined = mapping;
		joined.range = last->range;
		joined.offset = last->offset;
		if (!memcmp(&joined, last, sizeof(joined)) &&
		    (!sp_vma_kind_maps_file((enum sp_vma_kind)mapping.kind) ||
		     mapping.offset == last->offset + size)) {
			last->range.end = mapping.range.end;
			return;
		}
	}
	sp_array_append(mappings, &mapping);
}

static struct sp_array mappings_of_snapshot(const struct snapshot *snapshot)
{
	struct sp_array mappings = SP_ARRAY_OF(struct mapping);

	for (size_t i = 0; i < snapshot->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&snapshot->vmas, i);

		add_mapping(&mappings, vma->path,
		            (struct mapping){
		                    .range = vma->range,
		                    .kind = vma->kind,
		                    .prot = (uint64_t)vma->prot,
		                    .flags = vma->flags,
		                    .offset = vma->offset,
		                    .page_shift = vma->page_shift,
		                    .key = (uint64_t)vma->protection_key,
		            });
	}
	return mappings;
}

static struct sp_array mappings_of_image(const struct sp_checkpoint *image)
{
	struct sp_array mappings = SP_ARRAY_OF(struct mapping);

	for (size_t i = 0; i < image->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&image->vmas, i);

		add_mapping(&mappings, vma->path,
		            (struct mapping){
		                    .range = {vma->start, vma->end},
		                    .kind = vma->kind,
		                    .prot = vma->prot,
		                    .flags = vma->flags,
		                    .offset = vma->offset,
		                    .page_shift = vma->page_shift,
		                    .key = (uint64_t)vma->protection_key,
		            });
	}
	return mappings;
}

static const char *describe(const struct mapping *mapping, char text[256])
{
	snprintf(text, 256,
	         "0x%" PRIx64 "-0x%" PRIx64 " kind %" PRIu64 " prot %" PRIu64 " flags 0x%" PRIx64
	         " offset 0x%" PRIx64 " pages 2^%" PRIu64 " key %" PRIu64 " %s",
	         mapping->range.start, mapping->range.end, mapping->kind, mapping->prot,
	         mapping->flags, mapping->offset, mapping->page_shift, mapping->key, mapping->name);
	return text;
}

/* A dump makes the stack a few pages larger where it has no other place (remote/foothold.h). */
static bool is_grown_stack(const struct mapping *live, const struct mapping *saved)
{
	struct mapping grown = *saved;

	grown.range.start = live->range.start;
	return live->kind == SP_VMA_STACK && !memcmp(live, &grown, sizeof(grown)) &&
	       live->range.start + 16 * PAGE >= saved->range.start;
}

static void compare_mappings(const struct sp_array *live, const struct sp_array *saved)
{
	char left[256], right[256];

	for (size_t i = 0; i < live->count && i < saved->count; i++) {
		const struct mapping *one = sp_array_at(live, i), *other = sp_array_at(saved, i);

		if (memcmp(one, other, sizeof(*one)) && !is_grown_stack(one, other))
			fail("a mapping differs: it was %s, in the image %s", describe(one, left),
			     describe(other, right));
	}
	if (live->count != saved->count)
		fail("there were %zu mappings, in the image %zu", live->count, saved->count);
}

/* --- two snapshots --- */

static bool is_of_second_thread(uint64_t address)
{
	return address >= CHANGING_ORDER && address < CHANGING_ORDER + CHANGING_ORDER_SIZE;
}

static bool all_zero(const struct run *run, struct sp_range part)
{
	return mapping_is_zero(run->bytes + (part.start - run->range.start), sp_range_size(part));
}

static const struct run *find_run(const struct snapshot *snapshot, uint64_t address)
{
	return sp_array_search(&snapshot->runs, &address, sp_range_locate);
}

static void fail_with_bytes(uint64_t at, const uint8_t *was, const uint8_t *is)
{
	size_t byte = 0;

	if (!is && mapping_is_zero(was, PAGE))
		return; /* a dump has touched the stack (compare_part()) */
	if (!is)
		fail("page 0x%" PRIx64 " has lost its contents", at);
	while (was[byte] == is[byte])
		byte++;
	fail("byte 0x%" PRIx64 " was 0x%02x, and is 0x%02x", at + byte, was[byte], is[byte]);
}

static void compare_snapshots(const struct snapshot *before, const struct snapshot *after)
{
	for (size_t i = 0; i < before->runs.count; i++) {
		const struct run *run = sp_array_at(&before->runs, i);

		for (uint64_t at = run->range.start; at < run->range.end; at += PAGE) {
			const struct run *other = find_run(after, at);
			bool guard = run->categories & PAGE_IS_GUARD;

			if (is_of_second_thread(at))
				continue;
			if (guard != (other && other->categories & PAGE_IS_GUARD))
				fail("page 0x%" PRIx64 " is a guard page before or after only", at);
			if (run->own && (!other || !other->own ||
			                 memcmp(run->bytes + (at - run->range.start),
			                        other->bytes + (at - other->range.start), PAGE)))
				fail_with_bytes(at, run->bytes + (at - run->range.start),
				                other && other->own
				                        ? other->bytes + (at - other->range.start)
				                        : NULL);
		}
	}
	for (size_t i = 0; i < after->runs.count; i++) {
		const struct run *run = sp_array_at(&after->runs, i);

		for (uint64_t at = run->range.start; run->own && at < run->range.end; at += PAGE) {
			const struct run *other = find_run(before, at);

			if (!is_of_second_thread(at) && !(other && other->own) &&
			    !all_zero(run, (struct sp_range){at, at + PAGE}))
				fail("page 0x%" PRIx64 " has contents that it had not", at);
		}
	}
}

#endif
