/*
 * A vDSO as bytes: its functions by name, and a copy of it whose functions lead to those of
 * another.
 *
 * The bytes may come from a checkpoint, so every offset in them is checked.
 */
#ifndef SEALPOINT_MEM_VDSO_IMAGE_H
#define SEALPOINT_MEM_VDSO_IMAGE_H

#include "base/array.h"
#include "base/range.h"

#include <stddef.h>

struct sp_error;

struct sp_vdso_function {
	const char *name; /* into the image */
	uint64_t offset;  /* of its code in the image */
	uint64_t size;
};

/** Lists the functions that an image exports. `functions` holds struct sp_vdso_function. */
int sp_vdso_functions(const void *image, size_t size, struct sp_array *functions,
                      struct sp_error *err);

/**
 * Changes `image` so that each of its functions continues in the function of the same name in
 * `other`, which is mapped at `other_at`. A function that the other has not returns -ENOSYS: the C
 * library makes the system call itself then.
 */
int sp_vdso_redirect(void *image, size_t size, const void *other, size_t other_size,
                     remote_addr other_at, struct sp_error *err);

#endif
