/* What a checkpoint holds, summed up: the states of the pages of each mapping. */
#include "engine/engine.h"

static int count_run(void *context, const struct sp_page_run *run)
{
	struct sp_mapping_summary *summary = context;

	summary->pages[run->state] += sp_range_size(run->range) >> SP_PAGE_SHIFT;
	return 0;
}

int sp_summarize_mappings(struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                          struct sp_array *summaries, struct sp_error *err)
{
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);
		struct sp_range range = {vma->start, vma->end};
		struct sp_mapping_summary *summary;
		int rc;

		if (vma->pid != process->pid)
			continue;
		summary = sp_array_push(summaries);
		summary->vma = vma;
		rc = sp_page_store_walk(checkpoint->pages, process->memory_object, range, count_run,
		                        summary, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}
