/*
 * Making pages of files resident again that were mapped from the page cache, so that a program's
 * resident size survives and it does not fault for them. The kernel then maps their neighbours too
 * (fault-around), which are let go again: they are the file's, nothing is lost with them.
 */
#include "mem/rebuild.h"

#include "base/error.h"
#include "base/kernel_abi.h"

struct residency {
	struct sp_vma_batch *batch;
	const Sealpoint__Vma *vma;
	enum sp_page_state state; /* runs of this state get the advice */
	int advice;
	struct sp_error *err;
};

/* A file may have become shorter since: pages that are not there any more are left out. */
static int advise_run(void *context, const struct sp_page_run *run)
{
	struct residency *residency = context;

	if (run->state != residency->state)
		return 0;
	sp_vma_batch_advise(residency->batch, residency->vma, run->range, residency->advice,
	                    "make resident", SP_CALL_TRY);
	return sp_vma_batch_room(residency->batch, residency->err);
}

static int advise_runs(struct sp_vma_batch *batch, const Sealpoint__Vma *vma,
                       enum sp_page_state state, int advice, struct sp_error *err)
{
	struct residency residency = {batch, vma, state, advice, err};

	return sp_page_store_walk(batch->build->checkpoint->pages,
	                          batch->build->process->memory_object, sp_vma_record_range(vma),
	                          advise_run, &residency, err);
}

static int make_file_resident(struct sp_vma_batch *batch, const Sealpoint__Vma *vma,
                              struct sp_error *err)
{
	const struct sp_memory_build *build = batch->build;
	uint64_t pages[SP_PAGE_STATES];
	int rc;

	if (!sp_vma_kind_maps_file(vma->kind))
		return 0;
	rc = sp_memory_count_pages(build->checkpoint, build->process, vma, pages, err);
	if (rc < 0 || pages[SP_PAGE_FILE] == 0)
		return rc;
	return advise_runs(batch, vma, SP_PAGE_FILE, MADV_POPULATE_READ, err)
	               ?: advise_runs(batch, vma, SP_PAGE_HOLE, MADV_DONTNEED, err);
}

int sp_memory_make_resident(struct sp_memory_build *build, struct sp_error *err)
{
	return sp_vma_batch_all(build, make_file_resident, err);
}
