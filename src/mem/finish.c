/*
 * What a mapping gets when its contents are in place, in an order that matters: guard regions
 * before locks (locked memory takes none), protection first of all, locks last.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct {
	uint32_t flag;
	int advice;
	const char *what;
	enum sp_vma_call_policy policy; /* WARN where a kernel may come without the feature */
} advices[] = {
        {SP_VMA_DONT_FORK, MADV_DONTFORK, "keep from children", SP_CALL_MUST},
        {SP_VMA_DONT_DUMP, MADV_DONTDUMP, "keep out of core files", SP_CALL_MUST},
        {SP_VMA_WIPE_ON_FORK, MADV_WIPEONFORK, "wipe for children", SP_CALL_MUST},
        {SP_VMA_SEQUENTIAL, MADV_SEQUENTIAL, "advise sequential use of", SP_CALL_MUST},
        {SP_VMA_RANDOM, MADV_RANDOM, "advise random use of", SP_CALL_MUST},
        {SP_VMA_HUGE, MADV_HUGEPAGE, "allow huge pages for", SP_CALL_WARN},
        {SP_VMA_NO_HUGE, MADV_NOHUGEPAGE, "forbid huge pages for", SP_CALL_WARN},
        {SP_VMA_MERGEABLE, MADV_MERGEABLE, "allow merging for", SP_CALL_WARN},
};

/* --- protection keys
 * ---------------------------------------------------------------------------------- */

/*
 * pkey_alloc(2) gives the lowest free key, so those below the highest one in use are allocated with
 * it; the program most likely had them too. Keys that no VMA carries cannot be seen from outside.
 */
static int allocate_keys(struct sp_memory_build *build, struct sp_error *err)
{
	const Sealpoint__Vma *vma;
	size_t index = 0;
	int highest = 0;

	while ((vma = sp_next_vma(build, &index)) != NULL) {
		if (vma->protection_key > highest)
			highest = vma->protection_key;
	}
	sp_batch_begin(build->remote);
	for (int key = 1; key <= highest; key++)
		sp_batch_call(build->remote, "allocate a memory protection key", __NR_pkey_alloc, 0,
		              0, 0, 0, 0, 0);
	return highest ? sp_batch_run(build->remote, err) : 0;
}

static int protect(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, struct sp_error *err)
{
	int prot, ret = sp_vma_fill_prot(batch->build, vma, &prot, err);

	if (ret < 0)
		return ret;
	if (vma->protection_key)
		sp_vma_batch_add(batch, vma, "set the protection key of", SP_CALL_MUST,
		                 __NR_pkey_mprotect,
		                 (uint64_t[6]){vma->start, vma->end - vma->start, vma->prot,
		                               (uint64_t)vma->protection_key});
	else if (prot != (int)vma->prot)
		sp_vma_batch_add(batch, vma, "protect", SP_CALL_MUST, __NR_mprotect,
		                 (uint64_t[6]){vma->start, vma->end - vma->start, vma->prot});
	return 0;
}

/* --- everything else
 * ------------------------------------------------------------------------------------ */

static void name(struct sp_vma_batch *batch, const Sealpoint__Vma *vma)
{
	if (vma->name[0] == '\0')
		return;
	sp_vma_batch_add(batch, vma, "name", SP_CALL_WARN, __NR_prctl,
	                 (uint64_t[6]){PR_SET_VMA, PR_SET_VMA_ANON_NAME, vma->start,
	                               vma->end - vma->start,
	                               sp_batch_string(batch->build->remote, vma->name)});
}

static void advise(struct sp_vma_batch *batch, const Sealpoint__Vma *vma)
{
	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		if (vma->flags & advices[i].flag)
			sp_vma_batch_advise(batch, vma, sp_vma_record_range(vma), advices[i].advice,
			                    advices[i].what, advices[i].policy);
	}
}

struct guards {
	struct sp_vma_batch *batch;
	const Sealpoint__Vma *vma;
	struct sp_error *err;
};

static int guard_run(void *context, const struct sp_page_run *run)
{
	struct guards *guards = context;

	if (run->state != SP_PAGE_GUARD)
		return 0;
	sp_vma_batch_advise(guards->batch, guards->vma, run->range, MADV_GUARD_INSTALL,
	                    "install a guard region (Linux 6.13; 6.15 for files) in", SP_CALL_MUST);
	return sp_vma_batch_room(guards->batch, guards->err);
}

static int guard(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, struct sp_error *err)
{
	struct guards guards = {batch, vma, err};

	return sp_page_store_walk(batch->build->checkpoint->pages,
	                          batch->build->process->memory_object, sp_vma_record_range(vma),
	                          guard_run, &guards, err);
}

/*
 * mlock2(MLOCK_ONFAULT) locks what is populated and nothing else, and fails for want of permission
 * only. The plain mlock(2) behind it also populates, which is all that can fail in it then: a
 * PROT_NONE mapping cannot be populated, and was not before.
 */
static void lock(struct sp_vma_batch *batch, const Sealpoint__Vma *vma)
{
	uint64_t args[6] = {vma->start, vma->end - vma->start, MLOCK_ONFAULT};

	if (!(vma->flags & SP_VMA_LOCKED))
		return;
	sp_vma_batch_add(batch, vma, "lock", SP_CALL_MUST, __NR_mlock2, args);
	if (!(vma->flags & SP_VMA_LOCK_ON_FAULT))
		sp_vma_batch_add(batch, vma, "lock", SP_CALL_TRY, __NR_mlock, args);
}

static int finish_vma(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, struct sp_error *err)
{
	int ret = sp_vma_batch_room(batch, err);

	if (ret == 0)
		ret = protect(batch, vma, err);
	if (ret < 0)
		return ret;
	name(batch, vma);
	if (vma->kind != SP_VMA_VDSO)
		advise(batch, vma);
	ret = guard(batch, vma, err);
	if (ret == 0)
		lock(batch, vma);
	return ret;
}

int sp_memory_finish(struct sp_memory_build *build, struct sp_error *err)
{
	sp_cleanup(sp_vma_batch_release) struct sp_vma_batch batch = {0};
	const Sealpoint__Vma *vma;
	size_t index = 0;
	int ret = allocate_keys(build, err);

	if (ret < 0)
		return ret;
	sp_vma_batch_init(&batch, build);
	while (ret == 0 && (vma = sp_next_vma(build, &index)) != NULL) {
		if (sp_vma_is_made(vma))
			ret = finish_vma(&batch, vma, err);
	}
	return ret < 0 ? ret : sp_vma_batch_run(&batch, err);
}
