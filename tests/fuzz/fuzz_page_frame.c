/* Fuzzes the decoding of a frame: encoding, number of pages, then the bytes as they are stored. */
#include "base/error.h"
#include "image/page_frame.h"

#include "input.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct sp_frame_decoder decoder;
	struct sp_frame frame = {0};
	struct sp_error err = {0};
	const uint8_t *pages;
	uint8_t *stored;
	uint64_t sum = 0;

	if (size < 2)
		return 0;
	frame.encoding = bytes[0];
	frame.pages = bytes[1];
	frame.size = (uint32_t)size - 2;
	frame.checksum = XXH3_64bits(bytes + 2, frame.size);
	if (sp_frame_check(&frame, size - 2, &err) < 0)
		return 0;
	stored = malloc(frame.size); /* exactly: reading beyond is seen */
	if (!stored)
		abort();
	memcpy(stored, bytes + 2, frame.size);
	sp_frame_decoder_init(&decoder);
	if (sp_frame_decode(&decoder, &frame, stored, &pages, &err) == 0) {
		for (size_t i = 0; i < frame.pages * SP_PAGE_SIZE; i++)
			sum += pages[i];
	}
	sp_frame_decoder_release(&decoder);
	free(stored);
	return sum == UINT64_MAX; /* the sum is used */
}
