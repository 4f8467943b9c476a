/*
 * What a dump and a survey record of one process alike: see dump_parts.h. A survey goes on behind what is
 * refused: its table of files has a list for that.
 */
#include "engine/dump_parts.h"

#include "base/error.h"

static int add_mapped_files(struct sp_file_table *files, struct task *task, struct sp_error *err)
{
	pid_t pid = task->process.pid;
	int rc = 0;

	for (size_t i = 0; i < task->vmas.count && !rc; i++) {
		struct sp_vma *vma = sp_array_at(&task->vmas, i);

		if (!sp_vma_kind_maps_file(vma->kind))
			continue;
		if (files->refusals && sp_memory_check_vma(pid, vma, NULL))
			continue; /* what is refused was so as a mapping */
		rc = sp_file_table_add_mapping(files, pid, vma->range, vma->flags & SP_VMA_SHARED,
		                               vma->flags & SP_VMA_MAY_WRITE, vma->path, &vma->file,
		                               err);
		rc = sp_error_collect(files->refusals, rc, err);
	}
	return rc;
}

int sp_task_add_files(struct sp_file_table *files, struct task *task, struct sp_error *err)
{
	int rc = sp_file_table_add_process(files, &task->process, err);

	rc = sp_error_collect(files->refusals, rc, err);
	if (!rc)
		rc = add_mapped_files(files, task, err);
	if (rc)
		return rc;
	rc = sp_file_table_add_executable(files, task->process.pid, &task->executable, err);
	return sp_error_collect(files->refusals, rc, err);
}

int sp_task_write_vmas(const struct task *task, struct sp_record_writer *records,
                       struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < task->vmas.count && !rc; i++) {
		Sealpoint__Vma record = SEALPOINT__VMA__INIT;

		sp_vma_to_record(sp_array_at(&task->vmas, i), task->process.pid, &record);
		rc = sp_record_write(records, SP_RECORD_VMA, &record.base, err);
	}
	return rc;
}
