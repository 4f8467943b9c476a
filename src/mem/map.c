/*
 * The frame of an address space: emptying the stub, making every mapping at its address, and in the
 * end giving each its final protection and properties.
 *
 * Mappings are made with MAP_FIXED_NOREPLACE, so that a mistake in an image can never overwrite
 * what drives the stub. While contents are filled in, a mapping that has contents of its own is
 * writable.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"

#include <inttypes.h>
#include <linux/mman.h>
#include <stdlib.h>
#include <sys/ptrace.h>

/* User addresses end here; higher ones exist with five-level page tables, for those who ask. */
#define ADDRESS_LIMIT 0x7ffffffff000ULL

/* --- a free range --- */

/* All ranges that are taken, of the program and of ourselves, ascending. */
static int taken_ranges(const struct sp_checkpoint *checkpoint, struct sp_array *taken,
                        struct sp_error *err)
{
	sp_cleanup(sp_vma_list_release) struct sp_array own = {0};
	int rc = sp_own_mappings(&own, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < own.count; i++)
		sp_array_append(taken, &((struct sp_vma *)sp_array_at(&own, i))->range);
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		struct sp_range range = sp_vma_record_range(sp_array_pointer(&checkpoint->vmas, i));

		sp_array_append(taken, &range);
	}
	sp_array_sort(taken, sp_range_compare);
	return 0;
}

/*
 * The middle of the largest gap: what stays there (a vDSO that is not the program's) is in the way
 * of nothing that grows.
 */
int sp_memory_find_free(const struct sp_checkpoint *checkpoint, uint64_t size, remote_addr *address,
                        struct sp_error *err)
{
	sp_cleanup_array struct sp_array taken = SP_ARRAY_OF(struct sp_range);
	struct sp_range gap = {SP_ADDRESS_FIRST, SP_ADDRESS_FIRST}, largest = gap;
	int rc = taken_ranges(checkpoint, &taken, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i <= taken.count; i++) {
		const struct sp_range *next = i < taken.count ? sp_array_at(&taken, i) : NULL;

		gap.end = next && next->start < ADDRESS_LIMIT ? next->start : ADDRESS_LIMIT;
		if (gap.end > gap.start && sp_range_size(gap) > sp_range_size(largest))
			largest = gap;
		if (next && next->end > gap.start)
			gap.start = next->end;
	}
	if (sp_range_size(largest) < size)
		return sp_fail(err, ENOMEM, "no free range of %" PRIu64 " KiB in the address space",
		               size >> 10);
	*address = sp_page_down(largest.start + (sp_range_size(largest) - size) / 2);
	return 0;
}

/* --- emptying --- */

/*
 * The C library of sealpoint, whose copy the stub is, has given the kernel an rseq area, which the
 * kernel writes to whenever the stub is preempted. It goes away with the mappings: unregister it
 * first.
 */
static int forget_rseq(struct sp_memory_build *build, struct sp_error *err)
{
	struct sp_ptrace_rseq_configuration rseq = {0};
	const int unregister = 1;

	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, build->remote->driver->tid, sizeof(rseq), &rseq) <
	            0 ||
	    !rseq.rseq_abi_pointer)
		return 0;
	return sp_remote_call(build->remote, NULL, err, "unregister the stub's rseq area", SYS_rseq,
	                      rseq.rseq_abi_pointer, rseq.rseq_abi_size, unregister, rseq.signature,
	                      0, 0);
}

int sp_memory_empty(struct sp_memory_build *build, struct sp_range keep, struct sp_error *err)
{
	sp_cleanup_array struct sp_array kept = SP_ARRAY_OF(struct sp_range);
	const struct sp_range limit = {ADDRESS_LIMIT, ADDRESS_LIMIT};
	uint64_t start = 0;
	int rc = forget_rseq(build, err);

	sp_array_append(&kept, &keep);
	sp_array_append(&kept, &build->parked_vdso);
	sp_array_append(&kept, &build->parked_vvar);
	sp_array_append(&kept, &limit);
	for (size_t i = 0; i < build->kept.count; i++)
		sp_array_append(&kept, sp_array_at(&build->kept, i));
	sp_array_sort(&kept, sp_range_compare);
	sp_batch_begin(build->remote);
	for (size_t i = 0; i < kept.count && !rc; i++) {
		const struct sp_range *next = sp_array_at(&kept, i);

		if (next->start > start)
			sp_batch_call(build->remote, "unmap the stub's own memory", SYS_munmap,
			              start, next->start - start, 0, 0, 0, 0);
		if (next->end > start)
			start = next->end;
		rc = sp_batch_make_room(build->remote, err);
	}
	return rc ? rc : sp_batch_run(build->remote, err);
}

/* --- mapping --- */

static bool valid_range(uint64_t start, uint64_t end, uint64_t align)
{
	return start < end && end <= ADDRESS_LIMIT && start % align == 0 && end % align == 0;
}

static bool valid_list(const Sealpoint__Vma *vma, const uint64_t *list, size_t count,
                       uint64_t page_size)
{
	uint64_t from = vma->start;

	for (size_t i = 0; i + 1 < count; i += 2) {
		if (!valid_range(list[i], list[i + 1], page_size) || list[i] < from ||
		    list[i + 1] > vma->end)
			return false;
		from = list[i + 1];
	}
	return count % 2 == 0;
}

/* Everything that becomes an argument of a call in the stub. */
static int check_record(const struct sp_memory_build *build, const Sealpoint__Vma *vma,
                        struct sp_error *err)
{
	bool known_size = vma->page_shift == 12 || vma->page_shift == 21 || vma->page_shift == 30;

	if (vma->kind == 0 || vma->kind >= SP_VMA_KINDS || vma->kind == SP_VMA_DEVICE ||
	    !known_size || !valid_range(vma->start, vma->end, 1ULL << vma->page_shift) ||
	    !valid_list(vma, vma->huge, vma->n_huge, SP_HUGE_PAGE_SIZE) ||
	    !valid_list(vma, vma->inherited, vma->n_inherited, SP_PAGE_SIZE) ||
	    vma->prot > (PROT_READ | PROT_WRITE | PROT_EXEC) || vma->offset % SP_PAGE_SIZE ||
	    vma->protection_key < 0 || vma->protection_key > 15)
		return sp_fail_damaged(err, "impossible memory at 0x%" PRIx64, vma->start);
	if (sp_vma_kind_maps_file(vma->kind) &&
	    (vma->file == 0 || vma->file > build->checkpoint->files.count))
		return sp_fail_damaged(err, "memory at 0x%" PRIx64 " of an unknown file (%s)",
		                       vma->start, vma->path);
	return 0;
}

static uint64_t map_flags(const Sealpoint__Vma *vma)
{
	uint64_t flags = MAP_FIXED_NOREPLACE;

	if (!sp_vma_kind_maps_file(vma->kind))
		flags |= MAP_ANONYMOUS;
	if (vma->flags & SP_VMA_DROPPABLE)
		flags |= MAP_DROPPABLE;
	else if (vma->flags & SP_VMA_SYNC)
		flags |= MAP_SHARED_VALIDATE | MAP_SYNC;
	else
		flags |= sp_vma_kind_is_shared(vma->kind) ? MAP_SHARED : MAP_PRIVATE;
	if (vma->kind == SP_VMA_STACK)
		flags |= MAP_GROWSDOWN;
	if (vma->flags & SP_VMA_NO_RESERVE)
		flags |= MAP_NORESERVE;
	if (vma->kind == SP_VMA_HUGETLB)
		flags |= MAP_HUGETLB | (uint64_t)vma->page_shift << MAP_HUGE_SHIFT;
	return flags;
}

/*
 * A heap that has grown step by step may be larger than all memory there is, but no mapping that is made at once
 * (vm.overcommit_memory, proc_sys_vm(5)): it is made in steps again, which the kernel joins.
 */
#define MAP_STEP (256ULL << 20)

static int map_vma(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, struct sp_error *err)
{
	bool file = sp_vma_kind_maps_file(vma->kind), steps = vma->kind == SP_VMA_ANONYMOUS;
	uint64_t fd = (uint64_t)(file ? batch->build->fds[vma->file] : -1), size;
	int prot, rc = sp_vma_fill_prot(batch->build, vma, &prot, err);

	for (uint64_t at = vma->start; at < vma->end && rc >= 0; at += size) {
		size = steps && vma->end - at > MAP_STEP ? MAP_STEP : vma->end - at;
		rc = sp_vma_batch_room(batch, err);
		if (rc >= 0)
			sp_vma_batch_add(batch, vma, "map", SP_CALL_MUST, SYS_mmap,
			                 (uint64_t[6]){at, size, (uint64_t)prot, map_flags(vma), fd,
			                               file ? vma->offset : 0});
	}
	return rc;
}

static int check_and_map(struct sp_vma_batch *batch, const Sealpoint__Vma *vma,
                         struct sp_error *err)
{
	int rc = vma->kind == SP_VMA_VSYSCALL ? 0 : check_record(batch->build, vma, err);

	if (rc || !sp_vma_is_made(vma) || vma->kind == SP_VMA_SYSTEM_V ||
	    sp_vma_is_kept(batch->build, vma))
		return rc;
	return map_vma(batch, vma, err);
}

int sp_memory_map(struct sp_memory_build *build, struct sp_error *err)
{
	return sp_vma_batch_all(build, check_and_map, err);
}
