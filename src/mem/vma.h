/* What a mapping is: the list of a process's VMAs as /proc/PID/smaps tells it, classified. */
#ifndef SEALPOINT_MEM_VMA_H
#define SEALPOINT_MEM_VMA_H

#include "base/array.h"
#include "base/range.h"
#include "image/vma_numbers.h"

#include <sys/types.h>

struct sp_error;

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
	struct sp_array inherited; /* struct sp_range; set by sp_memory_find_inherited() */
};

/**
 * Reads /proc/PID/smaps. `vmas` holds struct sp_vma, ascending; release with sp_vma_list_release().
 * The kernel shows the list in pieces: of a process that runs it may be one that never was, where
 * this mapping is as it was before, and that one as it is now, or missing.
 */
int sp_vma_list_read(pid_t pid, struct sp_array *vmas, struct sp_error *err);
/**
 * The same from the text of such a file, which it cuts into lines. Devices are told by their flags
 * alone.
 */
int sp_vma_list_parse(char *text, struct sp_array *vmas, struct sp_error *err);
/** The same mapping, as far as /proc/PID/maps tells: neither its advice nor its kind. */
bool sp_vma_is_same(const struct sp_vma *a, const struct sp_vma *b);
/** Whether a list names the mappings that the text of /proc/PID/maps names, and no others. */
bool sp_vma_list_agrees(const struct sp_array *vmas, const char *maps);
void sp_vma_list_release(struct sp_array *vmas);
/** The VMA that contains `address`, or NULL. */
struct sp_vma *sp_vma_find(const struct sp_array *vmas, uint64_t address);
const char *sp_vma_kind_name(enum sp_vma_kind kind);
/** "rw-p" and the like. */
void sp_vma_describe_prot(int prot, uint32_t flags, char text[5]);

#endif
