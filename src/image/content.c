/*
 * Contents of files in the page store: see pages.h.
 *
 * A descriptor that came from the target is the target's own open file, with its position in it. So
 * it is opened anew before holes are looked for: lseek(2) on it would move the target's position,
 * for good if sealpoint were killed just then.
 */
#include "image/pages.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* --- saving --- */

struct content_source {
	int fd;
	uint64_t size; /* pages reach up to here, and are zero behind it */
};

static int read_content(void *context, uint64_t offset, void *buffer, size_t size,
                        struct sp_error *err)
{
	const struct content_source *source = context;
	size_t wanted = size;
	ssize_t got;

	if (wanted > source->size - offset)
		wanted = (size_t)(source->size - offset);
	got = sp_pread_full(source->fd, buffer, wanted, (off_t)offset);
	if (got < 0)
		return sp_fail_errno(err, (int)-got,
		                     "cannot read the contents of a file at offset %" PRIu64,
		                     offset);
	memset((char *)buffer + got, 0, size - (size_t)got);
	return 0;
}

static void release_content(void *context)
{
	struct content_source *source = context;

	close(source->fd);
	free(source);
}

static int add_extent(struct sp_page_writer *writer, uint32_t object, uint64_t start, uint64_t end,
                      enum sp_page_state state, uint32_t source, struct sp_error *err)
{
	if (start >= end)
		return 0;
	return sp_page_writer_add(writer, object, (struct sp_range){start, end}, state, source,
	                          err);
}

/* Adds holes and data as SEEK_DATA and SEEK_HOLE tell them; all is data where they cannot. */
static int add_extents(struct sp_page_writer *writer, uint32_t object, int fd, uint64_t size,
                       uint32_t source, struct sp_error *err)
{
	uint64_t end = sp_page_up(size), at = 0;

	while (at < end) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
		uint64_t data_start = data < 0 ? at : sp_page_down((uint64_t)data);
		uint64_t data_end = hole < 0 ? end : sp_page_up((uint64_t)hole);
		int rc;

		if (data < 0 && errno == ENXIO) /* nothing but a hole up to the end */
			return add_extent(writer, object, at, end, SP_PAGE_HOLE, 0, err);
		if (data_start < at)
			data_start = at;
		if (data_start > end)
			data_start = end;
		if (data_end > end)
			data_end = end;
		rc = add_extent(writer, object, at, data_start, SP_PAGE_HOLE, 0, err);
		if (rc == 0)
			rc = add_extent(writer, object, data_start, data_end, SP_PAGE_DATA, source,
			                err);
		if (rc < 0)
			return rc;
		at = data_end > data_start ? data_end : end;
	}
	return 0;
}

int sp_content_save(struct sp_page_writer *writer, int fd, uint64_t size, uint32_t *object,
                    struct sp_error *err)
{
	struct content_source *source;
	uint32_t handle;
	int own;

	*object = sp_page_writer_new_object(writer);
	if (size == 0)
		return 0;
	own = sp_reopen(fd, O_RDONLY | O_NONBLOCK, err);
	if (own < 0)
		return own;
	source = sp_alloc(sizeof(*source));
	*source = (struct content_source){own, size};
	handle = sp_page_writer_add_source(writer,
	                                   (struct sp_page_source){.read = read_content,
	                                                           .context = source,
	                                                           .release = release_content});
	return add_extents(writer, *object, own, size, handle, err);
}

/* --- loading --- */

struct content_target {
	int fd;
	uint64_t size;
	uint64_t block;   /* allocation unit: the huge page size on hugetlbfs */
	uint8_t *mapping; /* hugetlbfs, which has no write(2); else NULL */
};

/* Whole blocks around a piece, as far as the file goes. */
static int allocate(const struct content_target *target, uint64_t start, uint64_t end)
{
	start -= start % target->block;
	end += target->block - 1;
	end -= end % target->block;
	return fallocate(target->fd, FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(end - start));
}

static int put_data(void *context, uint64_t offset, const void *bytes, size_t size,
                    struct sp_error *err)
{
	const struct content_target *target = context;
	int rc;

	if (offset >= target->size)
		return 0;
	if (size > target->size - offset)
		size = (size_t)(target->size - offset);
	if (!target->mapping) {
		rc = sp_pwrite_full(target->fd, bytes, size, (off_t)offset);
		return rc < 0 ? sp_fail_errno(err, -rc, "cannot write contents of a file") : 0;
	}
	/* Without a page for it, the copy would end in a SIGBUS. */
	if (allocate(target, offset, offset + size) < 0)
		return sp_fail_errno(err, errno,
		                     "cannot get huge pages for the contents of a file");
	memcpy(target->mapping + offset, bytes, size);
	return 0;
}

/*
 * A page of zeros is there in a file on tmpfs, and a hole is not: what was there is there again.
 */
static int put_zero(void *context, struct sp_range range, struct sp_error *err)
{
	const struct content_target *target = context;

	if (target->mapping)
		return 0; /* huge pages come with the data; holes of hugetlbfs look like zeros */
	if (allocate(target, range.start, range.end) == 0 || errno == EOPNOTSUPP)
		return 0;
	return sp_fail_errno(err, errno, "cannot make room for the contents of a file");
}

int sp_content_load(struct sp_page_store *store, uint32_t object, int fd, uint64_t size,
                    struct sp_error *err)
{
	struct content_target target = {.fd = fd, .size = size, .block = SP_PAGE_SIZE};
	struct sp_page_sink sink = {put_data, put_zero, &target};
	struct sp_range all = {0, sp_page_up(size)};
	struct statfs fs;
	int rc;

	if (ftruncate(fd, (off_t)size) < 0)
		return sp_fail_errno(err, errno, "cannot give a file its size of %" PRIu64 " bytes",
		                     size);
	if (size == 0)
		return 0;
	if (fstatfs(fd, &fs) < 0)
		return sp_fail_errno(err, errno, "cannot ask for the file system of a file");
	if (fs.f_type != HUGETLBFS_MAGIC)
		return sp_page_store_load(store, object, all, &sink, 0, err);

	target.block = (uint64_t)fs.f_bsize;
	target.mapping =
	        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (target.mapping == MAP_FAILED)
		return sp_fail_errno(err, errno, "cannot map a file of huge pages");
	rc = sp_page_store_load(store, object, all, &sink, 0, err);
	munmap(target.mapping, size);
	return rc;
}
