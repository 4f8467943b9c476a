/*
 * Growable arrays: `struct sp_array` owns its memory and holds items of one size.
 *
 *	struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
 *	struct sp_vma *vma = sp_array_push(&vmas);
 *
 * Out of memory ends the program: sealpoint's own memory is small and bounded, and a half-built
 * list has no sensible continuation (a target is left running by the kernel when its tracer ends).
 * What a run has made and must not leave behind, it names by sp_when_out_of_memory().
 * Pointers to items are valid until the next push.
 */
#ifndef SEALPOINT_BASE_ARRAY_H
#define SEALPOINT_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

struct sp_array {
	void *items;
	size_t count;
	size_t capacity;
	size_t item_size;
};

#define SP_ARRAY_OF(type) ((struct sp_array){.item_size = sizeof(type)})
#define sp_cleanup_array __attribute__((cleanup(sp_array_release)))
/* The number of items of a C array. */
#define SP_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/** Appends one zeroed item and returns it. */
void *sp_array_push(struct sp_array *array);
/** Appends a copy of `*item`. */
void *sp_array_append(struct sp_array *array, const void *item);
/** Appends copies of the `count` items at `items`, which may be NULL if there are none. */
void sp_array_append_all(struct sp_array *array, const void *items, size_t count);
/** Appends `count` zeroed items; returns the first. */
void *sp_array_grow(struct sp_array *array, size_t count);
/** The item at `index`, which must be below `array->count`. */
void *sp_array_at(const struct sp_array *array, size_t index);
/** The pointer at `index` of an array of pointers. */
void *sp_array_pointer(const struct sp_array *array, size_t index);
/** Sorts as qsort(3) does; what is in order already costs one look. sp_compare() serves where items have a number to go by. */
void sp_array_sort(struct sp_array *array, int (*compare)(const void *, const void *));
/** The item of a sorted array that `compare` finds equal to `key`, or NULL, as bsearch(3) does. */
void *sp_array_search(const struct sp_array *array, const void *key,
                      int (*compare)(const void *key, const void *item));
/** -1, 0 or 1. */
static inline int sp_compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}
/** Forgets all items, keeps the memory. */
void sp_array_clear(struct sp_array *array);
/** Takes one element out; those behind it move up. */
void sp_array_remove(struct sp_array *array, size_t index);
/** Frees the memory; the array is empty and usable again. */
void sp_array_release(struct sp_array *array);

/** malloc(), calloc() and strdup() that end the program when memory runs out. */
void *sp_alloc(size_t size) __attribute__((malloc, returns_nonnull));
void *sp_alloc_zeroed(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
/**
 * Whole pages, for large copies: the processor copies between addresses with the same offset in their pages at its full
 * speed, and far slower (by half, measured) where the target is a few bytes further on than the source.
 */
void *sp_alloc_pages(size_t size) __attribute__((malloc, returns_nonnull));
/** What another function has allocated, if it has: for those whose NULL means that there is no memory. */
void *sp_allocated(void *memory) __attribute__((returns_nonnull));
char *sp_strdup(const char *text) __attribute__((malloc, returns_nonnull));
char *sp_format(const char *format, ...)
        __attribute__((malloc, returns_nonnull, format(printf, 1, 2)));
/** The bytes in hexadecimal: "0af3...". */
char *sp_format_hex(const uint8_t *bytes, size_t size) __attribute__((malloc, returns_nonnull));

/**
 * What is done before the program ends for want of memory, instead of what was said before; NULL:
 * nothing. It must not need memory. Global because allocations have nobody to tell.
 */
void sp_when_out_of_memory(void (*act)(void *context), void *context);

#endif
