/*
 * Verifying a checkpoint: opening checks the structure of the whole chain, and this checks every
 * byte of every file against its checksum.
 */
#include "image/checkpoint_parts.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static bool belongs(const Sealpoint__Manifest *manifest, const char *name)
{
	if (strcmp(name, SP_IMAGE_MANIFEST) == 0 || name[0] == '.')
		return true;
	for (size_t i = 0; i < manifest->n_files; i++) {
		if (strcmp(manifest->files[i]->name, name) == 0)
			return true;
	}
	return false;
}

/* A log or a socket may lie beside the images: worth a word, and no reason to refuse. */
static void warn_of_strangers(const struct sp_checkpoint *checkpoint, struct sp_log *log)
{
	int fd = openat(checkpoint->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	sp_cleanup_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (!belongs(checkpoint->manifest, entry->d_name))
			sp_warn(log, "%s/%s is not a part of the checkpoint", checkpoint->path,
			        entry->d_name);
	}
}

static int verify_files(const struct sp_checkpoint *checkpoint, struct sp_error *err)
{
	for (size_t i = 0; i < checkpoint->manifest->n_files; i++) {
		const Sealpoint__ImageFile *file = checkpoint->manifest->files[i];
		uint64_t checksum;
		int rc;

		if (strcmp(file->name, SP_IMAGE_PAGES) == 0)
			continue; /* frame by frame */
		rc = sp_file_checksum(checkpoint->dirfd, file->name, &checksum, err);
		if (rc < 0)
			return rc;
		if (checksum != file->checksum)
			return sp_fail(err, EBADMSG, "%s does not match its checksum", file->name);
	}
	return 0;
}

static int verify_one(const struct sp_checkpoint *checkpoint, void *log, struct sp_error *err)
{
	int rc = verify_files(checkpoint, err);

	if (rc == 0)
		rc = sp_page_store_verify(checkpoint->pages, log, err);
	if (rc < 0)
		return sp_error_context(err, "checkpoint %s is damaged, use another copy of it",
		                        checkpoint->path);
	sp_verbose(log, "%s is intact", checkpoint->path);
	warn_of_strangers(checkpoint, log);
	return 0;
}

int sp_checkpoint_verify(const char *path, struct sp_log *log, struct sp_error *err)
{
	struct sp_checkpoint *checkpoint;
	int rc = sp_checkpoint_open_members(&checkpoint, path, verify_one, log, err);

	if (rc == 0)
		sp_checkpoint_close(checkpoint);
	return rc;
}
