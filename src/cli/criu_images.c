/*
 * The images of `sealpoint criu`: where they are, and the commands that need no program, dedup and cpuinfo. See
 * criu.h.
 */
#include "cli/criu.h"

#include "base/cleanup.h"
#include "engine/processor.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool sp_criu_has_checkpoint(const char *directory)
{
	sp_cleanup_free char *manifest = sp_format("%s/%s", directory, SP_IMAGE_MANIFEST);

	return access(manifest, F_OK) == 0;
}

int sp_criu_find_checkpoint(const char *images, char **path, struct sp_error *err)
{
	sp_cleanup_free char *inside = sp_format("%s/%s", images, SP_CRIU_CHECKPOINT);
	sp_cleanup_free char *foreign = sp_format("%s/inventory.img", images);

	*path = NULL;
	if (sp_criu_has_checkpoint(inside))
		*path = sp_steal_ptr(&inside);
	else if (sp_criu_has_checkpoint(images))
		*path = sp_strdup(images);
	else if (access(foreign, F_OK) == 0)
		return sp_fail(err, EINVAL,
		               "the images in %s were made by CRIU itself: sealpoint cannot read "
		               "them; restore them with CRIU",
		               images);
	else
		return sp_fail(err, ENOENT, "there are no images in %s", images);
	return 0;
}

/* Whether it stands on others. */
static int is_delta(const char *path, struct sp_error *err)
{
	struct sp_checkpoint *checkpoint;
	int rc = sp_checkpoint_open(&checkpoint, path, err);

	if (rc < 0)
		return rc;
	rc = checkpoint->parent != NULL;
	sp_checkpoint_close(checkpoint);
	return rc;
}

/*
 * CRIU takes out of older images what newer ones have replaced, so that these are of use for the newest only. A merge
 * does the same for the newest, and leaves it to the user whether the older are still wanted.
 */
int sp_criu_dedup(struct sp_criu *criu, struct sp_error *err)
{
	sp_cleanup_free char *path = NULL;
	struct sp_merge_options merge = {.compression = SP_COMPRESS_DEFAULT,
	                                 .log = &criu->cli->log};
	struct sp_merge_result result;
	int rc = sp_criu_find_checkpoint(criu->images, &path, err);

	if (!rc)
		rc = is_delta(path, err);
	if (rc <= 0)
		return rc;
	merge.directory = path;
	rc = sp_merge(&merge, &result, err);
	if (!rc)
		sp_criu_tell(criu, SP_CRIU_WARNING,
		             "%s stands alone now: the %u checkpoints that it stood on can be "
		             "removed, unless others stand on them",
		             path, result.checkpoints - 1);
	return rc;
}

/* By what `cpuinfo dump` has left, or else by a checkpoint: each says of its processor the same. */
int sp_criu_cpuinfo(struct sp_criu *criu, struct sp_error *err)
{
	sp_cleanup_free char *file = sp_format("%s/%s", criu->images, SP_PROCESSOR_FILE);
	sp_cleanup_free char *checkpoint = NULL;
	int rc;

	if (!strcmp(criu->action, "dump"))
		return sp_processor_save(criu->images, err);
	if (access(file, F_OK) == 0)
		return sp_processor_compare(criu->images, SP_PROCESSOR_FILE, &criu->cli->log, err);
	rc = sp_criu_find_checkpoint(criu->images, &checkpoint, err);
	return rc ? rc : sp_processor_compare(checkpoint, SP_IMAGE_MANIFEST, &criu->cli->log, err);
}
