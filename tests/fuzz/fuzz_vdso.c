/*
 * Fuzzes the reader of vDSO images: the input is the image that a checkpoint claims its program
 * had, and the other image at once.
 */
#include "base/array.h"
#include "mem/vdso_image.h"

#include "input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	void *copy = memcpy(sp_alloc(size), bytes, size);

	sp_vdso_redirect(copy, size, bytes, size, 0x7f0000000000, NULL);
	free(copy);
	return 0;
}
