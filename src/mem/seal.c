/*
 * Sealing again what was sealed (mseal(2), Linux 6.10). A seal cannot be taken back and forbids
 * nearly everything that a restore does to a mapping, so it comes last. One call for each VMA: a
 * call over several could fail half done.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"

int sp_memory_seal(struct sp_memory_build *build, struct sp_error *err)
{
	sp_cleanup(sp_vma_batch_release) struct sp_vma_batch batch;
	const Sealpoint__Vma *vma;
	size_t index = 0;
	int rc = 0;

	sp_vma_batch_init(&batch, build);
	while (rc == 0 && (vma = sp_next_vma(build, &index)) != NULL) {
		if (!(vma->flags & SP_VMA_SEALED) || vma->kind == SP_VMA_VSYSCALL)
			continue;
		rc = sp_vma_batch_room(&batch, err);
		sp_vma_batch_add(&batch, vma, "seal (mseal(2), Linux 6.10)", SP_CALL_MUST,
		                 SYS_mseal, (uint64_t[6]){vma->start, vma->end - vma->start});
	}
	return rc < 0 ? rc : sp_vma_batch_run(&batch, err);
}
