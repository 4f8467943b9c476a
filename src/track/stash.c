/* Pages put aside: see stash.h. */
#include "track/stash.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/range.h"

#include <fcntl.h>
#include <sys/mman.h>

#define MEMORY_PAGES ((16ULL << 20) / SP_PAGE_SIZE)

/* Not every file system has files that never had a name. */
static int open_unlinked(int dirfd)
{
	static const char name[] = "stash";
	int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	fd = openat(dirfd, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlinkat(dirfd, name, 0);
	return fd;
}

int sp_stash_open(struct sp_stash *stash, int dirfd)
{
	*stash = SP_STASH_NONE;
	stash->memory = memfd_create("sealpoint", MFD_CLOEXEC);
	stash->file = open_unlinked(dirfd);
	return stash->memory < 0 || stash->file < 0 ? -errno : 0;
}

int sp_stash_put(struct sp_stash *stash, uint64_t number, const void *pages, uint64_t count)
{
	enum sp_stash_place place =
	        stash->in_memory + count <= MEMORY_PAGES ? SP_STASH_MEMORY : SP_STASH_FILE;
	int rc = sp_pwrite_full(place == SP_STASH_MEMORY ? stash->memory : stash->file, pages,
	                        count * SP_PAGE_SIZE, (off_t)(number * SP_PAGE_SIZE));

	if (rc < 0)
		return rc;
	stash->in_memory += place == SP_STASH_MEMORY ? count : 0;
	return place;
}

int sp_stash_get(struct sp_stash *stash, uint64_t number, enum sp_stash_place place, void *pages,
                 uint64_t count)
{
	off_t offset = (off_t)(number * SP_PAGE_SIZE), size = (off_t)(count * SP_PAGE_SIZE);
	ssize_t got = sp_pread_full(place == SP_STASH_MEMORY ? stash->memory : stash->file, pages,
	                            (size_t)size, offset);

	if (got != size)
		return got < 0 ? (int)got : -EIO;
	if (place == SP_STASH_MEMORY &&
	    fallocate(stash->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size) == 0)
		stash->in_memory -= count;
	return 0;
}

void sp_stash_close(struct sp_stash *stash)
{
	sp_close_scope(&stash->memory);
	sp_close_scope(&stash->file);
	*stash = SP_STASH_NONE;
}
