/*
 * memfd_create(2) files: memory with a descriptor, a name that is only for show, and seals.
 *
 * The file is the inode; open files and mappings are views of it. Its first open file in the
 * checkpoint carries name, contents, owner and seals; the rest are opened again from that one.
 * Seals are set last (settle): a file that is sealed against writing could not be filled in, nor
 * opened for writing.
 *
 * Executable permission is settled when a memfd is made: a file that is sealed against becoming
 * executable is made so (MFD_NOEXEC_SEAL), any other one asks for MFD_EXEC, which a system can
 * forbid (sysctl vm.memfd_noexec).
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "base/kernel_abi.h"
#include "image/vma_numbers.h"
#include "kinds/file_build.h"
#include "kinds/file_table.h"
#include "kinds/memory_file.h"

#include "memfd.pb-c.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>

#define LINK_PREFIX "/memfd:"
#define LINK_SUFFIX " (deleted)"
#define SEALS_KNOWN                                                                       \
	(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | \
	 F_SEAL_EXEC)

static bool claims(const struct sp_open_file *file)
{
	size_t length = strlen(file->link), suffix = strlen(LINK_SUFFIX);

	return S_ISREG(file->stat.st_mode) && !file->stat.st_nlink &&
	       !strncmp(file->link, LINK_PREFIX, strlen(LINK_PREFIX)) && length > suffix &&
	       !strcmp(file->link + length - suffix, LINK_SUFFIX);
}

static char *name_from_link(const char *link)
{
	const char *start = link + strlen(LINK_PREFIX);

	return sp_format("%.*s", (int)(strlen(start) - strlen(LINK_SUFFIX)), start);
}

static int get_seals(const struct sp_open_file *file, uint32_t *seals, struct sp_error *err)
{
	sp_cleanup_close int readable = -1;
	int fd = file->fd;
	int found;

	if (file->flags & O_PATH) { /* fcntl(2) refuses it the question */
		readable = fd = sp_reopen(file->fd, O_RDONLY, err);
		if (fd < 0)
			return fd;
	}
	found = fcntl(fd, F_GET_SEALS);
	if (found < 0)
		return sp_fail_errno(err, errno, "cannot read its seals");
	if (found & ~SEALS_KNOWN)
		return sp_fail(err, ENOTSUP, "it has seals (0x%x) that sealpoint does not know",
		               (unsigned)found);
	*seals = (uint32_t)found;
	return 0;
}

static int save_file(struct sp_file_saver *saver, const struct sp_open_file *file,
                     Sealpoint__MemfdFile *message, struct sp_error *err)
{
	if (get_seals(file, &message->seals, err) < 0)
		return -err->code;
	message->size = (uint64_t)file->stat.st_size;
	message->mode = file->stat.st_mode & 07777;
	message->uid = file->stat.st_uid;
	message->gid = file->stat.st_gid;
	message->huge_page_shift = sp_huge_page_shift(file->fd);
	return sp_file_save_contents(saver, file, &message->object, err);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Memfd message = SEALPOINT__MEMFD__INIT;
	Sealpoint__MemfdFile inode = SEALPOINT__MEMFD_FILE__INIT;
	sp_cleanup_free char *name = name_from_link(file->link);

	message.position = file->position;
	if (sp_file_table_same_inode(saver->table, file, NULL)->id == file->id) {
		if (save_file(saver, file, &inode, err) < 0)
			return -err->code;
		inode.name = name;
		message.file = &inode;
	}
	sp_blob_pack(body, &message.base);
	return 0;
}

static unsigned creation_flags(const Sealpoint__MemfdFile *inode)
{
	bool sealed_noexec = (inode->seals & F_SEAL_EXEC) && !(inode->mode & 0111);
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;

	flags |= sealed_noexec ? MFD_NOEXEC_SEAL : MFD_EXEC;
	if (inode->huge_page_shift)
		flags |= MFD_HUGETLB | inode->huge_page_shift << MFD_HUGE_SHIFT;
	return flags;
}

static int make_file(struct sp_file_builder *builder, const Sealpoint__MemfdFile *inode, int *fd,
                     struct sp_error *err)
{
	unsigned flags = creation_flags(inode);
	sp_cleanup_close int made = memfd_create(inode->name, flags);

	if (made < 0 && errno == EINVAL && !(flags & MFD_NOEXEC_SEAL)) /* before Linux 6.3 */
		made = memfd_create(inode->name, flags & ~MFD_EXEC);
	if (made < 0)
		return sp_fail_errno(err, errno, "cannot make a memfd");
	if (inode->object &&
	    sp_content_load(builder->checkpoint->pages, inode->object, made, inode->size, err) < 0)
		return sp_error_context(err, "cannot fill it in");
	if (!inode->object && ftruncate(made, (off_t)inode->size) < 0)
		return sp_fail_errno(err, errno, "cannot give it its size of %" PRIu64 " bytes",
		                     inode->size);
	if (fchown(made, inode->uid, inode->gid) < 0)
		return sp_fail_errno(err, errno, "cannot give it to user %u, group %u", inode->uid,
		                     inode->gid);
	if (fchmod(made, inode->mode) < 0)
		return sp_fail_errno(err, errno, "cannot set its mode to %o", inode->mode);
	*fd = sp_steal_fd(&made);
	return 0;
}

/*
 * Seals are set through an open file that may write, and nobody can open one of a program that is executed. But seals
 * against writing must wait for what is mapped shared: that is mapped first.
 */
static bool is_mapped_shared(const struct sp_checkpoint *checkpoint, uint32_t id)
{
	for (size_t i = 0; i < checkpoint->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&checkpoint->vmas, i);
		const Sealpoint__OpenFile *file;

		if (vma->kind != SP_VMA_FILE_SHARED)
			continue;
		file = sp_checkpoint_file(checkpoint, vma->file);
		if (file && (file->id == id || file->same_inode == id))
			return true;
	}
	return false;
}

static int set_seals(int fd, uint32_t seals, struct sp_error *err)
{
	if (seals && fcntl(fd, F_ADD_SEALS, seals) < 0)
		return sp_fail_errno(err, errno, "cannot set its seals (0x%x)", seals);
	return 0;
}

static int open_memfd(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                      struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Memfd *message =
	        sp_blob_unpack(file->body, &sealpoint__memfd__descriptor, err);
	sp_cleanup_close int made = -1;
	sp_cleanup_close int view = -1;
	int base;

	if (!message)
		return -EBADMSG;
	if (message->file && make_file(builder, message->file, &made, err) < 0)
		return -err->code;
	if (message->file && !is_mapped_shared(builder->checkpoint, file->id) &&
	    set_seals(made, message->file->seals, err) < 0)
		return -err->code;
	base = message->file ? made : builder->fds[file->same_inode];
	if (message->file && (file->flags & (O_ACCMODE | O_PATH)) == O_RDWR)
		view = sp_steal_fd(&made);
	else
		view = sp_reopen(base, (int)file->flags & (O_ACCMODE | O_PATH), err);
	if (view < 0)
		return view;
	if (!(file->flags & O_PATH) && lseek(view, message->position, SEEK_SET) < 0)
		return sp_fail_errno(err, errno, "cannot set its position to %" PRId64,
		                     message->position);
	*fd = sp_steal_fd(&view);
	return 0;
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Memfd *message =
	        sp_blob_unpack(file->body, &sealpoint__memfd__descriptor, err);
	sp_cleanup_close int writable = -1;

	if (!message)
		return -EBADMSG;
	if (!message->file || !message->file->seals ||
	    !is_mapped_shared(builder->checkpoint, file->id))
		return 0;
	writable = sp_reopen(builder->fds[file->id], O_RDWR, err);
	return writable < 0 ? writable : set_seals(writable, message->file->seals, err);
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Memfd *message =
	        sp_blob_unpack(body, &sealpoint__memfd__descriptor, NULL);

	if (message && message->file)
		snprintf(text, size, "\"%s\", %" PRIu64 " bytes, seals 0x%x, position %" PRId64,
		         message->file->name, message->file->size, message->file->seals,
		         message->position);
	else if (message)
		snprintf(text, size, "another view, position %" PRId64, message->position);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Memfd *message =
	        sp_blob_unpack(file->body, &sealpoint__memfd__descriptor, err);
	const Sealpoint__MemfdFile *inode = message ? message->file : NULL;

	if (!message)
		return -EBADMSG;
	if (!inode != !!file->same_inode)
		return sp_fail_damaged(err, "a memfd that is described nowhere");
	if (message->position < 0)
		return sp_fail_damaged(err, "a negative position");
	if (!inode)
		return 0;
	if (inode->seals & ~(uint32_t)SEALS_KNOWN)
		return sp_fail_damaged(err, "unknown seals (0x%x)", inode->seals);
	if (inode->size > INT64_MAX || inode->mode > 07777 ||
	    !sp_huge_page_shift_valid(inode->huge_page_shift))
		return sp_fail_damaged(err, "an impossible size or mode");
	return 0;
}

const struct sp_file_kind sp_kind_memfd = {
        .name = "memfd",
        .title = "memfd",
        .claims = claims,
        .save = save,
        .open = open_memfd,
        .settle = settle,
        .describe = describe,
        .check = check,
};
