/*
 * Attaching segments of System V shared memory (shmat(2)).
 *
 * A segment is attached as a whole; what a program has of it may be less, or in pieces: parts that were
 * detached, or moved, or have another protection. Pieces of one attachment stay one thing to shmdt(2), as
 * long as they lie where that has put them. So each attachment is made once, where there is room for all
 * of it, its pieces are moved to their places, and the rest is detached.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>

/* Of the temporary pages and the parked vDSO, generously. */
#define TEMPORARY_SIZE (1ULL << 20)

/* Where the attachment that a piece belongs to begins, or would begin if it were whole. */
static uint64_t attachment_start(const Sealpoint__Vma *vma)
{
	return vma->start - vma->offset;
}

static bool same_attachment(const Sealpoint__Vma *a, const Sealpoint__Vma *b)
{
	return b->kind == SP_VMA_SYSTEM_V && a->file == b->file &&
	       attachment_start(a) == attachment_start(b);
}

static bool is_first_piece(const struct sp_memory_build *build, const Sealpoint__Vma *piece)
{
	const Sealpoint__Vma *vma;
	size_t index = 0;

	do
		vma = sp_next_vma(build, &index);
	while (!same_attachment(piece, vma));
	return vma == piece;
}

/* The segment's id is the number of its inode. */
static int find_segment(const struct sp_memory_build *build, const Sealpoint__Vma *vma,
                        struct stat *segment, struct sp_error *err)
{
	if (fstat(build->fds[vma->file], segment))
		return sp_fail_errno(err, errno, "cannot examine System V shared memory");
	segment->st_size = (off_t)sp_page_up((uint64_t)segment->st_size);
	if (vma->offset > (uint64_t)segment->st_size ||
	    vma->end - vma->start > (uint64_t)segment->st_size - vma->offset)
		return sp_fail_damaged(err, "impossible memory at 0x%" PRIx64, vma->start);
	return 0;
}

/* Beside the middle of the largest gap, where the temporary pages and the parked vDSO are. */
static int find_room(const struct sp_memory_build *build, const Sealpoint__Vma *vma, uint64_t size,
                     remote_addr *room, struct sp_error *err)
{
	uint64_t page = 1ULL << vma->page_shift;
	int rc = sp_memory_find_free(build->checkpoint, 2 * (size + page + TEMPORARY_SIZE), room,
	                             err);

	*room = (*room + page - 1) & ~(page - 1);
	return rc;
}

static int move_piece(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, remote_addr room,
                      struct sp_error *err)
{
	const struct sp_memory_build *build = batch->build;
	uint64_t size = vma->end - vma->start;
	struct stat segment;
	int prot, rc = find_segment(build, vma, &segment, err);

	if (!rc)
		rc = sp_vma_fill_prot(build, vma, &prot, err);
	if (!rc)
		rc = sp_vma_batch_room(batch, err);
	if (rc)
		return rc;
	sp_vma_batch_add(batch, vma, "attach", SP_CALL_MUST, SYS_mremap,
	                 (uint64_t[6]){room + vma->offset, size, size,
	                               MREMAP_MAYMOVE | MREMAP_FIXED, vma->start});
	sp_vma_batch_add(batch, vma, "protect", SP_CALL_MUST, SYS_mprotect,
	                 (uint64_t[6]){vma->start, size, (uint64_t)prot});
	return 0;
}

static int attach(struct sp_vma_batch *batch, const Sealpoint__Vma *first, struct sp_error *err)
{
	const struct sp_memory_build *build = batch->build;
	bool writable = first->flags & SP_VMA_MAY_WRITE;
	const Sealpoint__Vma *vma;
	struct stat segment;
	remote_addr room;
	size_t index = 0;
	int rc = find_segment(build, first, &segment, err);

	if (!rc)
		rc = find_room(build, first, (uint64_t)segment.st_size, &room, err);
	if (rc)
		return rc;
	sp_vma_batch_add(batch, first, "attach", SP_CALL_MUST, SYS_shmat,
	                 (uint64_t[6]){segment.st_ino, room, writable ? 0 : SHM_RDONLY});
	while (!rc && (vma = sp_next_vma(build, &index)) != NULL)
		if (same_attachment(first, vma))
			rc = move_piece(batch, vma, room, err);
	sp_vma_batch_add(batch, first, "detach a part of", SP_CALL_MUST, SYS_munmap,
	                 (uint64_t[6]){room, (uint64_t)segment.st_size});
	return rc;
}

static int attach_first_piece(struct sp_vma_batch *batch, const Sealpoint__Vma *vma,
                              struct sp_error *err)
{
	if (vma->kind != SP_VMA_SYSTEM_V || !is_first_piece(batch->build, vma))
		return 0;
	return attach(batch, vma, err);
}

int sp_memory_attach(struct sp_memory_build *build, struct sp_error *err)
{
	return sp_vma_batch_all(build, attach_first_piece, err);
}
