/*
 * The numbers by which an image tells what a mapping is (proto/memory.proto): its kind, and what is
 * special about it. mem/vma.h finds them out about a process.
 */
#ifndef SEALPOINT_IMAGE_VMA_NUMBERS_H
#define SEALPOINT_IMAGE_VMA_NUMBERS_H

#include <stdbool.h>

enum sp_vma_kind {
	SP_VMA_ANONYMOUS = 1,    /* private; heap and ordinary anonymous memory */
	SP_VMA_STACK = 2,        /* private anonymous, grows down */
	SP_VMA_SHARED_ANON = 3,  /* MAP_SHARED | MAP_ANONYMOUS: a file without a name */
	SP_VMA_FILE_PRIVATE = 4, /* a regular file or a memfd, MAP_PRIVATE */
	SP_VMA_FILE_SHARED = 5,  /* the same, MAP_SHARED */
	SP_VMA_HUGETLB = 6,      /* anonymous private hugetlb */
	SP_VMA_VDSO = 7,
	SP_VMA_VVAR = 8,      /* [vvar] and [vvar_vclock] */
	SP_VMA_VSYSCALL = 9,  /* the kernel's; never saved as contents */
	SP_VMA_DEVICE = 10,   /* a device, or another thing that only the kernel can make */
	SP_VMA_SYSTEM_V = 11, /* an attached segment of System V shared memory */
	SP_VMA_ASYNC_IO = 12, /* the ring of an asynchronous I/O context: kinds/async_io.c */
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

/** Seen by every process that maps the same thing: its contents are stored with the file. */
static inline bool sp_vma_kind_is_shared(enum sp_vma_kind kind)
{
	return kind == SP_VMA_FILE_SHARED || kind == SP_VMA_SHARED_ANON || kind == SP_VMA_SYSTEM_V;
}

/** Maps a file, or shared anonymous memory, which is one: it has an OpenFile record. */
static inline bool sp_vma_kind_maps_file(enum sp_vma_kind kind)
{
	return kind == SP_VMA_FILE_PRIVATE || sp_vma_kind_is_shared(kind);
}

#endif
