/* Walking VMAs, and batches of calls about them: see rebuild.h. */
#include "mem/rebuild.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "base/log.h"
#include "proc/file.h"

#include <inttypes.h>
#include <string.h>

const Sealpoint__Vma *sp_next_vma(const struct sp_memory_build *build, size_t *index)
{
	const struct sp_array *vmas = &build->checkpoint->vmas;
	size_t end = build->end_vma ? build->end_vma : vmas->count;

	if (*index < build->first_vma)
		*index = build->first_vma;
	while (*index < end) {
		const Sealpoint__Vma *vma = sp_array_pointer(vmas, (*index)++);

		if (vma->pid == build->process->pid)
			return vma;
	}
	return NULL;
}

bool sp_vma_is_made(const Sealpoint__Vma *vma)
{
	return vma->kind != SP_VMA_VVAR && vma->kind != SP_VMA_VSYSCALL;
}

int sp_own_mappings(struct sp_array *vmas, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int rc;

	*vmas = SP_ARRAY_OF(struct sp_vma);
	rc = sp_proc_read(getpid(), "maps", &text, NULL, err);
	return rc < 0 ? rc : sp_vma_list_parse(text, vmas, err);
}

static int count_run(void *context, const struct sp_page_run *run)
{
	uint64_t *pages = context;

	pages[run->state] += sp_range_size(run->range) / SP_PAGE_SIZE;
	return 0;
}

int sp_memory_count_pages(const struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                          const Sealpoint__Vma *vma, uint64_t pages[SP_PAGE_STATES],
                          struct sp_error *err)
{
	memset(pages, 0, SP_PAGE_STATES * sizeof(*pages));
	return sp_page_store_walk(checkpoint->pages, process->memory_object,
	                          sp_vma_record_range(vma), count_run, pages, err);
}

int sp_vma_fill_prot(const struct sp_memory_build *build, const Sealpoint__Vma *vma, int *prot,
                     struct sp_error *err)
{
	uint64_t pages[SP_PAGE_STATES];
	int rc;

	/*
	 * Execute-only memory takes a protection key: not before sp_memory_finish() sees to their
	 * order.
	 */
	*prot = vma->prot == PROT_EXEC ? PROT_NONE : (int)vma->prot;
	if (sp_vma_kind_is_shared(vma->kind))
		return 0;
	rc = sp_memory_count_pages(build->checkpoint, build->process, vma, pages, err);
	if (rc == 0 && (pages[SP_PAGE_DATA] || pages[SP_PAGE_ZERO]))
		*prot = PROT_READ | PROT_WRITE;
	else if (rc == 0 && pages[SP_PAGE_FILE])
		*prot |= PROT_READ;
	return rc;
}

/* --- batches --- */

struct vma_call {
	const Sealpoint__Vma *vma;
	const char *what;
	enum sp_vma_call_policy policy;
	size_t index; /* in the remote batch */
	long number;
	uint64_t address; /* first argument */
};

void sp_vma_batch_init(struct sp_vma_batch *batch, struct sp_memory_build *build)
{
	*batch = (struct sp_vma_batch){.build = build, .calls = SP_ARRAY_OF(struct vma_call)};
	sp_batch_begin(build->remote);
}

void sp_vma_batch_release(struct sp_vma_batch *batch)
{
	sp_array_release(&batch->calls);
}

int sp_vma_batch_room(struct sp_vma_batch *batch, struct sp_error *err)
{
	return sp_batch_nearly_full(batch->build->remote) ? sp_vma_batch_run(batch, err) : 0;
}

void sp_vma_batch_add(struct sp_vma_batch *batch, const Sealpoint__Vma *vma, const char *what,
                      enum sp_vma_call_policy policy, long number, const uint64_t args[6])
{
	struct vma_call *call = sp_array_push(&batch->calls);

	call->vma = vma;
	call->what = what;
	call->policy = policy;
	call->number = number;
	call->address = args[0];
	call->index = sp_batch_try(batch->build->remote, what, number, args[0], args[1], args[2],
	                           args[3], args[4], args[5]);
}

void sp_vma_batch_advise(struct sp_vma_batch *batch, const Sealpoint__Vma *vma,
                         struct sp_range range, int advice, const char *what,
                         enum sp_vma_call_policy policy)
{
	uint64_t args[6] = {range.start, sp_range_size(range), (uint64_t)advice};

	sp_vma_batch_add(batch, vma, what, policy, SYS_madvise, args);
}

static int judge(struct sp_vma_batch *batch, const struct vma_call *call, struct sp_error *err)
{
	const Sealpoint__Vma *vma = call->vma;
	int64_t result = sp_batch_result(batch->build->remote, call->index);

	if (call->number == SYS_mmap && result >= 0 && (uint64_t)result != call->address)
		result = -EEXIST;
	if (result >= 0 || call->policy == SP_CALL_TRY)
		return 0;
	if (call->policy == SP_CALL_MUST)
		return sp_fail_errno(err, (int)-result,
		                     "cannot %s memory at 0x%" PRIx64 "-0x%" PRIx64 " (%s)",
		                     call->what, vma->start, vma->end,
		                     vma->path[0] ? vma->path : sp_vma_kind_name(vma->kind));
	if (batch->warned != call->what)
		sp_warn(batch->build->log, "cannot %s memory at 0x%" PRIx64 ": %s", call->what,
		        vma->start, strerror((int)-result));
	batch->warned = call->what;
	return 0;
}

int sp_vma_batch_run(struct sp_vma_batch *batch, struct sp_error *err)
{
	int rc = batch->calls.count ? sp_batch_run(batch->build->remote, err) : 0;

	for (size_t i = 0; rc == 0 && i < batch->calls.count; i++)
		rc = judge(batch, sp_array_at(&batch->calls, i), err);
	sp_array_clear(&batch->calls);
	sp_batch_begin(batch->build->remote);
	return rc;
}

int sp_vma_batch_all(struct sp_memory_build *build, sp_vma_step *step, struct sp_error *err)
{
	sp_cleanup(sp_vma_batch_release) struct sp_vma_batch batch;
	const Sealpoint__Vma *vma;
	size_t index = 0;
	int rc = 0;

	sp_vma_batch_init(&batch, build);
	while (rc == 0 && (vma = sp_next_vma(build, &index)) != NULL)
		rc = sp_vma_batch_room(&batch, err) ?: step(&batch, vma, err);
	return rc < 0 ? rc : sp_vma_batch_run(&batch, err);
}
