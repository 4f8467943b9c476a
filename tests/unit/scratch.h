/* A scratch directory for tests that write images: made in TMPDIR, removed with all files in it. */
#ifndef SEALPOINT_TESTS_SCRATCH_H
#define SEALPOINT_TESTS_SCRATCH_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scratch {
	char path[256];
	int dirfd;
};

static inline struct scratch scratch_make(void)
{
	const char *base = getenv("TMPDIR");
	struct scratch scratch = {.dirfd = -1};

	snprintf(scratch.path, sizeof(scratch.path), "%s/sealpoint-test.XXXXXX",
	         base ? base : "/tmp");
	if (mkdtemp(scratch.path))
		scratch.dirfd = open(scratch.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (scratch.dirfd < 0) {
		perror(scratch.path);
		exit(1);
	}
	return scratch;
}

static inline int scratch_remove_entry(const char *path, const struct stat *stat, int type,
                                       struct FTW *position)
{
	return remove(path);
}

/** Removes a directory and all that is below it. */
static inline void scratch_remove_path(const char *path)
{
	nftw(path, scratch_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void scratch_remove(struct scratch *scratch)
{
	close(scratch->dirfd);
	scratch_remove_path(scratch->path);
}

#endif
