/*
 * Sets of addresses: arrays of struct sp_range (SP_ARRAY_OF(struct sp_range)), ascending, of which
 * no two touch or overlap. Built by appending in any order, then sp_ranges_normalize() once.
 */
#ifndef SEALPOINT_BASE_RANGE_SET_H
#define SEALPOINT_BASE_RANGE_SET_H

#include "base/array.h"
#include "base/range.h"

/** Appends a range; the array is a set again only after sp_ranges_normalize(). */
void sp_ranges_add(struct sp_array *ranges, struct sp_range range);
/** Appends the ranges of another array. */
void sp_ranges_add_all(struct sp_array *ranges, const struct sp_array *others);
/** Sorts, joins what touches or overlaps, drops what is empty. */
void sp_ranges_normalize(struct sp_array *ranges);
/** Takes the addresses of one set out of another. */
void sp_ranges_subtract(struct sp_array *ranges, const struct sp_array *what);
/** Index of the first range of a set that ends behind `address`; its count if there is none. */
size_t sp_ranges_search(const struct sp_array *ranges, uint64_t address);
/** True if one of the ranges, which need be no set, begins where this one does. */
bool sp_ranges_have(const struct sp_array *ranges, struct sp_range range);
/** How many addresses are in a set. */
uint64_t sp_ranges_total(const struct sp_array *ranges);
/** How many of them are in one range. */
uint64_t sp_ranges_total_within(const struct sp_array *ranges, struct sp_range within);

#endif
