/*
 * Sealing again what was sealed (mseal(2), Linux 6.10). A seal cannot be taken back and forbids
 * nearly everything that a restore does to a mapping, so it comes last. One call for each VMA: a
 * call over several could fail half done.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"

static int seal(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, struct sp_error *err)
{
	if (vma->flags & SP_VMA_SEALED && vma->kind != SP_VMA_VSYSCALL)
		sp_vma_batch_add(batch, vma, "seal (mseal(2), Linux 6.10)", SP_CALL_MUST, SYS_mseal,
		                 (uint64_t[6]){vma->start, vma->end - vma->start});
	return 0;
}

int sp_memory_seal(struct sp_memory_build *build, struct sp_error *err)
{
	return sp_vma_batch_all(build, seal, err);
}
