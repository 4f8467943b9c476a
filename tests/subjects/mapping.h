/*
 * What the memory subjects share: contents that can be recognised, and what /proc/self says about
 * the mapping or the page at an address.
 */
#ifndef SEALPOINT_TESTS_MAPPING_H
#define SEALPOINT_TESTS_MAPPING_H

#include "subject.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define PAGE 4096UL

/** Writes contents that differ from page to page and from seed to seed. */
static inline void mapping_fill(void *start, size_t size, uint64_t seed)
{
	uint64_t *words = start;

	for (size_t i = 0; i < size / sizeof(*words); i++)
		words[i] = (seed + i) * 0x9e3779b97f4a7c15ULL;
}

/** The first byte that is not as mapping_fill() left it, or `size`. */
static inline size_t mapping_difference(const void *start, size_t size, uint64_t seed)
{
	const uint64_t *words = start;

	for (size_t i = 0; i < size / sizeof(*words); i++)
		if (words[i] != (seed + i) * 0x9e3779b97f4a7c15ULL)
			return i * sizeof(*words);
	return size;
}

static inline void mapping_check(const void *start, size_t size, uint64_t seed, const char *what)
{
	size_t at = mapping_difference(start, size, seed);

	subject_check(at == size, "%s: the contents differ at byte %zu of %zu", what, at, size);
}

static inline bool mapping_is_zero(const void *start, size_t size)
{
	const uint8_t *bytes = start;

	for (size_t i = 0; i < size; i++)
		if (bytes[i])
			return false;
	return true;
}

/** New anonymous memory, or the subject ends. */
static inline uint8_t *mapping_new(size_t size, int prot, int flags)
{
	void *start = mmap(NULL, size, prot, flags | MAP_ANONYMOUS, -1, 0);

	subject_need(start != MAP_FAILED, "mmap");
	return start;
}

/** True if the kernel would let the program read at the address: asks it, instead of trying. */
static inline bool mapping_readable(const void *address)
{
	char byte;
	struct iovec to = {&byte, 1}, from = {(void *)address, 1};

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/**
 * Copies a line of /proc/self/smaps for the mapping at `address`, "VmFlags:" for example; or "".
 */
static inline void mapping_smaps(const void *address, const char *field, char *value, size_t size)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	unsigned long start, end;
	bool inside = false;
	char line[512];

	subject_need(smaps != NULL, "/proc/self/smaps");
	value[0] = '\0';
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start <= (uintptr_t)address && (uintptr_t)address < end;
		else if (inside && strncmp(line, field, strlen(field)) == 0)
			strncat(value, line + strlen(field), size - 1);
	}
	fclose(smaps);
}

/** A number of kilobytes from smaps. */
static inline long mapping_smaps_kb(const void *address, const char *field)
{
	char value[128];

	mapping_smaps(address, field, value, sizeof(value));
	return atol(value);
}

/** True if the page has contents of its own, in memory or swapped out. */
static inline bool mapping_populated(const void *address)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	off_t offset = (off_t)((uintptr_t)address / PAGE * sizeof(uint64_t));
	uint64_t entry = 0;

	subject_need(fd >= 0, "/proc/self/pagemap");
	subject_need(pread(fd, &entry, sizeof(entry), offset) == sizeof(entry), "pagemap");
	close(fd);
	return (entry >> 62) != 0;
}

#endif
