/* Finds a place to stand in a foreign process: see foothold.h. */
#include "remote/foothold.h"

#include "arch/arch.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "proc/file.h"
#include "proc/maps.h"
#include "proc/status.h"
#include "remote/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define SEARCH_CHUNK (256ULL << 10)
#define STACK_DISTANCE (16ULL << 10)

const char sp_frame_mark[16] = "sealpoint frame";

/* pagemap (Documentation/admin-guide/mm/pagemap.rst) */
#define PAGEMAP_SWAPPED_OR_PRESENT (3ULL << 62)

/* --- code --- */

static void look_for(const struct sp_code_pattern *pattern, const uint8_t *bytes, size_t size,
                     remote_addr address, remote_addr *found)
{
	const uint8_t *hit;

	if (*found)
		return;
	hit = memmem(bytes, size, pattern->bytes, pattern->size);
	if (hit)
		*found = address + (uint64_t)(hit - bytes);
}

/*
 * What is still missing is looked for in these bytes. `bare` is a call instruction with anything
 * behind.
 */
static void search_bytes(struct sp_foothold *foothold, remote_addr *bare, const uint8_t *bytes,
                         size_t size, remote_addr address)
{
	look_for(&sp_pattern_syscall, bytes, size, address, bare);
	look_for(&sp_pattern_syscall_return, bytes, size, address, &foothold->instruction);
	look_for(&sp_pattern_unmap, bytes, size, address, &foothold->unmap);
	for (size_t i = 0; sp_pattern_sigreturn[i].size; i++)
		look_for(&sp_pattern_sigreturn[i], bytes, size, address, &foothold->sigreturn);
}

static bool code_is_found(const struct sp_foothold *foothold)
{
	return foothold->instruction && foothold->sigreturn && foothold->unmap;
}

static void search_mapping(pid_t pid, struct sp_range range, struct sp_foothold *foothold,
                           remote_addr *bare, uint8_t *buffer)
{
	for (remote_addr at = range.start; at < range.end && !code_is_found(foothold);
	     at += SEARCH_CHUNK) {
		/* A pattern may lie across two chunks: read a little more than is stepped over. */
		uint64_t size = range.end - at;

		if (size > SEARCH_CHUNK + 64)
			size = SEARCH_CHUNK + 64;
		if (!sp_process_read(pid, at, buffer, size, NULL))
			search_bytes(foothold, bare, buffer, size, at);
	}
}

static int by_trust(const void *a, const void *b)
{
	const struct sp_map *one = a, *two = b;

	if (!one->inode != !two->inode)
		return one->inode ? -1 : 1;
	return sp_compare(sp_range_size(one->range), sp_range_size(two->range));
}

/*
 * A C library is far smaller than the programs that are worth the trouble: smallest mappings first. But
 * those of no file come last: the smallest of them may be the temporary pages of a sealpoint that was
 * killed a moment ago, with code in them that goes away when a thread heals.
 */
static int find_code(pid_t pid, const struct sp_array *maps, struct sp_range except,
                     struct sp_foothold *foothold, struct sp_error *err)
{
	sp_cleanup_array struct sp_array sorted = SP_ARRAY_OF(struct sp_map);
	sp_cleanup_free uint8_t *buffer = sp_alloc(SEARCH_CHUNK + 64);
	remote_addr bare = 0;

	for (size_t i = 0; i < maps->count; i++) {
		const struct sp_map *map = sp_array_at(maps, i);

		if (map->executable && map->readable && !sp_range_overlaps(map->range, except))
			sp_array_append(&sorted, map);
	}
	sp_array_sort(&sorted, by_trust);
	for (size_t i = 0; i < sorted.count && !code_is_found(foothold); i++)
		search_mapping(pid, ((struct sp_map *)sp_array_at(&sorted, i))->range, foothold,
		               &bare, buffer);
	foothold->complete = foothold->instruction && foothold->sigreturn;
	if (!foothold->instruction)
		foothold->instruction = bare;
	if (!foothold->instruction)
		return sp_fail(err, ENOEXEC,
		               "process %d has no system call instruction in its memory: sealpoint "
		               "cannot ask it for anything",
		               pid);
	return 0;
}

static bool code_is_there(pid_t pid, remote_addr address, const struct sp_code_pattern *pattern)
{
	uint8_t bytes[32];

	return !sp_process_read(pid, address, bytes, pattern->size, NULL) &&
	       !memcmp(bytes, pattern->bytes, pattern->size);
}

static bool sigreturn_is_there(pid_t pid, remote_addr address)
{
	for (size_t i = 0; sp_pattern_sigreturn[i].size; i++)
		if (code_is_there(pid, address, &sp_pattern_sigreturn[i]))
			return true;
	return false;
}

static bool is_executable(const struct sp_array *maps, remote_addr address)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct sp_map *map = sp_array_at(maps, i);

		if (sp_range_contains(map->range, address))
			return map->executable;
	}
	return false;
}

/* Is what was found before, maybe in another process, the same here? */
static bool code_is_same(pid_t pid, const struct sp_array *maps, const struct sp_foothold *foothold)
{
	remote_addr unmap = foothold->unmap;

	if (!foothold->complete)
		return false;
	return is_executable(maps, foothold->instruction) &&
	       is_executable(maps, foothold->sigreturn) &&
	       code_is_there(pid, foothold->instruction, &sp_pattern_syscall_return) &&
	       sigreturn_is_there(pid, foothold->sigreturn) &&
	       (!unmap ||
	        (is_executable(maps, unmap) && code_is_there(pid, unmap, &sp_pattern_unmap)));
}

/* --- the place for the frame --- */

/* The stack mapping of the main thread, and what lies around it. */
struct stack {
	pid_t pid;
	struct sp_range range;
	remote_addr below;  /* end of the mapping below it */
	remote_addr lowest; /* stack pointer of any thread in it; its end if there is none */
	bool zeros_are_free;
};

/* True if the page was never touched, or holds nothing but zeros where that means the same. */
static bool page_is_free(const struct stack *stack, int pagemap, remote_addr page)
{
	static const uint8_t zeros[SP_PAGE_SIZE];
	uint8_t bytes[SP_PAGE_SIZE];
	uint64_t entry;

	if (sp_pread_full(pagemap, &entry, sizeof(entry),
	                  (off_t)(page >> SP_PAGE_SHIFT) * (off_t)sizeof(entry)) !=
	    (ssize_t)sizeof(entry))
		return false;
	if (!(entry & PAGEMAP_SWAPPED_OR_PRESENT))
		return true;
	return stack->zeros_are_free &&
	       !sp_process_read(stack->pid, page, bytes, sizeof(bytes), NULL) &&
	       !memcmp(bytes, zeros, sizeof(bytes));
}

/* True if nothing lives in the slot, or it has our mark: a sealpoint was there before. */
static bool slot_is_free(const struct stack *stack, int pagemap, remote_addr slot, size_t size)
{
	char mark[sizeof(sp_frame_mark)];

	if (!sp_process_read(stack->pid, slot, mark, sizeof(mark), NULL) &&
	    !memcmp(mark, sp_frame_mark, sizeof(mark)))
		return true;
	for (size_t at = 0; at < size; at += SP_PAGE_SIZE)
		if (!page_is_free(stack, pagemap, slot + at))
			return false;
	return true;
}

static bool slots_are_free(const struct stack *stack, size_t slot_size)
{
	sp_cleanup_close int pagemap = sp_proc_open(stack->pid, "pagemap", O_RDONLY, NULL);
	remote_addr bottom = stack->range.start;

	if (pagemap < 0 || stack->lowest < bottom + 2 * slot_size + STACK_DISTANCE)
		return false;
	return slot_is_free(stack, pagemap, bottom, slot_size) &&
	       slot_is_free(stack, pagemap, bottom + slot_size, slot_size);
}

/*
 * Makes room for two slots below the stack and returns where they are, or 0. The kernel measures
 * the stack by the limit of the process that writes.
 */
static remote_addr grow(const struct stack *stack, size_t slot_size)
{
	remote_addr end = stack->range.start, bottom;
	struct rlimit limit = {0}, highest;
	int rc;

	if (stack->lowest < end + STACK_DISTANCE)
		end = sp_page_down(stack->lowest - STACK_DISTANCE);
	bottom = end - 2 * slot_size;
	if (bottom <= stack->below || getrlimit(RLIMIT_STACK, &limit))
		return 0;
	highest = (struct rlimit){limit.rlim_max, limit.rlim_max};
	setrlimit(RLIMIT_STACK, &highest);
	rc = sp_process_write_forced(stack->pid, bottom, sp_frame_mark, sizeof(sp_frame_mark),
	                             NULL);
	setrlimit(RLIMIT_STACK, &limit);
	return rc ? 0 : bottom;
}

static remote_addr lowest_in(const struct sp_process *process, struct sp_range range)
{
	remote_addr lowest = range.end;

	for (size_t i = 0; i < process->threads.count; i++) {
		const struct sp_thread *thread = sp_process_thread(process, i);
		remote_addr pointer = sp_stack_pointer(&thread->raw.general);

		if (sp_range_contains(range, pointer) && pointer < lowest)
			lowest = pointer;
	}
	return lowest;
}

static void find_frame(const struct sp_process *process, const struct sp_array *maps,
                       size_t slot_size, struct sp_foothold *foothold)
{
	remote_addr known = foothold->frame;

	foothold->frame = 0;
	for (size_t i = 0; i < maps->count; i++) {
		const struct sp_map *map = sp_array_at(maps, i);
		remote_addr main_pointer =
		        sp_stack_pointer(&sp_process_leader(process)->raw.general);
		struct stack stack = {
		        .pid = sp_process_living(process),
		        .range = map->range,
		        .lowest = lowest_in(process, map->range),
		        .zeros_are_free = sp_range_contains(map->range, main_pointer),
		};

		if (!map->main_stack)
			continue;
		if (sp_range_contains(map->range, known)) {
			foothold->frame = known;
			return;
		}
		if (i)
			stack.below = ((struct sp_map *)sp_array_at(maps, i - 1))->range.end;
		foothold->main_thread_elsewhere = !stack.zeros_are_free;
		if (map->writable && map->readable)
			foothold->frame = slots_are_free(&stack, slot_size)
			                          ? map->range.start
			                          : grow(&stack, slot_size);
		return;
	}
}

/* --- the interface --- */

int sp_foothold_find(pid_t pid, struct sp_range except, struct sp_foothold *foothold,
                     struct sp_error *err)
{
	sp_cleanup_array struct sp_array maps = SP_ARRAY_OF(struct sp_map);
	int rc = sp_maps_read(pid, &maps, err);

	if (!rc && code_is_same(pid, &maps, foothold))
		return 0;
	*foothold = (struct sp_foothold){0};
	return rc ? rc : find_code(pid, &maps, except, foothold, err);
}

static bool is_under_seccomp(pid_t pid)
{
	sp_cleanup_dir DIR *tasks = NULL;
	struct dirent *entry;
	char path[64];
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && !found && (entry = readdir(tasks)))
		found = atoi(entry->d_name) > 0 && sp_is_under_seccomp(pid, atoi(entry->d_name));
	return found;
}

bool sp_foothold_is_safe(pid_t pid, struct sp_foothold *foothold)
{
	return !sp_foothold_find(pid, (struct sp_range){0}, foothold, NULL) && foothold->complete &&
	       !is_under_seccomp(pid);
}

/*
 * The highest gap that is large enough, with a page to spare on both sides. A program that was
 * started by the dynamic loader may have none between its mappings, but below them all.
 */
static int find_gap(const struct sp_array *maps, struct sp_foothold *foothold, struct sp_error *err)
{
	uint64_t wanted = SP_FOOTHOLD_GAP_SIZE + 2 * SP_PAGE_SIZE;

	for (size_t i = maps->count; i-- > 0;) {
		const struct sp_map *above = sp_array_at(maps, i);
		remote_addr below = i ? ((struct sp_map *)sp_array_at(maps, i - 1))->range.end
		                      : SP_ADDRESS_FIRST;

		if (above->main_stack || above->range.start >> 47)
			continue; /* the stack grows into its gap; above it is the kernel's half */
		if (above->range.start >= below + wanted) {
			foothold->gap = above->range.start - SP_FOOTHOLD_GAP_SIZE - SP_PAGE_SIZE;
			return 0;
		}
	}
	return sp_fail(
	        err, ENOMEM,
	        "its address space has no gap of %llu KiB, which are needed for a moment; let "
	        "the program reserve less of it",
	        SP_FOOTHOLD_GAP_SIZE >> 10);
}

int sp_foothold_confirm(const struct sp_process *process, size_t slot_size,
                        struct sp_foothold *foothold, struct sp_error *err)
{
	sp_cleanup_array struct sp_array maps = SP_ARRAY_OF(struct sp_map);
	pid_t pid = sp_process_living(process);
	int rc = sp_maps_read(pid, &maps, err);

	if (rc)
		return rc;
	if (!code_is_same(pid, &maps, foothold)) {
		*foothold = (struct sp_foothold){0};
		rc = find_code(pid, &maps, (struct sp_range){0}, foothold, err);
		if (rc)
			return rc;
	}
	find_frame(process, &maps, slot_size, foothold);
	foothold->complete = foothold->complete && foothold->frame;
	return find_gap(&maps, foothold, err);
}
