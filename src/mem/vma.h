/* What a mapping is: the list of a process's VMAs as /proc/PID/smaps tells it, classified. */
#ifndef SEALPOINT_MEM_VMA_H
#define SEALPOINT_MEM_VMA_H

#include "base/array.h"
#include "base/range.h"

#include <stdbool.h>
#include <sys/types.h>

struct sp_error;

enum sp_vma_kind {
	SP_VMA_ANONYMOUS = 1,    /* private; heap and ordinary anonymous memory */
	SP_VMA_STACK = 2,        /* private anonymous, grows down */
	SP_VMA_SHARED_ANON = 3,  /* MAP_SHARED | MAP_ANONYMOUS: a file without a name */
	SP_VMA_FILE_PRIVATE = 4, /* a regular file or a memfd, MAP_PRIVATE */
	SP_VMA_FILE_SHARED = 5,  /* the same, MAP_SHARED */
	SP_VMA_HUGETLB = 6,      /* anonymous private hugetlb */
	SP_VMA_VDSO = 7,
	SP_VMA_VVAR = 8,     /* [vvar] and [vvar_vclock] */
	SP_VMA_VSYSCALL = 9, /* the kernel's; never saved as contents */
	SP_VMA_DEVICE = 10,  /* a device, or another thing that only the kernel can make */
	SP_VMA_KINDS
};

/** What VmFlags in smaps(5) and the mapping type tell, as far as a restore needs it. */
enum sp_vma_flag {
	SP_VMA_SHARED = 1 << 0,
	SP_VMA_GROWS_DOWN = 1 << 1,    /* gd */
	SP_VMA_LOCKED = 1 << 2,        /* lo */
	SP_VMA_LOCK_ON_FAULT = 1 << 3, /* lf */
	SP_VMA_SEQUENTIAL = 1 << 4,    /* sr */
	SP_VMA_RANDOM = 1 << 5,        /* rr */
	SP_VMA_DONT_FORK = 1 << 6,     /* dc */
	SP_VMA_DONT_DUMP = 1 << 7,     /* dd */
	SP_VMA_WIPE_ON_FORK = 1 << 8,  /* wf */
	SP_VMA_HUGE = 1 << 9,          /* hg */
	SP_VMA_NO_HUGE = 1 << 10,      /* nh */
	SP_VMA_MERGEABLE = 1 << 11,    /* mg */
	SP_VMA_NO_RESERVE = 1 << 12,   /* nr */
	SP_VMA_SEALED = 1 << 13,       /* sl */
	SP_VMA_SYNC = 1 << 14,         /* sf */
	SP_VMA_UFFD = 1 << 15,         /* um, uw or ui: a userfaultfd of the program's own */
	SP_VMA_IO = 1 << 16,           /* io or pf: device memory */
	SP_VMA_DELETED = 1 << 17,      /* its file has no name any more */
	SP_VMA_MAY_WRITE = 1 << 18, /* mw: may become writable; a shared file is open for writing */
	SP_VMA_DROPPABLE = 1 << 19, /* dp: MAP_DROPPABLE, the kernel may zero it under pressure */
	SP_VMA_SHADOW_STACK = 1 << 20, /* ss: a user shadow stack */
	SP_VMA_ALL_FLAGS = (1 << 21) - 1,
};

struct sp_vma {
	struct sp_range range; /* first: VMAs are searched by address */
	enum sp_vma_kind kind;
	int prot;        /* PROT_* */
	uint32_t flags;  /* enum sp_vma_flag */
	uint64_t offset; /* in the file, bytes */
	uint64_t dev_major, dev_minor, inode;
	unsigned page_shift;  /* KernelPageSize: 12; 21 or 30 for hugetlb */
	int protection_key;   /* 0: the default */
	char *path;           /* as shown, "" if none; owned by the list */
	char *name;           /* name of an anonymous mapping, or NULL; owned */
	uint32_t file;        /* OpenFile.id; set by the engine when the file has been saved */
	struct sp_array huge; /* struct sp_range: transparent huge pages; set by sp_memory_save() */
};

/**
 * Reads /proc/PID/smaps. `vmas` holds struct sp_vma, ascending; release with sp_vma_list_release().
 */
int sp_vma_list_read(pid_t pid, struct sp_array *vmas, struct sp_error *err);
/**
 * The same from the text of such a file, which it cuts into lines. Devices are told by their flags
 * alone.
 */
int sp_vma_list_parse(char *text, struct sp_array *vmas, struct sp_error *err);
void sp_vma_list_release(struct sp_array *vmas);
/** The VMA that contains `address`, or NULL. */
struct sp_vma *sp_vma_find(const struct sp_array *vmas, uint64_t address);
/** True if the mapping's file must be saved as an OpenFile (everything that maps a file). */
bool sp_vma_needs_file(const struct sp_vma *vma);
const char *sp_vma_kind_name(enum sp_vma_kind kind);
/** "rw-p" and the like. */
void sp_vma_describe_prot(int prot, uint32_t flags, char text[5]);

#endif
