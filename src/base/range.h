/*
 * Ranges of addresses or of file offsets, half open, and the arithmetic of pages.
 *
 * An address in a target is a number, never a pointer, so that nobody dereferences one by mistake.
 */
#ifndef SEALPOINT_BASE_RANGE_H
#define SEALPOINT_BASE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t remote_addr;

#define SP_PAGE_SIZE 4096ULL
#define SP_PAGE_SHIFT 12
#define SP_HUGE_PAGE_SIZE (2ULL << 20)
/* Nothing of ours is put below: the kernel forbids the first pages (vm.mmap_min_addr). */
#define SP_ADDRESS_FIRST 0x100000ULL

struct sp_range {
	uint64_t start;
	uint64_t end; /* the first byte behind the range */
};

static inline uint64_t sp_range_size(struct sp_range range)
{
	return range.end - range.start;
}

static inline bool sp_range_contains(struct sp_range range, uint64_t address)
{
	return address >= range.start && address < range.end;
}

static inline bool sp_range_overlaps(struct sp_range a, struct sp_range b)
{
	return a.start < b.end && b.start < a.end;
}

/** The part of a range that lies within another one; empty, at an end of that, if none does. */
static inline struct sp_range sp_range_within(struct sp_range range, struct sp_range within)
{
	struct sp_range part = {
	        range.start < within.start ? within.start : range.start,
	        range.end > within.end ? within.end : range.end,
	};

	if (part.start > within.end)
		part.start = within.end;
	if (part.end < part.start)
		part.end = part.start;
	return part;
}

/** Compares ranges by where they start, for sp_array_sort(). */
static inline int sp_range_compare(const void *left, const void *right)
{
	const struct sp_range *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

/** Finds the item that contains an address, for sp_array_search() among items that begin with a range. */
static inline int sp_range_locate(const void *address, const void *item)
{
	const struct sp_range *range = item;
	uint64_t at = *(const uint64_t *)address;

	return (at >= range->end) - (at < range->start);
}

static inline uint64_t sp_page_down(uint64_t address)
{
	return address & ~(SP_PAGE_SIZE - 1);
}

static inline uint64_t sp_page_up(uint64_t address)
{
	return sp_page_down(address + SP_PAGE_SIZE - 1);
}

#endif
