/* Growable arrays and allocation that does not fail: see array.h. */
#include "base/array.h"

#include "base/range.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	void (*act)(void *context);
	void *context;
} last;

void sp_when_out_of_memory(void (*act)(void *context), void *context)
{
	last.act = act;
	last.context = context;
}

void *sp_allocated(void *memory)
{
	if (memory)
		return memory;
	fputs("sealpoint: out of memory\n", stderr);
	if (last.act)
		last.act(last.context);
	exit(1);
}

void *sp_alloc(size_t size)
{
	return sp_allocated(malloc(size ? size : 1));
}

void *sp_alloc_pages(size_t size)
{
	return sp_allocated(aligned_alloc(SP_PAGE_SIZE, sp_page_up(size ? size : 1)));
}

void *sp_alloc_zeroed(size_t count, size_t size)
{
	return sp_allocated(calloc(count ? count : 1, size ? size : 1));
}

char *sp_strdup(const char *text)
{
	return sp_allocated(strdup(text));
}

char *sp_format(const char *format, ...)
{
	char *text = NULL;
	va_list args;
	int length;

	va_start(args, format);
	length = vasprintf(&text, format, args);
	va_end(args);
	return sp_allocated(length < 0 ? NULL : text);
}

char *sp_format_hex(const uint8_t *bytes, size_t size)
{
	char *text = sp_alloc_zeroed(2 * size + 1, 1);

	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return text;
}

void *sp_array_grow(struct sp_array *array, size_t count)
{
	size_t needed = array->count + count;
	void *first;

	if (!count)
		return array->items;
	if (needed > array->capacity) {
		array->capacity = needed < 16 ? 16 : needed * 2;
		array->items =
		        sp_allocated(reallocarray(array->items, array->capacity, array->item_size));
	}
	first = (char *)array->items + array->count * array->item_size;
	array->count = needed;
	return memset(first, 0, count * array->item_size);
}

void *sp_array_push(struct sp_array *array)
{
	return sp_array_grow(array, 1);
}

void *sp_array_append(struct sp_array *array, const void *item)
{
	return memcpy(sp_array_push(array), item, array->item_size);
}

void sp_array_append_all(struct sp_array *array, const void *items, size_t count)
{
	if (count)
		memcpy(sp_array_grow(array, count), items, count * array->item_size);
}

void *sp_array_at(const struct sp_array *array, size_t index)
{
	return (char *)array->items + index * array->item_size;
}

void *sp_array_pointer(const struct sp_array *array, size_t index)
{
	return *(void **)sp_array_at(array, index);
}

void sp_array_sort(struct sp_array *array, int (*compare)(const void *, const void *))
{
	size_t i = 1;

	while (i < array->count && compare(sp_array_at(array, i - 1), sp_array_at(array, i)) <= 0)
		i++;
	if (i < array->count)
		qsort(array->items, array->count, array->item_size, compare);
}

void *sp_array_search(const struct sp_array *array, const void *key,
                      int (*compare)(const void *key, const void *item))
{
	if (!array->count)
		return NULL;
	return bsearch(key, array->items, array->count, array->item_size, compare);
}

void sp_array_remove(struct sp_array *array, size_t index)
{
	char *at = sp_array_at(array, index);

	array->count--;
	memmove(at, at + array->item_size, (array->count - index) * array->item_size);
}

void sp_array_clear(struct sp_array *array)
{
	array->count = 0;
}

void sp_array_release(struct sp_array *array)
{
	free(array->items);
	array->items = NULL;
	array->count = array->capacity = 0;
}
