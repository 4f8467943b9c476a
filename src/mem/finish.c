/*
 * What a mapping gets when its contents are in place, in an order that matters: guard regions
 * before locks (locked memory takes none), protection first of all, locks last.
 */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"

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

/* --- protection and protection keys --- */

struct finisher {
	struct sp_vma_batch batch;
	int execute_only_key; /* 0: none */
};

/*
 * The kernel takes a key of its own when a program first asks for execute-only memory, gives it to
 * every such mapping, and to no other. So that is what a key is that only execute-only mappings
 * have.
 */
static int find_execute_only_key(const struct sp_memory_build *build)
{
	const Sealpoint__Vma *vma;
	uint32_t execute_only = 0, others = 0;
	size_t index = 0;

	while ((vma = sp_next_vma(build, &index)) != NULL) {
		if (vma->prot == PROT_EXEC)
			execute_only |= 1u << vma->protection_key;
		else
			others |= 1u << vma->protection_key;
	}
	execute_only &= ~(others | 1);
	return execute_only ? __builtin_ctz(execute_only) : 0;
}

static int highest_key(const struct sp_memory_build *build)
{
	const Sealpoint__Vma *vma;
	size_t index = 0;
	int highest = 0;

	while ((vma = sp_next_vma(build, &index)) != NULL) {
		if (vma->protection_key > highest)
			highest = vma->protection_key;
	}
	return highest;
}

static void protect_plainly(struct sp_vma_batch *batch, const Sealpoint__Vma *vma)
{
	sp_vma_batch_add(batch, vma, "protect", SP_CALL_MUST, SYS_mprotect,
	                 (uint64_t[6]){vma->start, vma->end - vma->start, vma->prot});
}

/* The first mapping that has the key. */
static const Sealpoint__Vma *find_keyed(const struct sp_memory_build *build, int key)
{
	const Sealpoint__Vma *vma;
	size_t index = 0;

	do
		vma = sp_next_vma(build, &index);
	while (vma && vma->protection_key != key);
	return vma;
}

/*
 * pkey_alloc(2) and the kernel itself take the lowest free key, so those below the highest one in
 * use are allocated with it; the program most likely had them too. Keys that no VMA carries cannot
 * be seen from outside.
 */
static int allocate_keys(struct finisher *finisher, struct sp_error *err)
{
	struct sp_memory_build *build = finisher->batch.build;
	int highest = highest_key(build);

	for (int key = 1; key <= highest; key++) {
		if (key == finisher->execute_only_key)
			protect_plainly(&finisher->batch, find_keyed(build, key));
		else
			sp_vma_batch_add(&finisher->batch, find_keyed(build, highest),
			                 "allocate the protection key of", SP_CALL_MUST,
			                 SYS_pkey_alloc, (uint64_t[6]){0});
	}
	return sp_vma_batch_run(&finisher->batch, err);
}

static int protect(struct finisher *finisher, const Sealpoint__Vma *vma, struct sp_error *err)
{
	int prot, rc = sp_vma_fill_prot(finisher->batch.build, vma, &prot, err);

	if (rc < 0)
		return rc;
	if (vma->protection_key && vma->protection_key != finisher->execute_only_key)
		sp_vma_batch_add(&finisher->batch, vma, "set the protection key of", SP_CALL_MUST,
		                 SYS_pkey_mprotect,
		                 (uint64_t[6]){vma->start, vma->end - vma->start, vma->prot,
		                               (uint64_t)vma->protection_key});
	else if (prot != (int)vma->prot)
		protect_plainly(&finisher->batch, vma);
	return 0;
}

/* --- everything else --- */

static void name(struct sp_vma_batch *batch, const Sealpoint__Vma *vma)
{
	if (vma->name[0] == '\0')
		return;
	sp_vma_batch_add(batch, vma, "name", SP_CALL_WARN, SYS_prctl,
	                 (uint64_t[6]){PR_SET_VMA, PR_SET_VMA_ANON_NAME, vma->start,
	                               vma->end - vma->start,
	                               sp_batch_string(batch->build->remote, vma->name)});
}

static void advise(struct sp_vma_batch *batch, const Sealpoint__Vma *vma)
{
	for (size_t i = 0; i < SP_COUNT_OF(advices); i++) {
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
	sp_vma_batch_add(batch, vma, "lock", SP_CALL_MUST, SYS_mlock2, args);
	if (!(vma->flags & SP_VMA_LOCK_ON_FAULT))
		sp_vma_batch_add(batch, vma, "lock", SP_CALL_TRY, SYS_mlock, args);
}

static int finish_vma(struct finisher *finisher, const Sealpoint__Vma *vma, struct sp_error *err)
{
	struct sp_vma_batch *batch = &finisher->batch;
	int rc = sp_vma_batch_room(batch, err);

	if (rc == 0)
		rc = protect(finisher, vma, err);
	if (rc < 0)
		return rc;
	name(batch, vma);
	if (vma->kind != SP_VMA_VDSO)
		advise(batch, vma);
	rc = guard(batch, vma, err);
	if (rc == 0)
		lock(batch, vma);
	return rc;
}

static void release_finisher(struct finisher *finisher)
{
	sp_vma_batch_release(&finisher->batch);
}

int sp_memory_finish(struct sp_memory_build *build, struct sp_error *err)
{
	sp_cleanup(release_finisher) struct finisher finisher = {
	        .execute_only_key = find_execute_only_key(build),
	};
	const Sealpoint__Vma *vma;
	size_t index = 0;
	int rc;

	sp_vma_batch_init(&finisher.batch, build);
	rc = allocate_keys(&finisher, err);
	while (rc == 0 && (vma = sp_next_vma(build, &index)) != NULL) {
		if (sp_vma_is_made(vma))
			rc = finish_vma(&finisher, vma, err);
	}
	return rc < 0 ? rc : sp_vma_batch_run(&finisher.batch, err);
}
