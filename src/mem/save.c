/*
 * Saving memory: what is refused, which state each page has, and where the page store's workers
 * read contents from.
 *
 * Only what a private mapping has of its own is stored. A page that is still the file's, of a
 * private or of a shared mapping, is FILE: its contents come from the file, all that is kept is
 * that it was resident. The zero page is nobody's memory: HOLE.
 */
#include "mem/memory.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/range_set.h"
#include "mem/page_scan.h"
#include "proc/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/uio.h>

/* --- what cannot be saved --- */

/* Mappings of things that only the kernel can make, by the beginning of their path. */
static const struct {
	const char *path;
	const char *what;
	const char *remedy;
} special_mappings[] = {
        {"anon_inode:[io_uring]", "an io_uring",
         "let the program close it, or start the program with io_uring switched off"},
        {"anon_inode:[perf_event]", "a perf event buffer", "stop the profiler before the dump"},
        {"anon_inode:", "memory of a kernel object", "let the program unmap it before the dump"},
        {"/secretmem", "secret memory, which nobody else may read",
         "let the program unmap it before the dump"},
        {"[uprobes]", "the code page of a user-space probe",
         "remove the probes and start the program again"},
        {"socket:", "a ring of packets, or what a TCP socket receives into (TCP_ZEROCOPY_RECEIVE)",
         "let the program unmap it before the dump"},
};

static int refuse(pid_t pid, const struct sp_vma *vma, const char *what, const char *remedy,
                  struct sp_error *err)
{
	return sp_fail(err, ENOTSUP,
	               "cannot save memory at 0x%" PRIx64 "-0x%" PRIx64
	               " of process %d%s%s%s: it is %s; %s",
	               vma->range.start, vma->range.end, pid, vma->path[0] ? " (" : "", vma->path,
	               vma->path[0] ? ")" : "", what, remedy);
}

int sp_memory_check_vma(pid_t pid, const struct sp_vma *vma, struct sp_error *err)
{
	for (size_t i = 0; i < SP_COUNT_OF(special_mappings); i++) {
		const char *path = special_mappings[i].path;

		if (strncmp(vma->path, path, strlen(path)) == 0)
			return refuse(pid, vma, special_mappings[i].what,
			              special_mappings[i].remedy, err);
	}
	if (vma->kind == SP_VMA_VVAR || vma->kind == SP_VMA_VSYSCALL)
		return 0;
	if (vma->kind == SP_VMA_DEVICE || (vma->flags & SP_VMA_IO))
		return refuse(pid, vma, "memory of a device",
		              "let the program close the device and unmap it before the dump", err);
	if (vma->flags & SP_VMA_UFFD)
		return refuse(
		        pid, vma, "registered with a userfaultfd",
		        "end a sealpoint snapshot or watch of it, or let its owner unregister it "
		        "(UFFDIO_UNREGISTER), before the dump",
		        err);
	if (vma->flags & SP_VMA_SHADOW_STACK)
		return refuse(pid, vma, "a shadow stack",
		              "start the program with shadow stacks switched off "
		              "(GLIBC_TUNABLES=glibc.cpu.x86_shstk=off)",
		              err);
	return 0;
}

int sp_memory_check(pid_t pid, const struct sp_array *vmas, struct sp_error *err)
{
	for (size_t i = 0; i < vmas->count; i++) {
		int rc = sp_memory_check_vma(pid, sp_array_at(vmas, i), err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* --- where contents are read from --- */

#define PARTS_MAX 128

struct process_memory {
	pid_t pid;
	int fd;       /* /proc/PID/mem: reads PROT_NONE memory too, but slower */
	bool running; /* pages may vanish */
	bool shared;  /* pages may be in common with other processes */
};

static int read_forced(const struct process_memory *memory, uint64_t from, void *buffer,
                       size_t size, struct sp_error *err)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got =
		        pread(memory->fd, (char *)buffer + done, size - done, (off_t)(from + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0 && memory->running) {
			got = (ssize_t)(sp_page_down(from + done) + SP_PAGE_SIZE - from - done);
			memset((char *)buffer + done, 0, (size_t)got);
		}
		if (got <= 0)
			return sp_fail_errno(err, got < 0 ? errno : EFAULT,
			                     "cannot read memory at 0x%" PRIx64 " of process %d",
			                     from + done, memory->pid);
		done += (size_t)got;
	}
	return 0;
}

/*
 * Faster, but not for pages that are in common since fork(2): process_vm_readv(2) pins what it reads, and to pin
 * such a page the kernel makes a copy of it first, which the process keeps.
 */
static ssize_t read_pinned(const struct process_memory *memory, const struct iovec *local,
                           const struct iovec *remote, size_t count)
{
	return memory->shared ? 0 : process_vm_readv(memory->pid, local, 1, remote, count, 0);
}

static int read_process(void *context, uint64_t offset, void *buffer, size_t size,
                        struct sp_error *err)
{
	const struct process_memory *memory = context;
	struct iovec local = {buffer, size};
	struct iovec remote = {(void *)(uintptr_t)offset, size};
	ssize_t got = read_pinned(memory, &local, &remote, 1);
	size_t done = got < 0 ? 0 : (size_t)got;

	return read_forced(memory, offset + done, (char *)buffer + done, size - done, err);
}

/*
 * Pages that are scattered over the memory, with one call. What it cannot read ends it: that part is
 * read alone.
 */
static int read_process_parts(void *context, const struct sp_range *parts, size_t count,
                              void *buffer, struct sp_error *err)
{
	const struct process_memory *memory = context;
	struct iovec remote[PARTS_MAX];
	uint8_t *to = buffer;
	size_t done = 0;

	while (done < count) {
		size_t asked = count - done < PARTS_MAX ? count - done : PARTS_MAX, size = 0;
		struct iovec local = {.iov_base = to};
		ssize_t got;

		for (size_t i = 0; i < asked; i++) {
			remote[i] = (struct iovec){(void *)(uintptr_t)parts[done + i].start,
			                           sp_range_size(parts[done + i])};
			local.iov_len += remote[i].iov_len;
		}
		got = read_pinned(memory, &local, remote, asked);
		for (; asked > 0 && got >= (ssize_t)(size + sp_range_size(parts[done])); asked--)
			size += sp_range_size(parts[done++]);
		to += size;
		if (asked > 0) {
			int rc = read_process(context, parts[done].start, to,
			                      sp_range_size(parts[done]), err);

			if (rc < 0)
				return rc;
			to += sp_range_size(parts[done++]);
		}
	}
	return 0;
}

static void release_process(void *context)
{
	struct process_memory *memory = context;

	close(memory->fd);
	free(memory);
}

static int add_process_source(struct sp_page_writer *writer, pid_t pid,
                              const struct sp_memory_selection *selection, uint32_t *source,
                              struct sp_error *err)
{
	struct process_memory *memory;
	int fd = sp_proc_open(pid, "mem", O_RDONLY, err);

	if (fd < 0)
		return fd;
	memory = sp_alloc(sizeof(*memory));
	*memory = (struct process_memory){pid, fd, selection->running, selection->shared};
	*source = sp_page_writer_add_source(
	        writer, (struct sp_page_source){.read = read_process,
	                                        .read_parts = read_process_parts,
	                                        .context = memory,
	                                        .release = release_process});
	return 0;
}

/* --- page states --- */

struct saver {
	const struct sp_memory_selection *selection;
	struct sp_page_writer *writer;
	uint32_t object, source;
	struct sp_vma *vma;
	bool listing;           /* what the VMA has is listed */
	struct sp_page_run run; /* of the VMA, not added yet: it may become longer */
};

/*
 * The kernel can make writes wait in anonymous memory only. The main stack is where a thread is
 * driven from, and small. And to hold a mapping takes a step for each of its pages, ten times shorter
 * than to read one: that is not worth it for a few.
 */
bool sp_memory_is_worth_holding(const struct sp_vma *vma, const struct sp_array *changed,
                                uint64_t most)
{
	uint64_t size;

	if (vma->kind != SP_VMA_ANONYMOUS || vma->page_shift != SP_PAGE_SHIFT)
		return false;
	size = sp_ranges_total_within(changed, vma->range);
	return size > most || size >= sp_range_size(vma->range) / 8;
}

static void list_run(struct saver *saver)
{
	struct sp_memory_list *list = saver->selection->list;
	struct sp_range *last =
	        list->areas.count ? sp_array_at(&list->areas, list->areas.count - 1) : NULL;

	sp_ranges_add(&list->pages, saver->run.range);
	if (!last || last->start != saver->vma->range.start)
		sp_array_append(&list->areas, &saver->vma->range);
}

static int add_run(struct saver *saver, struct sp_error *err)
{
	if (saver->run.range.start == saver->run.range.end)
		return 0;
	if (saver->listing && saver->run.state == SP_PAGE_DATA) {
		list_run(saver);
		return 0;
	}
	return sp_page_writer_add(saver->writer, saver->object, saver->run.range, saver->run.state,
	                          saver->source, err);
}

static int append(struct saver *saver, struct sp_range range, enum sp_page_state state,
                  struct sp_error *err)
{
	int rc;

	if (range.start >= range.end)
		return 0;
	if (saver->run.state != state || saver->run.range.end != range.start) {
		rc = add_run(saver, err);
		if (rc < 0)
			return rc;
		saver->run = (struct sp_page_run){{range.start, range.start}, state};
	}
	saver->run.range.end = range.end;
	return 0;
}

/* Pages of one state, of which those that are the parent's are stored with that. */
static int append_contents(struct saver *saver, struct sp_range range, enum sp_page_state state,
                           struct sp_error *err)
{
	const struct sp_array *common = &saver->vma->inherited;
	size_t index = sp_ranges_search(common, range.start);
	int rc = 0;

	if (state != SP_PAGE_DATA || !saver->selection->common)
		return append(saver, range, state, err);
	for (; range.start < range.end && rc >= 0; index++) {
		struct sp_range next = {range.end, range.end};

		if (index < common->count)
			next = *(struct sp_range *)sp_array_at(common, index);
		next = sp_range_within(next, range);
		rc = append(saver, (struct sp_range){range.start, next.start}, state, err);
		if (rc >= 0)
			rc = append(saver, next, SP_PAGE_COMMON, err);
		range.start = next.end;
	}
	return rc;
}

static enum sp_page_state page_state(const struct sp_vma *vma, uint64_t categories)
{
	if (categories & PAGE_IS_GUARD)
		return SP_PAGE_GUARD;
	if (sp_vma_kind_is_shared(vma->kind))
		return categories & PAGE_IS_PRESENT ? SP_PAGE_FILE : SP_PAGE_HOLE;
	if (vma->kind == SP_VMA_FILE_PRIVATE)
		return categories & PAGE_IS_FILE ? SP_PAGE_FILE : SP_PAGE_DATA;
	/* The zero page in a private file mapping hides what the file has there: that is DATA. */
	return categories & PAGE_IS_PFNZERO ? SP_PAGE_HOLE : SP_PAGE_DATA;
}

static void note_huge(struct sp_vma *vma, struct sp_range run)
{
	struct sp_range *last =
	        vma->huge.count ? sp_array_at(&vma->huge, vma->huge.count - 1) : NULL;

	if (last && last->end == run.start)
		last->end = run.end;
	else
		sp_array_append(&vma->huge, &run);
}

static bool is_transparent_huge(const struct sp_vma *vma, uint64_t categories)
{
	return vma->page_shift == SP_PAGE_SHIFT && (categories & PAGE_IS_HUGE) &&
	       (categories & PAGE_IS_PRESENT) && !(categories & (PAGE_IS_FILE | PAGE_IS_PFNZERO));
}

/* To look at a page costs a fraction of a call: gaps of this size between two parts are looked at too. */
#define SCAN_GAP (64 * SP_PAGE_SIZE)

/* The parts of a VMA that are looked at, page by page, and how far they were. */
struct walk {
	struct saver *saver;
	const struct sp_array *parts; /* a set of ranges, within the VMA and beyond */
	size_t index;                 /* of the first that is not done */
	uint64_t next;                /* the first page that nothing is known of yet */
};

/* The part that is not done, as far as it lies in the VMA; empty, at its end, if there is none. */
static struct sp_range current_part(const struct walk *walk)
{
	struct sp_range vma = walk->saver->vma->range, part = {vma.end, vma.end};

	if (walk->index < walk->parts->count)
		part = *(struct sp_range *)sp_array_at(walk->parts, walk->index);
	return sp_range_within(part, vma);
}

/* The pages between two parts. */
static int pass_over(struct saver *saver, struct sp_range range, struct sp_error *err)
{
	return saver->selection->changed_only ? 0 : append(saver, range, SP_PAGE_PARENT, err);
}

/* Tells of the pages up to `end`: those of parts are not populated. */
static int advance(struct walk *walk, uint64_t end, struct sp_error *err)
{
	int rc = 0;

	while (walk->next < end && rc >= 0) {
		struct sp_range part = current_part(walk), run = {walk->next, end};
		bool between = walk->next < part.start || part.start == part.end;

		if (between && part.start < part.end && part.start < end)
			run.end = part.start;
		if (!between && part.end < end)
			run.end = part.end;
		rc = between ? pass_over(walk->saver, run, err)
		             : append(walk->saver, run, SP_PAGE_HOLE, err);
		walk->next = run.end;
		walk->index += !between && run.end == part.end;
	}
	return rc;
}

static int visit_pages(void *context, struct sp_range run, uint64_t categories,
                       struct sp_error *err)
{
	struct walk *walk = context;
	struct saver *saver = walk->saver;
	int rc = advance(walk, run.start, err);

	while (rc >= 0 && walk->next < run.end) {
		struct sp_range part = current_part(walk), piece = {walk->next, run.end};

		if (part.start >= run.end || part.start == part.end)
			return advance(walk, run.end, err);
		if (walk->next < part.start) {
			rc = advance(walk, part.start, err);
			continue;
		}
		piece.end = part.end < run.end ? part.end : run.end;
		if (is_transparent_huge(saver->vma, categories))
			note_huge(saver->vma, piece);
		rc = append_contents(saver, piece, page_state(saver->vma, categories), err);
		walk->next = piece.end;
		walk->index += piece.end == part.end;
	}
	return rc;
}

/* Parts that are close to each other are looked at together. */
static int save_parts(struct saver *saver, const struct sp_array *parts, struct sp_page_scan *scan,
                      struct sp_error *err)
{
	struct walk walk = {saver, parts, sp_ranges_search(parts, saver->vma->range.start),
	                    saver->vma->range.start};
	int rc = 0;

	while (rc >= 0) {
		struct walk ahead = walk;
		struct sp_range span = current_part(&ahead), part = span;

		if (span.start == span.end)
			break;
		while (part.start < part.end && part.start <= span.end + SCAN_GAP) {
			span.end = part.end;
			ahead.index++;
			part = current_part(&ahead);
		}
		if (saver->vma->kind == SP_VMA_VDSO)
			rc = visit_pages(&walk, span, PAGE_IS_PRESENT, err);
		else
			rc = sp_page_scan_walk(scan, span, visit_pages, &walk, err);
		if (rc >= 0)
			rc = advance(&walk, span.end, err);
	}
	return rc < 0 ? rc : advance(&walk, saver->vma->range.end, err);
}

/* Of the others the kernel, or a device, has the pages: nothing of them is in the page store. */
static bool has_pages(const struct sp_vma *vma)
{
	return vma->kind != SP_VMA_VVAR && vma->kind != SP_VMA_VSYSCALL &&
	       vma->kind != SP_VMA_DEVICE && vma->kind != SP_VMA_ASYNC_IO;
}

static int save_vma(struct saver *saver, struct sp_page_scan *scan, struct sp_error *err)
{
	struct sp_vma *vma = saver->vma;
	struct sp_array whole = {.items = &vma->range, .count = 1, .item_size = sizeof(vma->range)};
	const struct sp_memory_selection *selection = saver->selection;
	bool aside = selection->aside && sp_ranges_have(selection->aside, vma->range);
	int rc;

	if (aside != selection->aside_only)
		return 0;
	/* Of one that is aside, more than one round tells. */
	if (aside)
		sp_ranges_subtract(&vma->huge, selection->changed);
	else
		sp_array_clear(&vma->huge);
	if (!has_pages(vma))
		return 0;
	saver->run = (struct sp_page_run){{vma->range.start, vma->range.start}, SP_PAGE_HOLE};
	saver->listing = aside || (selection->list &&
	                           sp_memory_is_worth_holding(vma, selection->changed, UINT64_MAX));
	rc = save_parts(saver, selection->changed ? selection->changed : &whole, scan, err);
	if (aside)
		sp_ranges_normalize(&vma->huge);
	return rc < 0 ? rc : add_run(saver, err);
}

static int save_all(struct saver *saver, pid_t pid, const struct sp_array *vmas,
                    struct sp_page_scan *scan, struct sp_error *err)
{
	for (size_t i = 0; i < vmas->count; i++) {
		int rc;

		saver->vma = sp_array_at(vmas, i);
		rc = save_vma(saver, scan, err);
		if (rc < 0)
			return sp_error_context(
			        err,
			        "cannot save memory at 0x%" PRIx64 "-0x%" PRIx64 " of process %d",
			        saver->vma->range.start, saver->vma->range.end, pid);
	}
	return 0;
}

static const struct sp_memory_selection everything;

int sp_memory_save(pid_t pid, const struct sp_array *vmas,
                   const struct sp_memory_selection *selection, struct sp_page_writer *writer,
                   uint32_t object, struct sp_error *err)
{
	struct saver saver = {
	        .selection = selection ? selection : &everything,
	        .writer = writer,
	        .object = object,
	};
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	int rc = sp_page_scan_open(&scan, pid, err);

	if (rc < 0)
		return rc;
	rc = add_process_source(writer, pid, saver.selection, &saver.source, err);
	return rc < 0 ? rc : save_all(&saver, pid, vmas, &scan, err);
}

struct survey {
	const struct sp_vma *vma;
	uint64_t *pages;
};

static int survey_run(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	const struct survey *survey = context;
	uint64_t count = sp_range_size(run) / SP_PAGE_SIZE;

	survey->pages[page_state(survey->vma, categories)] += count;
	survey->pages[SP_PAGE_HOLE] -= count;
	return 0;
}

int sp_memory_survey_pages(struct sp_page_scan *scan, const struct sp_vma *vma,
                           uint64_t pages[SP_PAGE_STATES], struct sp_error *err)
{
	struct survey survey = {vma, pages};

	memset(pages, 0, SP_PAGE_STATES * sizeof(*pages));
	if (!has_pages(vma))
		return 0;
	pages[SP_PAGE_HOLE] = sp_range_size(vma->range) / SP_PAGE_SIZE;
	if (vma->kind == SP_VMA_VDSO)
		return survey_run(&survey, vma->range, PAGE_IS_PRESENT, err);
	return sp_page_scan_walk(scan, vma->range, survey_run, &survey, err);
}

int sp_memory_save_listed(pid_t pid, const struct sp_array *pages,
                          const struct sp_page_source *source, struct sp_page_writer *writer,
                          uint32_t object, struct sp_error *err)
{
	uint32_t number;
	int rc = 0;

	if (source)
		number = sp_page_writer_add_source(writer, *source);
	else
		rc = add_process_source(writer, pid, &everything, &number, err);
	for (size_t i = 0; i < pages->count && rc == 0; i++)
		rc = sp_page_writer_add(writer, object, *(struct sp_range *)sp_array_at(pages, i),
		                        SP_PAGE_DATA, number, err);
	return rc ? rc : sp_page_writer_drain(writer, err);
}

void sp_vma_to_record(const struct sp_vma *vma, pid_t pid, Sealpoint__Vma *record)
{
	sealpoint__vma__init(record);
	record->pid = (uint32_t)pid;
	record->start = vma->range.start;
	record->end = vma->range.end;
	record->kind = vma->kind;
	record->prot = (uint32_t)vma->prot;
	record->flags = vma->flags;
	record->offset = vma->offset;
	record->file = vma->file;
	record->page_shift = vma->page_shift;
	record->protection_key = vma->protection_key;
	record->path = vma->path;
	if (vma->name)
		record->name = vma->name;
	/* struct sp_range is a pair of addresses, which is what the record wants. */
	record->huge = vma->huge.items;
	record->n_huge = vma->huge.count * 2;
	record->inherited = vma->inherited.items;
	record->n_inherited = vma->inherited.count * 2;
}
