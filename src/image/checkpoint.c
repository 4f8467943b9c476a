/*
 * A checkpoint in memory: its records, finding one, and its size. checkpoint_reader.c fills it in.
 */
#include "image/checkpoint_parts.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

struct sp_checkpoint *sp_checkpoint_new(void)
{
	struct sp_checkpoint *checkpoint = sp_alloc_zeroed(1, sizeof(*checkpoint));

	checkpoint->dirfd = -1;
	checkpoint->processes = SP_ARRAY_OF(Sealpoint__Process *);
	checkpoint->threads = SP_ARRAY_OF(Sealpoint__Thread *);
	checkpoint->vmas = SP_ARRAY_OF(Sealpoint__Vma *);
	checkpoint->files = SP_ARRAY_OF(Sealpoint__OpenFile *);
	checkpoint->descriptors = SP_ARRAY_OF(Sealpoint__Descriptor *);
	return checkpoint;
}

static void release_messages(struct sp_array *messages)
{
	for (size_t i = 0; i < messages->count; i++)
		protobuf_c_message_free_unpacked(sp_array_pointer(messages, i), NULL);
	sp_array_release(messages);
}

static void release_records(struct sp_checkpoint *checkpoint)
{
	release_messages(&checkpoint->processes);
	release_messages(&checkpoint->threads);
	release_messages(&checkpoint->vmas);
	release_messages(&checkpoint->files);
	release_messages(&checkpoint->descriptors);
}

void sp_checkpoint_retire(struct sp_checkpoint *checkpoint)
{
	sp_page_store_retire(checkpoint->pages);
	release_records(checkpoint);
}

struct sp_checkpoint_extent sp_checkpoint_extent(const struct sp_checkpoint *checkpoint)
{
	const Sealpoint__Manifest *manifest = checkpoint->manifest;
	struct sp_checkpoint_extent size = {.files = manifest->n_files + 1};
	struct stat stat;

	if (!fstatat(checkpoint->dirfd, SP_IMAGE_MANIFEST, &stat, 0))
		size.bytes = (uint64_t)stat.st_size;
	for (size_t i = 0; i < manifest->n_files; i++)
		size.bytes += manifest->files[i]->size;
	return size;
}

uint64_t sp_checkpoint_size(const char *path)
{
	sp_cleanup_dir DIR *dir = opendir(path);
	struct dirent *entry;
	uint64_t size = 0;
	struct stat stat;

	while (dir && (entry = readdir(dir)))
		if (!fstatat(dirfd(dir), entry->d_name, &stat, 0) && S_ISREG(stat.st_mode))
			size += (uint64_t)stat.st_size;
	return size;
}

static void checkpoint_free(struct sp_checkpoint *checkpoint)
{
	sp_page_store_close(checkpoint->pages);
	release_records(checkpoint);
	if (checkpoint->manifest)
		sealpoint__manifest__free_unpacked(checkpoint->manifest, NULL);
	sp_close_scope(&checkpoint->dirfd);
	free(checkpoint);
}

void sp_checkpoint_close(struct sp_checkpoint *checkpoint)
{
	while (checkpoint) {
		struct sp_checkpoint *parent = checkpoint->parent;

		checkpoint_free(checkpoint);
		checkpoint = parent;
	}
}

int sp_checkpoint_need_program(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	if (!checkpoint->manifest->memory_only)
		return 0;
	return sp_fail(err, ENODATA,
	               "%s holds memory only, it is a pre-dump; use a checkpoint that stands on it "
	               "(sealpoint dump %" PRIu32 " --parent %s ...)",
	               checkpoint->path, checkpoint->manifest->root_pid, checkpoint->path);
}

const Sealpoint__OpenFile *sp_checkpoint_file(const struct sp_checkpoint *checkpoint, uint32_t id)
{
	if (id == 0 || id > checkpoint->files.count)
		return NULL;
	return sp_array_pointer(&checkpoint->files, id - 1);
}

const Sealpoint__Process *sp_checkpoint_root(const struct sp_checkpoint *checkpoint)
{
	return sp_array_pointer(&checkpoint->processes, 0);
}

int sp_checkpoint_find_process(const struct sp_checkpoint *checkpoint, pid_t pid,
                               const Sealpoint__Process **process, struct sp_error *err)
{
	*process = sp_checkpoint_root(checkpoint);
	for (size_t i = 0; pid && i < checkpoint->processes.count; i++) {
		*process = sp_array_pointer(&checkpoint->processes, i);
		if ((*process)->pid == (uint32_t)pid && !(*process)->ended)
			return 0;
	}
	return !pid ? 0
	            : sp_fail(err, ESRCH,
	                      "%s has no living process %d; \"sealpoint inspect %s\" lists those "
	                      "that it has",
	                      checkpoint->path, pid, checkpoint->path);
}
