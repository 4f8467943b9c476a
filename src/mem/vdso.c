/*
 * The vDSO of a restored program.
 *
 * A program's C library keeps pointers into the vDSO that it was started with. The stub has one
 * too, that of this kernel: the same code if the kernel is the same. Its code reaches its data
 * (vvar) relative to itself, so both move together, and the kernel follows the move.
 *
 * Where the code differs, the program's old image is restored as ordinary memory, and its functions
 * are made to jump to those of the stub's vDSO, which stays where it was parked.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "mem/vdso_image.h"

#include <inttypes.h>
#include <string.h>

/* The vDSO and vvar mappings of this process, and so of the stub before they were parked. */
struct layout {
	struct sp_array pieces; /* struct piece, ascending */
	struct sp_range span;   /* all of them; empty if there are none */
};

struct piece {
	struct sp_range range;
	enum sp_vma_kind kind;
};

static void release_layout(struct layout *layout)
{
	sp_array_release(&layout->pieces);
}

static int read_layout(struct layout *layout, struct sp_error *err)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	int rc = sp_own_mappings(&vmas, err);

	*layout = (struct layout){.pieces = SP_ARRAY_OF(struct piece)};
	for (size_t i = 0; rc == 0 && i < vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&vmas, i);
		struct piece piece = {vma->range, vma->kind};

		if (vma->kind != SP_VMA_VDSO && vma->kind != SP_VMA_VVAR)
			continue;
		if (layout->pieces.count == 0)
			layout->span.start = vma->range.start;
		layout->span.end = vma->range.end;
		sp_array_append(&layout->pieces, &piece);
	}
	return rc;
}

/* From the first piece of a kind to the last. */
static struct sp_range kind_span(const struct layout *layout, enum sp_vma_kind kind)
{
	struct sp_range span = {0, 0};

	for (size_t i = 0; i < layout->pieces.count; i++) {
		const struct piece *piece = sp_array_at(&layout->pieces, i);

		if (piece->kind != kind)
			continue;
		if (span.end == 0)
			span.start = piece->range.start;
		span.end = piece->range.end;
	}
	return span;
}

static struct sp_range moved(struct sp_range range, uint64_t from, uint64_t to)
{
	return (struct sp_range){range.start - from + to, range.end - from + to};
}

uint64_t sp_vdso_size(void)
{
	sp_cleanup(release_layout) struct layout layout = {0};

	return read_layout(&layout, NULL) < 0 ? 0 : sp_range_size(layout.span);
}

static void add_move(struct sp_remote *remote, uint64_t from, uint64_t to, uint64_t size)
{
	sp_batch_call(remote, "move the vDSO", SYS_mremap, from, size, size,
	              MREMAP_MAYMOVE | MREMAP_FIXED, to, 0);
}

int sp_vdso_park(struct sp_memory_build *build, remote_addr park, struct sp_error *err)
{
	sp_cleanup(release_layout) struct layout layout = {0};
	struct sp_range vdso, vvar;
	int rc = read_layout(&layout, err);

	if (rc < 0 || layout.pieces.count == 0)
		return rc;
	sp_batch_begin(build->remote);
	for (size_t i = 0; i < layout.pieces.count; i++) {
		const struct piece *piece = sp_array_at(&layout.pieces, i);

		add_move(build->remote, piece->range.start,
		         moved(piece->range, layout.span.start, park).start,
		         sp_range_size(piece->range));
	}
	rc = sp_batch_run(build->remote, err);
	if (rc < 0)
		return rc;
	vdso = kind_span(&layout, SP_VMA_VDSO);
	vvar = kind_span(&layout, SP_VMA_VVAR);
	if (vdso.end)
		build->parked_vdso = moved(vdso, layout.span.start, park);
	if (vvar.end)
		build->parked_vvar = moved(vvar, layout.span.start, park);
	return 0;
}

/* --- placing --- */

static const Sealpoint__Vma *find_record(const struct sp_memory_build *build, enum sp_vma_kind kind,
                                         const struct sp_range *within)
{
	const Sealpoint__Vma *vma;
	size_t index = 0;

	while ((vma = sp_next_vma(build, &index)) != NULL) {
		if (vma->kind == (uint32_t)kind &&
		    (!within || (vma->start <= within->start && vma->end >= within->end)))
			return vma;
	}
	return NULL;
}

/*
 * Is the program's data where code of this kernel looks for it? A program that has unmapped its
 * vvar gets none back; its vDSO is of no use to it, as before.
 */
static bool same_layout(const struct sp_memory_build *build, const struct layout *layout,
                        const Sealpoint__Vma *vdso)
{
	uint64_t own = kind_span(layout, SP_VMA_VDSO).start;

	if (!find_record(build, SP_VMA_VVAR, NULL))
		return true;
	for (size_t i = 0; i < layout->pieces.count; i++) {
		const struct piece *piece = sp_array_at(&layout->pieces, i);
		struct sp_range place = moved(piece->range, own, vdso->start);

		if (piece->kind == SP_VMA_VVAR && !find_record(build, SP_VMA_VVAR, &place))
			return false;
	}
	return true;
}

/* Moves what the program had to its place, and unmaps the rest. */
static int move_home(struct sp_memory_build *build, const struct layout *layout,
                     const Sealpoint__Vma *vdso, struct sp_error *err)
{
	uint64_t own = kind_span(layout, SP_VMA_VDSO).start;

	sp_batch_begin(build->remote);
	for (size_t i = 0; i < layout->pieces.count; i++) {
		const struct piece *piece = sp_array_at(&layout->pieces, i);
		struct sp_range parked = moved(piece->range, own, build->parked_vdso.start);
		struct sp_range place = moved(piece->range, own, vdso ? vdso->start : 0);

		if (vdso && find_record(build, piece->kind, &place))
			add_move(build->remote, parked.start, place.start, sp_range_size(parked));
		else
			sp_batch_call(build->remote, "unmap the stub's vDSO", SYS_munmap,
			              parked.start, sp_range_size(parked), 0, 0, 0, 0);
	}
	return sp_batch_run(build->remote, err);
}

/*
 * A thread that was stopped inside the vDSO would go on in the old code, which has lost its data.
 * A dump avoids that (sp_process_seize()), and warns where it could not; dumping once more helps.
 */
static int check_threads(const struct sp_memory_build *build, const Sealpoint__Vma *vdso,
                         struct sp_error *err)
{
	for (size_t i = 0; i < build->checkpoint->threads.count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(&build->checkpoint->threads, i);
		struct user_regs_struct general;

		if (thread->pid != build->process->pid || thread->general.len != sizeof(general))
			continue;
		memcpy(&general, thread->general.data, sizeof(general));
		if (sp_range_contains(sp_vma_record_range(vdso), sp_instruction_pointer(&general)))
			return sp_fail(err, ENOTSUP,
			               "thread %u of process %u was dumped while it ran code of "
			               "its kernel's vDSO, and this kernel has another one; dump "
			               "it again, or restore it where that kernel runs",
			               thread->tid, thread->pid);
	}
	return 0;
}

/* The program's image as it was saved, and the stub's. Both are the caller's to free. */
static int read_images(const struct sp_memory_build *build, const Sealpoint__Vma *vdso,
                       void **saved, void **present, struct sp_error *err)
{
	uint64_t size = vdso->end - vdso->start;
	int rc;

	if (size > 1 << 20)
		return sp_fail_damaged(err, "a vDSO of %" PRIu64 " KiB", size >> 10);
	*saved = sp_alloc(size);
	*present = sp_alloc(sp_range_size(build->parked_vdso));
	rc = sp_page_store_read(build->checkpoint->pages, build->process->memory_object,
	                        vdso->start, *saved, size, err);
	if (rc < 0)
		return rc;
	return sp_process_read(build->remote->process->pid, build->parked_vdso.start, *present,
	                       sp_range_size(build->parked_vdso), err);
}

static int redirect(struct sp_memory_build *build, const Sealpoint__Vma *vdso, void *saved,
                    const void *present, struct sp_error *err)
{
	uint64_t size = vdso->end - vdso->start;
	int rc = check_threads(build, vdso, err);

	if (rc == 0)
		rc = sp_vdso_redirect(saved, size, present, sp_range_size(build->parked_vdso),
		                      build->parked_vdso.start, err);
	if (rc < 0)
		return rc;
	return sp_process_write_forced(build->remote->process->pid, vdso->start, saved, size, err);
}

int sp_vdso_place(struct sp_memory_build *build, struct sp_error *err)
{
	const Sealpoint__Vma *vdso = find_record(build, SP_VMA_VDSO, NULL);
	uint64_t parked_size = sp_range_size(build->parked_vdso);
	sp_cleanup(release_layout) struct layout layout = {0};
	sp_cleanup_free void *saved = NULL, *present = NULL;
	int rc = read_layout(&layout, err);

	if (rc < 0)
		return rc;
	if (!vdso && !parked_size)
		return 0;
	if (!vdso)
		return move_home(build, &layout, NULL, err);
	if (!parked_size)
		return sp_fail(err, ENOTSUP,
		               "process %u uses a vDSO, and this kernel gives none; boot it "
		               "without vdso=0",
		               build->process->pid);
	rc = read_images(build, vdso, &saved, &present, err);
	if (rc < 0)
		return rc;
	if (vdso->end - vdso->start == parked_size && memcmp(saved, present, parked_size) == 0 &&
	    same_layout(build, &layout, vdso))
		return move_home(build, &layout, vdso, err);
	return redirect(build, vdso, saved, present, err);
}
