/*
 * An ELF core file of a checkpoint, for debuggers.
 *
 * Each mapping becomes one or more segments (PT_LOAD). What the page store holds is copied. Pages
 * that were those of a file come from the file itself, opened as a restore would open it (with its
 * checks and warnings). Where it cannot be opened, the segment has no contents, and a debugger
 * looks into the file that NT_FILE names. Long stretches that were never populated have no contents
 * either: a debugger shows them as zeros, and the core of a program that reserves a terabyte stays
 * small. All zeros inside a segment are holes of the core file.
 *
 * Shared mappings of files that have a name are left out, as in the kernel's own core files.
 */
#include "engine/core.h"

#include "base/cleanup.h"
#include "base/interrupt.h"
#include "base/io.h"
#include "kinds/file_build.h"
#include "mem/vma.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LONG_HOLE (1ULL << 20) /* a shorter one does not split a segment */
#define COPY_SIZE (1ULL << 20)
#define STEP_SIZE (64ULL << 20) /* between two looks at the progress line */

struct segment {
	struct sp_range range;
	const Sealpoint__Vma *vma;
	bool stored;     /* has contents in the core file */
	int fd;          /* the mapped file if its pages come from there, else -1 */
	uint64_t offset; /* in the core file */
};

struct core {
	struct sp_checkpoint *checkpoint;
	const Sealpoint__Process *process;
	struct sp_log *log;
	struct sp_file_builder files; /* opens the mapped files */
	struct sp_array segments;     /* struct segment, ascending */
	struct sp_array notes;        /* bytes */
	uint64_t notes_offset, size;
	uint64_t to_copy; /* bytes of all stored segments, for the progress line */
	int fd;
};

/* --- the mapped files --- */

/* Shared memory without a name exists only in the checkpoint: its kind builds it up again. */
static bool wants_file(const Sealpoint__Vma *vma)
{
	if (!vma->file)
		return false;
	if (vma->kind == SP_VMA_FILE_PRIVATE || vma->kind == SP_VMA_SHARED_ANON ||
	    vma->kind == SP_VMA_SYSTEM_V)
		return true;
	return vma->kind == SP_VMA_FILE_SHARED && (vma->flags & SP_VMA_DELETED);
}

static int open_file(struct core *core, const Sealpoint__OpenFile *file, struct sp_error *err)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);
	int rc = 0;

	if (core->files.fds[file->id] >= 0)
		return 0;
	if (!kind)
		return sp_fail(err, ENOTSUP, "this version knows no open file of kind \"%s\"",
		               file->kind);
	if (kind->check)
		rc = kind->check(core->checkpoint, file, err);
	if (rc == 0)
		rc = kind->open(&core->files, file, &core->files.fds[file->id], err);
	return rc;
}

/* Of several open files of one inode without a name, the first has the contents. */
static int open_with_first(struct core *core, const Sealpoint__OpenFile *file, struct sp_error *err)
{
	const Sealpoint__OpenFile *first = sp_checkpoint_file(core->checkpoint, file->same_inode);
	int rc = 0;

	if (first && first->same_inode)
		return sp_fail_damaged(err, "an impossible file");
	if (first)
		rc = open_file(core, first, err);
	return rc < 0 ? rc : open_file(core, file, err);
}

/* The descriptor of a mapping's file, or -1, with a warning the first time. */
static int mapped_file(struct core *core, const Sealpoint__Vma *vma, bool *asked)
{
	const Sealpoint__OpenFile *file = sp_checkpoint_file(core->checkpoint, vma->file);
	struct sp_error err = {0};

	if (!wants_file(vma) || !file)
		return -1;
	if (!asked[vma->file] && open_with_first(core, file, &err) < 0)
		sp_warn(core->log, "the core file lacks pages of %s: %s", vma->path, err.message);
	asked[vma->file] = true;
	return core->files.fds[vma->file];
}

/* --- segments --- */

/* Where the walk over the pages of one mapping has come to. */
struct planner {
	struct core *core;
	const Sealpoint__Vma *vma;
	int fd;
	bool any; /* the last segment is one of this mapping */
};

static void add_range(struct planner *planner, struct sp_range range, bool stored)
{
	struct sp_array *segments = &planner->core->segments;
	struct segment *last = planner->any ? sp_array_at(segments, segments->count - 1) : NULL;

	if (range.start == range.end)
		return;
	if (last && last->stored == stored && last->range.end == range.start) {
		last->range.end = range.end;
		return;
	}
	sp_array_append(segments, &(struct segment){range, planner->vma, stored, planner->fd, 0});
	planner->any = true;
}

static bool run_is_stored(const struct planner *planner, const struct sp_page_run *run)
{
	bool short_run = sp_range_size(run->range) < LONG_HOLE;

	switch (run->state) {
	case SP_PAGE_DATA:
	case SP_PAGE_ZERO:
		return true;
	case SP_PAGE_FILE:
		return planner->fd >= 0;
	default: /* reads as zeros in anonymous memory, and as the file's page otherwise */
		return short_run && (planner->fd >= 0 || !planner->vma->file);
	}
}

static int plan_run(void *context, const struct sp_page_run *run)
{
	struct planner *planner = context;

	add_range(planner, run->range, run_is_stored(planner, run));
	return 0;
}

static bool has_own_pages(const Sealpoint__Vma *vma)
{
	return !sp_vma_kind_is_shared(vma->kind) && vma->kind != SP_VMA_VVAR &&
	       vma->kind != SP_VMA_DEVICE && vma->kind != SP_VMA_ASYNC_IO;
}

static int plan_mapping(struct core *core, const Sealpoint__Vma *vma, bool *asked,
                        struct sp_error *err)
{
	struct planner planner = {core, vma, mapped_file(core, vma, asked), false};
	struct sp_range range = {vma->start, vma->end};

	if (has_own_pages(vma))
		return sp_page_store_walk(core->checkpoint->pages, core->process->memory_object,
		                          range, plan_run, &planner, err);
	add_range(&planner, range, sp_vma_kind_is_shared(vma->kind) && planner.fd >= 0);
	return 0;
}

static int plan_segments(struct core *core, struct sp_error *err)
{
	const struct sp_array *vmas = &core->checkpoint->vmas;
	sp_cleanup_free bool *asked =
	        sp_alloc_zeroed(core->checkpoint->files.count + 1, sizeof(*asked));

	for (size_t i = 0; i < vmas->count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(vmas, i);
		int rc;

		if (vma->pid != sp_memory_owner(core->process) || vma->kind == SP_VMA_VSYSCALL)
			continue;
		rc = plan_mapping(core, vma, asked, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* --- headers --- */

/* With more segments than a header can count, their number stands in the first section header. */
static bool many_segments(const struct core *core)
{
	return core->segments.count + 1 >= PN_XNUM;
}

static void lay_out(struct core *core)
{
	uint64_t position = sizeof(Elf64_Ehdr) + (core->segments.count + 1) * sizeof(Elf64_Phdr);

	if (many_segments(core))
		position += sizeof(Elf64_Shdr);
	core->notes_offset = position;
	position = sp_page_up(position + core->notes.count);
	for (size_t i = 0; i < core->segments.count; i++) {
		struct segment *segment = sp_array_at(&core->segments, i);

		segment->offset = position;
		if (!segment->stored)
			continue;
		position += sp_range_size(segment->range);
		core->to_copy += sp_range_size(segment->range);
	}
	core->size = position;
}

static void fill_file_header(const struct core *core, Elf64_Ehdr *header)
{
	*header = (Elf64_Ehdr){
	        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
	                    EV_CURRENT},
	        .e_type = ET_CORE,
	        .e_machine = EM_X86_64,
	        .e_version = EV_CURRENT,
	        .e_phoff = sizeof(*header),
	        .e_ehsize = sizeof(*header),
	        .e_phentsize = sizeof(Elf64_Phdr),
	        .e_phnum = (uint16_t)(core->segments.count + 1),
	};
	if (!many_segments(core))
		return;
	header->e_phnum = PN_XNUM;
	header->e_shoff = core->notes_offset - sizeof(Elf64_Shdr);
	header->e_shentsize = sizeof(Elf64_Shdr);
	header->e_shnum = 1;
}

static void fill_segment_header(const struct segment *segment, Elf64_Phdr *header)
{
	uint64_t size = sp_range_size(segment->range);

	*header = (Elf64_Phdr){
	        .p_type = PT_LOAD,
	        .p_flags = (segment->vma->prot & PROT_READ ? PF_R : 0) |
	                   (segment->vma->prot & PROT_WRITE ? PF_W : 0) |
	                   (segment->vma->prot & PROT_EXEC ? PF_X : 0),
	        .p_offset = segment->offset,
	        .p_vaddr = segment->range.start,
	        .p_filesz = segment->stored ? size : 0,
	        .p_memsz = size,
	        .p_align = SP_PAGE_SIZE,
	};
}

static int write_headers(struct core *core, struct sp_error *err)
{
	size_t count = core->segments.count + 1;
	sp_cleanup_free char *bytes = sp_alloc_zeroed(1, core->notes_offset);
	Elf64_Phdr *segments = (Elf64_Phdr *)(bytes + sizeof(Elf64_Ehdr));
	int rc;

	fill_file_header(core, (Elf64_Ehdr *)bytes);
	segments[0] = (Elf64_Phdr){
	        .p_type = PT_NOTE,
	        .p_offset = core->notes_offset,
	        .p_filesz = core->notes.count,
	        .p_align = 4,
	};
	for (size_t i = 1; i < count; i++)
		fill_segment_header(sp_array_at(&core->segments, i - 1), &segments[i]);
	if (many_segments(core)) {
		Elf64_Shdr *section = (Elf64_Shdr *)(segments + count);

		*section = (Elf64_Shdr){.sh_type = SHT_NULL, .sh_info = (uint32_t)count};
	}
	rc = sp_pwrite_full(core->fd, bytes, core->notes_offset, 0);
	if (rc == 0)
		rc = sp_pwrite_full(core->fd, core->notes.items, core->notes.count,
		                    (off_t)core->notes_offset);
	if (rc == 0 && ftruncate(core->fd, (off_t)core->size) < 0)
		rc = -errno;
	return rc < 0 ? sp_fail_errno(err, -rc, "cannot write it") : 0;
}

/* --- contents --- */

static bool all_zero(const char *bytes, size_t size)
{
	return size == 0 || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, size - 1));
}

/* Where in the core file an address of a segment lies. */
static uint64_t place_of(const struct segment *segment, uint64_t address)
{
	return segment->offset + (address - segment->range.start);
}

/* The next stretch of a file that is no hole, in [position, end); false if there is none. */
static bool next_data(int fd, uint64_t *position, uint64_t end)
{
	off_t data = lseek(fd, (off_t)*position, SEEK_DATA);

	if (data < 0)
		return errno != ENXIO; /* not every file system knows its holes */
	*position =
	        sp_page_down((uint64_t)data) > *position ? sp_page_down((uint64_t)data) : *position;
	return *position < end;
}

/* Copies the pages of the mapped file; behind its end there is nothing. */
static int copy_file(const struct core *core, const struct segment *segment, struct sp_range range,
                     char *buffer, struct sp_error *err)
{
	uint64_t position = segment->vma->offset + (range.start - segment->vma->start);
	uint64_t end = position + sp_range_size(range);
	uint64_t shift = place_of(segment, range.start) - position; /* modulo 2^64 */

	while (position < end && next_data(segment->fd, &position, end)) {
		size_t size = end - position < COPY_SIZE ? end - position : COPY_SIZE;
		ssize_t got = sp_pread_full(segment->fd, buffer, size, (off_t)position);
		int rc = 0;

		if (got < 0)
			return sp_fail_errno(err, (int)-got, "cannot read %s", segment->vma->path);
		if (!all_zero(buffer, (size_t)got))
			rc = sp_pwrite_full(core->fd, buffer, (size_t)got,
			                    (off_t)(position + shift));
		if (rc < 0)
			return sp_fail_errno(err, -rc, "cannot write it");
		if ((size_t)got < size)
			break;
		position += size;
	}
	return 0;
}

/* What the page store's workers write into. */
struct target {
	const struct core *core;
	const struct segment *segment;
};

static int write_data(void *context, uint64_t address, const void *bytes, size_t size,
                      struct sp_error *err)
{
	const struct target *target = context;
	int rc = sp_pwrite_full(target->core->fd, bytes, size,
	                        (off_t)place_of(target->segment, address));

	return rc < 0 ? sp_fail_errno(err, -rc, "cannot write it") : 0;
}

/* Zeros have to be written only where a page of a file has been put before. */
static int write_zeros(void *context, struct sp_range range, struct sp_error *err)
{
	static const char zeros[16 * SP_PAGE_SIZE];
	const struct target *target = context;
	int rc = 0;

	if (target->segment->fd < 0)
		return 0;
	for (uint64_t at = range.start; at < range.end && rc == 0; at += sizeof(zeros)) {
		uint64_t left = range.end - at;

		rc = write_data(context, at, zeros, left < sizeof(zeros) ? left : sizeof(zeros),
		                err);
	}
	return rc;
}

static int copy_range(const struct core *core, const struct segment *segment, struct sp_range range,
                      char *buffer, struct sp_error *err)
{
	struct target target = {core, segment};
	struct sp_page_sink sink = {write_data, write_zeros, &target};
	int rc = 0;

	if (segment->fd >= 0)
		rc = copy_file(core, segment, range, buffer, err);
	if (rc == 0 && has_own_pages(segment->vma))
		rc = sp_page_store_load(core->checkpoint->pages, core->process->memory_object,
		                        range, &sink, 0, err);
	return rc;
}

static int copy_contents(struct core *core, struct sp_error *err)
{
	sp_cleanup_free char *buffer = sp_alloc_pages(COPY_SIZE);
	uint64_t copied = 0;

	for (size_t i = 0; i < core->segments.count; i++) {
		const struct segment *segment = sp_array_at(&core->segments, i);
		struct sp_range step = {segment->range.start, segment->range.start};

		while (segment->stored && step.end < segment->range.end) {
			uint64_t left = segment->range.end - step.end;
			int rc;

			step.start = step.end;
			step.end += left < STEP_SIZE ? left : STEP_SIZE;
			rc = sp_interrupt_check(err)
			             ?: copy_range(core, segment, step, buffer, err);
			if (rc < 0)
				return rc;
			copied += sp_range_size(step);
			sp_progress(core->log, "writing the core file", copied, core->to_copy);
		}
	}
	return 0;
}

/* --- the file --- */

static int write_core(struct core *core, struct sp_error *err)
{
	int rc = plan_segments(core, err);

	if (rc == 0)
		rc = sp_core_notes(core->checkpoint, core->process, &core->notes, err);
	if (rc < 0)
		return rc;
	lay_out(core);
	rc = write_headers(core, err);
	if (rc == 0)
		rc = copy_contents(core, err);
	return rc;
}

static void remove_file(void *path)
{
	unlink(path);
}

/*
 * The core file appears under its name when it is complete. It holds secrets: only its owner reads
 * it.
 */
static int write_file(struct core *core, const char *path, struct sp_error *err)
{
	sp_cleanup_free char *partial = sp_format("%s.partial-%d", path, getpid());
	struct stat stat;
	int rc;

	if (lstat(path, &stat) == 0 && S_ISDIR(stat.st_mode))
		return sp_fail(err, EISDIR, "it is a directory; name a file in it");
	core->fd = open(partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (core->fd < 0)
		return sp_fail_errno(err, errno, "cannot create %s", partial);
	sp_when_out_of_memory(remove_file, partial);
	rc = write_core(core, err);
	if (close(core->fd) < 0 && rc == 0)
		rc = sp_fail_errno(err, errno, "cannot write it");
	if (rc == 0 && rename(partial, path) < 0)
		rc = sp_fail_errno(err, errno, "cannot rename %s", partial);
	if (rc < 0)
		unlink(partial);
	sp_when_out_of_memory(NULL, NULL);
	return rc;
}

int sp_write_core(struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                  const char *path, struct sp_log *log, struct sp_error *err)
{
	const struct sp_kind_options options = {.unlinked_file_limit = UINT64_MAX,
	                                        .contents_only = true};
	struct core core = {
	        .checkpoint = checkpoint,
	        .process = process,
	        .log = log,
	        .segments = SP_ARRAY_OF(struct segment),
	        .notes = SP_ARRAY_OF(char),
	};
	int rc = sp_checkpoint_need_program(checkpoint, err);

	if (rc == 0)
		rc = sp_file_builder_init(&core.files, checkpoint, &options, log, err);
	if (rc == 0)
		rc = write_file(&core, path, err);
	sp_file_builder_release(&core.files);
	sp_array_release(&core.segments);
	sp_array_release(&core.notes);
	if (rc == -EINTR && sp_interrupt_check(err))
		return sp_error_context(err, "no core file was written");
	return rc < 0 ? sp_error_context(err, "cannot write the core file %s", path) : 0;
}
