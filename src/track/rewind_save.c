/* Save-states: see rewind_save.h. */
#include "track/rewind_save.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define MAGIC "SPREWIND"
#define VERSION 1

struct header {
	char magic[8];
	uint64_t version;
	uint64_t memory_size;
	uint64_t state_size;
	uint64_t compressed_size;
};

static int write_all(int fd, const void *data, size_t size)
{
	while (size) {
		ssize_t written = write(fd, data, size);

		if (written < 0 && errno != EINTR)
			return -errno;
		if (written > 0) {
			data = (const char *)data + written;
			size -= (size_t)written;
		}
	}
	return 0;
}

static int read_all(int fd, void *data, size_t size)
{
	while (size) {
		ssize_t got = read(fd, data, size);

		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			return -EBADMSG;
		if (got > 0) {
			data = (char *)data + got;
			size -= (size_t)got;
		}
	}
	return 0;
}

int sp_state_save(int fd, const char *contents, size_t memory_size, size_t state_size)
{
	struct header header = {MAGIC, VERSION, memory_size, state_size, 0};
	size_t size = memory_size + state_size, capacity = ZSTD_compressBound(size);
	char *compressed = malloc(capacity);
	ZSTD_CCtx *zstd = ZSTD_createCCtx();
	int rc = -ENOMEM;

	if (compressed && zstd) {
		ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
		header.compressed_size = ZSTD_compress2(zstd, compressed, capacity, contents, size);
		if (!ZSTD_isError(header.compressed_size))
			rc = write_all(fd, &header, sizeof(header));
		if (rc == 0)
			rc = write_all(fd, compressed, header.compressed_size);
	}
	ZSTD_freeCCtx(zstd);
	free(compressed);
	return rc;
}

static int read_contents(int fd, char *contents, size_t size, size_t compressed_size)
{
	char *compressed = malloc(compressed_size);
	int rc = compressed ? read_all(fd, compressed, compressed_size) : -ENOMEM;

	if (rc == 0 && ZSTD_decompress(contents, size, compressed, compressed_size) != size)
		rc = -EBADMSG;
	free(compressed);
	return rc;
}

int sp_state_load(int fd, char *contents, size_t memory_size, size_t state_size)
{
	size_t size = memory_size + state_size;
	struct header header;
	int rc = read_all(fd, &header, sizeof(header));

	if (rc < 0)
		return rc;
	if (memcmp(header.magic, MAGIC, sizeof(header.magic)) != 0 || header.version != VERSION)
		return -EBADMSG;
	if (header.memory_size != memory_size || header.state_size != state_size)
		return -EINVAL;
	if (header.compressed_size > ZSTD_compressBound(size))
		return -EBADMSG;
	return read_contents(fd, contents, size, header.compressed_size);
}
