/* What the sealed subjects share: sealing, and trying everything that mseal(2) forbids. */
#ifndef SEALPOINT_TESTS_SEALED_H
#define SEALPOINT_TESTS_SEALED_H

#include "mapping.h"

#include <sys/syscall.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

struct area {
	const char *name;
	uint8_t *start;
	size_t size;
	int prot;
};

static inline void seal(const struct area *area)
{
	if (syscall(SYS_mseal, area->start, area->size, 0) == 0)
		return;
	if (errno == ENOSYS)
		subject_skip("this kernel has no mseal (since Linux 6.10)");
	subject_need(false, "mseal: %s", area->name);
}

/*
 * A call that succeeds here may take away the ground under the subject: reported by its fall, too.
 */
#define expect_refusal(area, call, text)                                                 \
	do {                                                                             \
		errno = 0;                                                               \
		bool refused_ = (intptr_t)(call) == -1 && errno == EPERM;                \
		subject_check(refused_, "%s: %s is not refused: %s", (area)->name, text, \
		              strerror(errno));                                          \
	} while (0)

/** Tries each operation that a seal blocks, on the first page of the area and on all of it. */
static inline void check_sealed(const struct area *area)
{
	uint8_t *start = area->start;
	size_t size = area->size;
	int other = area->prot == PROT_READ ? PROT_NONE : PROT_READ;
	char flags[128];

	mapping_smaps(start, "VmFlags:", flags, sizeof(flags));
	if (!subject_check(strstr(flags, " sl") != NULL, "%s: not sealed:%s", area->name, flags))
		return; /* what follows would do harm */
	expect_refusal(area, mprotect(start, PAGE, other), "mprotect");
	expect_refusal(area, mprotect(start, size, other), "mprotect of all");
	expect_refusal(area, syscall(SYS_pkey_mprotect, start, PAGE, other, -1), "pkey_mprotect");
	expect_refusal(area, munmap(start, PAGE), "munmap");
	expect_refusal(area, munmap(start, size), "munmap of all");
	if (size > PAGE)
		expect_refusal(area, syscall(SYS_mremap, start, size, size - PAGE, 0), "shrinking");
	expect_refusal(area, syscall(SYS_mremap, start, size, size * 2, MREMAP_MAYMOVE), "moving");
	expect_refusal(area,
	               syscall(SYS_mmap, start, PAGE, PROT_READ | PROT_WRITE,
	                       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	               "mmap over it");
}

/** Discarding is blocked where the memory is anonymous and cannot be written. */
static inline void check_not_discardable(const struct area *area)
{
	expect_refusal(area, madvise(area->start, PAGE, MADV_DONTNEED), "MADV_DONTNEED");
}

#endif
