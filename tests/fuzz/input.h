/*
 * How fuzz targets cut their input: into items of a type byte, two bytes of length, and so many
 * bytes. The last one may be shorter. The seed program writes with fuzz_put() what targets read
 * here.
 */
#ifndef SEALPOINT_FUZZ_INPUT_H
#define SEALPOINT_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct fuzz_input {
	const uint8_t *bytes;
	size_t left;
};

struct fuzz_item {
	uint8_t type;
	const uint8_t *bytes;
	size_t size;
};

static inline bool fuzz_next(struct fuzz_input *input, struct fuzz_item *item)
{
	size_t size;

	if (input->left < 3)
		return false;
	size = (size_t)(input->bytes[1] | input->bytes[2] << 8);
	if (size > input->left - 3)
		size = input->left - 3;
	*item = (struct fuzz_item){input->bytes[0], input->bytes + 3, size};
	input->bytes += 3 + size;
	input->left -= 3 + size;
	return true;
}

static inline void fuzz_put(FILE *file, uint8_t type, const void *bytes, size_t size)
{
	const uint8_t head[] = {type, (uint8_t)size, (uint8_t)(size >> 8)};

	fwrite(head, 1, sizeof(head), file);
	fwrite(bytes, 1, size, file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif
