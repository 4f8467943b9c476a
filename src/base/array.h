/*
 * Growable arrays: `struct sp_array` owns its memory and holds items of one size.
 *
 *	struct sp_array vmas = SP_ARRAY_OF(struct sp_vma);
 *	struct sp_vma *vma = sp_array_push(&vmas);
 *
 * Out of memory ends the program: sealpoint's own memory is small and bounded, and a half-built
 * list has no sensible continuation (a target is left running by the kernel when its tracer ends).
 * Pointers to items are valid until the next push.
 */
#ifndef SEALPOINT_BASE_ARRAY_H
#define SEALPOINT_BASE_ARRAY_H

#include <stddef.h>

struct sp_array {
	void *items;
	size_t count;
	size_t capacity;
	size_t item_size;
};

#define SP_ARRAY_OF(type) ((struct sp_array){.item_size = sizeof(type)})
#define sp_cleanup_array __attribute__((cleanup(sp_array_release)))

/** Appends one zeroed item and returns it. */
void *sp_array_push(struct sp_array *array);
/** Appends a copy of `*item`. */
void *sp_array_append(struct sp_array *array, const void *item);
/** Appends `count` zeroed items; returns the first. */
void *sp_array_grow(struct sp_array *array, size_t count);
/** The item at `index`, which must be below `array->count`. */
void *sp_array_at(const struct sp_array *array, size_t index);
/** Forgets all items, keeps the memory. */
void sp_array_clear(struct sp_array *array);
/** Frees the memory; the array is empty and usable again. */
void sp_array_release(struct sp_array *array);

/** malloc(), calloc() and strdup() that end the program when memory runs out. */
void *sp_alloc(size_t size) __attribute__((malloc, returns_nonnull));
void *sp_alloc_zeroed(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
char *sp_strdup(const char *text) __attribute__((malloc, returns_nonnull));
char *sp_format(const char *format, ...)
        __attribute__((malloc, returns_nonnull, format(printf, 1, 2)));

#endif
