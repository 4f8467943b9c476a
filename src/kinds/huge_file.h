/* Files of huge pages (hugetlbfs): memfd_create(MFD_HUGETLB), mmap(MAP_SHARED | MAP_HUGETLB). */
#ifndef SEALPOINT_KINDS_HUGE_FILE_H
#define SEALPOINT_KINDS_HUGE_FILE_H

#include <stdbool.h>
#include <stdint.h>

/** Log2 of the page size of a file of huge pages, 0 for any other file. */
unsigned sp_huge_page_shift(int fd);
/** True for 0, and for a page size that a processor could have. */
bool sp_huge_page_shift_valid(uint32_t shift);

#endif
