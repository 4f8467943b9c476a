/*
 * Verifying a checkpoint: opening checks all files of the whole chain but the contents of pages, and
 * this checks these, frame by frame.
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

static int verify_one(const struct sp_checkpoint *checkpoint, void *log, struct sp_error *err)
{
	int rc = sp_page_store_verify(checkpoint->pages, log, err);

	if (rc < 0)
		return rc;
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
