/*
 * Memory mapped with MAP_SHARED | MAP_ANONYMOUS. To the kernel it is a file without a name and
 * without a descriptor, known only by its mappings, and for sealpoint an open file that only backs
 * mappings: /proc/PID/map_files gives the dump a descriptor for its contents. At restore sealpoint
 * maps memory of the same kind itself and takes a descriptor for it from its own map_files, which
 * the stub inherits and maps.
 *
 * Pages that were never touched are holes of that file and stay so. Huge pages (MAP_HUGETLB) work
 * alike. System V segments look similar but have an identity of their own: system_v_memory.c.
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "kinds/file_build.h"
#include "kinds/file_table.h"
#include "kinds/memory_file.h"

#include "shared_memory.pb-c.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>

static bool claims(const struct sp_open_file *file)
{
	return S_ISREG(file->stat.st_mode) && !file->stat.st_nlink &&
	       (!strcmp(file->link, "/dev/zero (deleted)") ||
	        !strcmp(file->link, "/anon_hugepage (deleted)"));
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__SharedMemory message = SEALPOINT__SHARED_MEMORY__INIT;

	message.size = (uint64_t)file->stat.st_size;
	message.huge_page_shift = sp_huge_page_shift(file->fd);
	if (sp_file_save_contents(saver, file, &message.object, err) < 0)
		return -err->code;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* Memory of a restored program may be larger than what the system would promise at once. */
static void *map_anonymous(uint64_t size, int flags)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (memory == MAP_FAILED && errno == ENOMEM)
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, -1, 0);
	return memory;
}

static int make_memory(const Sealpoint__SharedMemory *message, struct sp_error *err)
{
	int flags = MAP_SHARED | MAP_ANONYMOUS;
	void *memory;
	int fd;

	if (message->huge_page_shift)
		flags |= MAP_HUGETLB | (int)(message->huge_page_shift << MFD_HUGE_SHIFT);
	memory = map_anonymous(message->size, flags);
	if (memory == MAP_FAILED)
		return sp_fail_errno(err, errno, "cannot map %" PRIu64 " bytes of shared memory",
		                     message->size);
	fd = sp_open_mapped(memory, message->size, err);
	munmap(memory, message->size);
	return fd;
}

static int open_shared_memory(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                              int *fd, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SharedMemory *message =
	        sp_blob_unpack(file->body, &sealpoint__shared_memory__descriptor, err);
	sp_cleanup_close int made = -1;

	if (!message)
		return -EBADMSG;
	made = file->same_inode ? sp_reopen(builder->fds[file->same_inode], O_RDWR, err)
	                        : make_memory(message, err);
	if (made < 0)
		return made;
	if (message->object && sp_content_load(builder->checkpoint->pages, message->object, made,
	                                       message->size, err) < 0)
		return sp_error_context(err, "cannot fill it in");
	*fd = sp_steal_fd(&made);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__SharedMemory *message =
	        sp_blob_unpack(body, &sealpoint__shared_memory__descriptor, NULL);

	if (message)
		snprintf(text, size, "%" PRIu64 " bytes%s", message->size,
		         message->huge_page_shift ? " in huge pages" : "");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SharedMemory *message =
	        sp_blob_unpack(file->body, &sealpoint__shared_memory__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (!message->size || message->size > INT64_MAX || message->size % SP_PAGE_SIZE ||
	    !sp_huge_page_shift_valid(message->huge_page_shift))
		return sp_fail_damaged(err, "an impossible size of shared memory");
	return 0;
}

const struct sp_file_kind sp_kind_shared_memory = {
        .name = "shared_memory",
        .title = "shared anonymous memory",
        .claims = claims,
        .save = save,
        .open = open_shared_memory,
        .describe = describe,
        .check = check,
};
