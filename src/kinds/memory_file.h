/*
 * Files that are memory: those of huge pages (hugetlbfs: memfd_create(MFD_HUGETLB), mmap(MAP_SHARED |
 * MAP_HUGETLB)), and those that are only known by a mapping of ours.
 */
#ifndef SEALPOINT_KINDS_MEMORY_FILE_H
#define SEALPOINT_KINDS_MEMORY_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct sp_error;

/** Log2 of the page size of a file of huge pages, 0 for any other file. */
unsigned sp_huge_page_shift(int fd);
/** True for 0, and for a page size that a processor could have. */
bool sp_huge_page_shift_valid(uint32_t shift);
/** A descriptor, for reading and writing, of the file behind memory that we have mapped as a whole. */
int sp_open_mapped(const void *memory, uint64_t size, struct sp_error *err);

#endif
