/* What a checkpoint holds, summed up: the states of the pages of each mapping. */
#include "engine/engine.h"

#include "mem/memory.h"

int sp_summarize_mappings(struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                          struct sp_array *summaries, struct sp_error *err)
{
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);
		struct sp_mapping_summary *summary;
		int rc;

		if (vma->pid != process->pid)
			continue;
		summary = sp_array_push(summaries);
		summary->vma = vma;
		rc = sp_memory_count_pages(checkpoint, process, vma, summary->pages, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}
