/*
 * What a dump and a survey record of one process alike: see dump_parts.h. A survey goes on behind what is
 * refused: its table of files has a list for that.
 */
#include "engine/dump_parts.h"

#include "base/error.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A child that is asked about: the call, and where it leaves what waitid(2) tells. */
struct question {
	struct task *child;
	size_t call;
	remote_addr answer;
};

/* One that has ended meanwhile has nothing to tell. */
static int hear(struct sp_remote *remote, const struct sp_array *questions, struct sp_error *err)
{
	int rc = questions->count ? sp_batch_run(remote, err) : 0;

	for (size_t i = 0; i < questions->count && !rc; i++) {
		const struct question *question = sp_array_at(questions, i);
		siginfo_t info = {0};

		if (!sp_batch_result(remote, question->call))
			rc = sp_batch_read(remote, question->answer, &info, sizeof(info), err);
		question->child->continued = info.si_pid && info.si_code == CLD_CONTINUED;
		question->child->stop_status =
		        info.si_pid && info.si_code == CLD_STOPPED ? (uint32_t)info.si_status : 0;
	}
	return rc;
}

int sp_tree_find_unheard(const struct tree *tree, struct task *parent, struct sp_error *err)
{
	const int options = WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT | __WALL;
	sp_cleanup_array struct sp_array questions = SP_ARRAY_OF(struct question);
	struct sp_remote *remote = &parent->remote;
	int rc = 0;

	sp_batch_begin(remote);
	for (size_t i = 1; i < tree->tasks.count && !rc; i++) {
		struct task *child = sp_tree_task(tree, i);
		struct question *question;

		if (child->parent != parent)
			continue;
		question = sp_array_push(&questions);
		question->child = child;
		question->answer = sp_batch_room(remote, sizeof(siginfo_t));
		question->call = sp_batch_try(remote, "look at a child", SYS_waitid, P_PID,
		                              (uint64_t)child->process.pid, question->answer,
		                              (uint64_t)options, 0, 0);
		if (!sp_batch_nearly_full(remote))
			continue;
		rc = hear(remote, &questions, err);
		sp_array_clear(&questions);
		sp_batch_begin(remote);
	}
	return rc ? rc : hear(remote, &questions, err);
}

/* Where one with the same memory was driven before, nothing lives: neither has run since. */
int sp_task_engage(struct task *task, struct sp_error *err)
{
	if (sp_task_has_no_memory(task))
		task->foothold = task->memory_of->remote.foothold;
	else if (!task->foothold.complete && task->parent)
		task->foothold = sp_foothold_of_child(&task->parent->remote.foothold);
	return sp_remote_open(&task->remote, &task->process, sp_process_leader(&task->process),
	                      &task->foothold, err);
}

static int add_mapped_files(struct sp_file_table *files, struct task *task, struct sp_error *err)
{
	pid_t pid = sp_process_living(&task->process);
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
	int rc = 0;

	if (!task->sharing.descriptors)
		rc = sp_file_table_add_process(files, &task->process, err);
	rc = sp_error_collect(files->refusals, rc, err);
	if (!rc)
		rc = add_mapped_files(files, task, err);
	if (rc)
		return rc;
	rc = sp_file_table_add_executable(files, sp_process_living(&task->process),
	                                  &task->executable, err);
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
