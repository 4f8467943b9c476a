/*
 * The list of a process's VMAs, from the text of /proc/PID/smaps (proc_pid_smaps(5)).
 *
 * Each VMA is a header line, as in /proc/PID/maps, and attribute lines that begin with a capital
 * letter, of which three matter: KernelPageSize, ProtectionKey and VmFlags. What a mapping is
 * follows from its name and its flags; only for files under /dev is the file itself asked.
 */
#include "mem/vma.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"
#include "proc/maps.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const struct {
	char name[3];
	uint32_t flag;
} vm_flags[] = {
        {"sh", SP_VMA_SHARED},
        {"mw", SP_VMA_MAY_WRITE},
        {"gd", SP_VMA_GROWS_DOWN},
        {"lo", SP_VMA_LOCKED},
        {"lf", SP_VMA_LOCK_ON_FAULT},
        {"sr", SP_VMA_SEQUENTIAL},
        {"rr", SP_VMA_RANDOM},
        {"dc", SP_VMA_DONT_FORK},
        {"dd", SP_VMA_DONT_DUMP},
        {"wf", SP_VMA_WIPE_ON_FORK},
        {"hg", SP_VMA_HUGE},
        {"nh", SP_VMA_NO_HUGE},
        {"mg", SP_VMA_MERGEABLE},
        {"nr", SP_VMA_NO_RESERVE},
        {"sl", SP_VMA_SEALED},
        {"sf", SP_VMA_SYNC},
        {"um", SP_VMA_UFFD},
        {"uw", SP_VMA_UFFD},
        {"ui", SP_VMA_UFFD},
        {"io", SP_VMA_IO},
        {"pf", SP_VMA_IO},
        {"dp", SP_VMA_DROPPABLE},
        {"ss", SP_VMA_SHADOW_STACK},
};

static bool starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *text, const char *suffix)
{
	size_t length = strlen(text), suffix_length = strlen(suffix);

	return length >= suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

static int parse_header(const char *line, struct sp_vma *vma)
{
	struct sp_map map;
	const char *path;

	if (!sp_map_parse(line, &map, &path))
		return -EINVAL;
	vma->range = map.range;
	vma->prot = (map.readable ? PROT_READ : 0) | (map.writable ? PROT_WRITE : 0) |
	            (map.executable ? PROT_EXEC : 0);
	vma->flags = map.shared ? SP_VMA_SHARED : 0;
	vma->offset = map.offset;
	vma->dev_major = map.dev_major;
	vma->dev_minor = map.dev_minor;
	vma->inode = map.inode;
	vma->page_shift = SP_PAGE_SHIFT;
	vma->path = sp_strdup(path);
	vma->huge = SP_ARRAY_OF(struct sp_range);
	vma->inherited = SP_ARRAY_OF(struct sp_range);
	return 0;
}

static void parse_vm_flags(char *text, struct sp_vma *vma)
{
	char *rest = NULL;

	for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		for (size_t i = 0; i < SP_COUNT_OF(vm_flags); i++) {
			if (strcmp(word, vm_flags[i].name) == 0)
				vma->flags |= vm_flags[i].flag;
		}
	}
}

/* The value of an attribute, or NULL if this is another one. */
static char *attribute(char *line, const char *name)
{
	return starts_with(line, name) ? line + strlen(name) : NULL;
}

static void parse_attribute(char *line, struct sp_vma *vma)
{
	char *value;

	if ((value = attribute(line, "VmFlags:"))) {
		parse_vm_flags(value, vma);
	} else if ((value = attribute(line, "KernelPageSize:"))) {
		uint64_t kilobytes = strtoull(value, NULL, 10);

		if (kilobytes > 0)
			vma->page_shift = (unsigned)__builtin_ctzll(kilobytes) + 10;
	} else if ((value = attribute(line, "ProtectionKey:"))) {
		vma->protection_key = atoi(value);
	}
}

/* The text between "[anon:" or "[anon_shmem:" and the last bracket. */
static char *anonymous_name(const char *path)
{
	const char *name = strchr(path, ':') + 1;
	size_t length = strlen(name);

	return sp_format("%.*s", (int)(length > 0 ? length - 1 : 0), name);
}

static enum sp_vma_kind classify_special(const char *path, uint32_t flags)
{
	if (strcmp(path, "[vdso]") == 0)
		return SP_VMA_VDSO;
	if (starts_with(path, "[vvar"))
		return SP_VMA_VVAR;
	if (strcmp(path, "[vsyscall]") == 0)
		return SP_VMA_VSYSCALL;
	if (starts_with(path, "[anon_shmem:"))
		return SP_VMA_SHARED_ANON;
	if (path[0] == '\0' || strcmp(path, "[heap]") == 0 || starts_with(path, "[stack") ||
	    starts_with(path, "[anon:"))
		return flags & SP_VMA_GROWS_DOWN ? SP_VMA_STACK : SP_VMA_ANONYMOUS;
	return SP_VMA_DEVICE;
}

static enum sp_vma_kind classify(const struct sp_vma *vma)
{
	const char *path = vma->path;
	bool shared = vma->flags & SP_VMA_SHARED;

	if (path[0] == '\0' || path[0] == '[')
		return classify_special(path, vma->flags);
	if (vma->dev_major == 0 && starts_with(path, "/[aio]"))
		return SP_VMA_ASYNC_IO;
	if (path[0] != '/' || (vma->flags & SP_VMA_IO) || starts_with(path, "/secretmem"))
		return SP_VMA_DEVICE;
	/*
	 * Files that the kernel made for a mapping without one live on a file system without a
	 * device.
	 */
	if (vma->dev_major == 0 && strcmp(path, "/anon_hugepage (deleted)") == 0)
		return shared ? SP_VMA_SHARED_ANON : SP_VMA_HUGETLB;
	if (vma->dev_major == 0 && shared && strcmp(path, "/dev/zero (deleted)") == 0)
		return SP_VMA_SHARED_ANON;
	if (vma->dev_major == 0 && starts_with(path, "/SYSV") && ends_with(path, " (deleted)"))
		return SP_VMA_SYSTEM_V;
	return shared ? SP_VMA_FILE_SHARED : SP_VMA_FILE_PRIVATE;
}

/* All lines of the VMA have been read. */
static void complete(struct sp_vma *vma)
{
	if (ends_with(vma->path, " (deleted)"))
		vma->flags |= SP_VMA_DELETED;
	if (starts_with(vma->path, "[anon:") || starts_with(vma->path, "[anon_shmem:"))
		vma->name = anonymous_name(vma->path);
	vma->kind = classify(vma);
}

/*
 * A mapping that has grown downward, or was merged, between two pieces of the list is shown with
 * what was shown before it as well: only the rest of it is new.
 */
static bool leave_out_overlap(const struct sp_array *vmas, struct sp_vma *vma)
{
	const struct sp_vma *before = vmas->count > 1 ? vma - 1 : NULL;

	if (!before || before->range.end <= vma->range.start)
		return true;
	vma->offset += before->range.end - vma->range.start;
	vma->range.start = before->range.end;
	return vma->range.start < vma->range.end;
}

int sp_vma_list_parse(char *text, struct sp_array *vmas, struct sp_error *err)
{
	struct sp_vma *vma = NULL;
	char *rest = NULL;

	*vmas = SP_ARRAY_OF(struct sp_vma);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (line[0] >= 'A' && line[0] <= 'Z') {
			if (vma)
				parse_attribute(line, vma);
			continue;
		}
		if (vma)
			complete(vma);
		vma = sp_array_push(vmas);
		if (parse_header(line, vma) < 0 || !leave_out_overlap(vmas, vma)) {
			sp_vma_list_release(vmas);
			return sp_fail(err, EINVAL, "unexpected line in smaps: \"%.80s\"", line);
		}
	}
	if (vma)
		complete(vma);
	return 0;
}

/*
 * Files under /dev: most are ordinary ones (/dev/shm, /dev/hugepages), the others are devices. A
 * private mapping of /dev/zero is what anonymous memory was before MAP_ANONYMOUS.
 */
static void recognise_device(pid_t pid, struct sp_vma *vma)
{
	char path[96];
	struct stat stat;

	if ((vma->kind != SP_VMA_FILE_PRIVATE && vma->kind != SP_VMA_FILE_SHARED) ||
	    !starts_with(vma->path, "/dev/"))
		return;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid,
	         vma->range.start, vma->range.end);
	if (fstatat(AT_FDCWD, path, &stat, 0) < 0 || S_ISREG(stat.st_mode))
		return;
	vma->kind = strcmp(vma->path, "/dev/zero") == 0 ? SP_VMA_ANONYMOUS : SP_VMA_DEVICE;
}

int sp_vma_list_read(pid_t pid, struct sp_array *vmas, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int rc = sp_proc_read(pid, "smaps", &text, NULL, err);

	*vmas = SP_ARRAY_OF(struct sp_vma);
	if (rc < 0)
		return rc;
	rc = sp_vma_list_parse(text, vmas, err);
	if (rc < 0)
		return sp_error_context(err, "cannot list the mappings of process %d", pid);
	for (size_t i = 0; i < vmas->count; i++)
		recognise_device(pid, sp_array_at(vmas, i));
	return 0;
}

bool sp_vma_is_same(const struct sp_vma *a, const struct sp_vma *b)
{
	return a->range.start == b->range.start && a->range.end == b->range.end &&
	       a->prot == b->prot && !((a->flags ^ b->flags) & SP_VMA_SHARED) &&
	       a->offset == b->offset && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor && a->inode == b->inode && !strcmp(a->path, b->path);
}

bool sp_vma_list_agrees(const struct sp_array *vmas, const char *maps)
{
	sp_cleanup(sp_vma_list_release) struct sp_array named = {0};
	sp_cleanup_free char *text = sp_strdup(maps);

	if (sp_vma_list_parse(text, &named, NULL) < 0 || named.count != vmas->count)
		return false;
	for (size_t i = 0; i < named.count; i++)
		if (!sp_vma_is_same(sp_array_at(&named, i), sp_array_at(vmas, i)))
			return false;
	return true;
}

void sp_vma_list_release(struct sp_array *vmas)
{
	for (size_t i = 0; i < vmas->count; i++) {
		struct sp_vma *vma = sp_array_at(vmas, i);

		free(vma->path);
		free(vma->name);
		sp_array_release(&vma->huge);
		sp_array_release(&vma->inherited);
	}
	sp_array_release(vmas);
}

struct sp_vma *sp_vma_find(const struct sp_array *vmas, uint64_t address)
{
	return sp_array_search(vmas, &address, sp_range_locate);
}

const char *sp_vma_kind_name(enum sp_vma_kind kind)
{
	static const char *const names[SP_VMA_KINDS] = {
	        [SP_VMA_ANONYMOUS] = "anonymous",
	        [SP_VMA_STACK] = "stack",
	        [SP_VMA_SHARED_ANON] = "shared anonymous",
	        [SP_VMA_FILE_PRIVATE] = "private file",
	        [SP_VMA_FILE_SHARED] = "shared file",
	        [SP_VMA_HUGETLB] = "hugetlb",
	        [SP_VMA_VDSO] = "vDSO",
	        [SP_VMA_VVAR] = "vvar",
	        [SP_VMA_VSYSCALL] = "vsyscall",
	        [SP_VMA_DEVICE] = "device",
	        [SP_VMA_SYSTEM_V] = "System V",
	        [SP_VMA_ASYNC_IO] = "asynchronous I/O",
	};

	return (unsigned)kind < SP_VMA_KINDS && names[kind] ? names[kind] : "unknown";
}

void sp_vma_describe_prot(int prot, uint32_t flags, char text[5])
{
	text[0] = prot & PROT_READ ? 'r' : '-';
	text[1] = prot & PROT_WRITE ? 'w' : '-';
	text[2] = prot & PROT_EXEC ? 'x' : '-';
	text[3] = flags & SP_VMA_SHARED ? 's' : 'p';
	text[4] = '\0';
}
