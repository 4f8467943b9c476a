/*
 * Records on disk: see record.h. Both sides go through stdio. The reader checks each record's length and
 * checksum before it hands the payload out.
 */
#include "image/record.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Far more than any kind stores in one record, and small enough to be unpacked in memory. */
#define RECORD_SIZE_MAX (64U << 20)

struct record_header {
	uint32_t length;
	uint32_t type;
	uint64_t checksum;
};

/* `type` as it stands in the file. Offset and type are mixed in as seeds, one after the other. */
static uint64_t record_checksum(uint64_t offset, uint32_t type, const void *payload, size_t size)
{
	uint64_t seed = XXH3_64bits_withSeed(&type, sizeof(type), offset);

	return XXH3_64bits_withSeed(payload, size, seed);
}

/* --- writing --- */

int sp_record_writer_open(struct sp_record_writer *writer, int dirfd, const char *name,
                          struct sp_error *err)
{
	sp_cleanup_close int fd =
	        openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	*writer = (struct sp_record_writer){0};
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot create %s", name);
	writer->file = fdopen(fd, "w");
	if (!writer->file)
		return sp_fail_errno(err, errno, "cannot create %s", name);
	sp_steal_fd(&fd);
	snprintf(writer->name, sizeof(writer->name), "%s", name);
	return 0;
}

int sp_record_writer_memory(struct sp_record_writer *writer, uint8_t **bytes, size_t *size,
                            struct sp_error *err)
{
	*writer = (struct sp_record_writer){.name = "memory"};
	writer->file = open_memstream((char **)bytes, size);
	return writer->file ? 0 : sp_fail_errno(err, errno, "cannot write records to memory");
}

int sp_record_write(struct sp_record_writer *writer, enum sp_record_type type,
                    const ProtobufCMessage *message, struct sp_error *err)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	sp_cleanup_free uint8_t *payload = NULL;

	if (size > RECORD_SIZE_MAX)
		return sp_fail(err, EMSGSIZE, "cannot write %s: a %s of %zu bytes is too large",
		               writer->name, message->descriptor->short_name, size);
	payload = sp_alloc(size);
	protobuf_c_message_pack(message, payload);
	return sp_record_write_packed(writer, type, payload, size, err);
}

int sp_record_write_packed(struct sp_record_writer *writer, enum sp_record_type type,
                           const uint8_t *payload, size_t size, struct sp_error *err)
{
	struct record_header header;

	header.length = htole32((uint32_t)size);
	header.type = htole32(type);
	header.checksum = htole64(record_checksum(writer->offset, header.type, payload, size));
	if (fwrite(&header, sizeof(header), 1, writer->file) != 1 ||
	    fwrite(payload, 1, size, writer->file) != size)
		return sp_fail_errno(err, errno, "cannot write %s", writer->name);
	writer->offset += sizeof(header) + size;
	return 0;
}

int sp_record_writer_finish(struct sp_record_writer *writer, struct sp_error *err)
{
	sp_cleanup_file FILE *file = sp_steal_ptr(&writer->file);

	if (fflush(file) != 0)
		return sp_fail_errno(err, errno, "cannot write %s", writer->name);
	return 0;
}

void sp_record_writer_abandon(struct sp_record_writer *writer)
{
	if (writer->file)
		fclose(writer->file);
	writer->file = NULL;
}

/* --- reading --- */

static void init_reader(struct sp_record_reader *reader, const char *name, size_t size)
{
	*reader = (struct sp_record_reader){.size = size, .payload = SP_ARRAY_OF(uint8_t)};
	snprintf(reader->name, sizeof(reader->name), "%s", name);
}

int sp_record_reader_open(struct sp_record_reader *reader, int dirfd, const char *name,
                          struct sp_error *err)
{
	/* O_NONBLOCK: a FIFO in the place of an image must not hold us up. */
	sp_cleanup_close int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat stat;

	init_reader(reader, name, 0);
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", name);
	if (fstat(fd, &stat) < 0)
		return sp_fail_errno(err, errno, "cannot read %s", name);
	if (!S_ISREG(stat.st_mode))
		return sp_fail(err, EINVAL, "cannot read %s: it is not a regular file", name);
	reader->size = (size_t)stat.st_size;
	reader->file = fdopen(fd, "r");
	if (!reader->file)
		return sp_fail_errno(err, errno, "cannot open %s", name);
	sp_steal_fd(&fd);
	return 0;
}

void sp_record_reader_memory(struct sp_record_reader *reader, const char *name, uint8_t *bytes,
                             size_t size)
{
	init_reader(reader, name, size);
	reader->file = sp_allocated(fmemopen(bytes, size, "r"));
}

static int read_bytes(const struct sp_record_reader *reader, void *bytes, size_t size,
                      struct sp_error *err)
{
	if (fread(bytes, 1, size, reader->file) == size)
		return 0;
	if (ferror(reader->file))
		return sp_fail_errno(err, errno, "cannot read %s", reader->name);
	return sp_fail(err, EBADMSG, "%s is cut off in the record at offset %zu", reader->name,
	               reader->position);
}

static int read_payload(struct sp_record_reader *reader, size_t size, struct sp_error *err)
{
	sp_array_clear(&reader->payload);
	return read_bytes(reader, sp_array_grow(&reader->payload, size), size, err);
}

int sp_record_next(struct sp_record_reader *reader, struct sp_record *record, struct sp_error *err)
{
	size_t left = reader->size - reader->position;
	struct record_header header;
	uint32_t length;

	if (left == 0)
		return 0;
	if (left < sizeof(header))
		return sp_fail(err, EBADMSG,
		               "%s is cut off: %zu stray bytes at offset %zu where a record begins",
		               reader->name, left, reader->position);
	if (read_bytes(reader, &header, sizeof(header), err) < 0)
		return -err->code;
	length = le32toh(header.length);
	left -= sizeof(header);
	if (length > left || length > RECORD_SIZE_MAX)
		return sp_fail(err, EBADMSG,
		               "%s is cut off or damaged: the record at offset %zu claims %" PRIu32
		               " bytes, and %zu follow",
		               reader->name, reader->position, length, left);
	if (read_payload(reader, length, err) < 0)
		return -err->code;
	if (record_checksum(reader->position, header.type, reader->payload.items, length) !=
	    le64toh(header.checksum))
		return sp_fail(
		        err, EBADMSG,
		        "%s is damaged: the record at offset %zu does not match its checksum",
		        reader->name, reader->position);
	*record = (struct sp_record){
	        .type = (enum sp_record_type)le32toh(header.type),
	        .payload = reader->payload.items,
	        .size = length,
	        .offset = reader->position,
	};
	reader->position += sizeof(header) + length;
	return 1;
}

void sp_record_reader_close(struct sp_record_reader *reader)
{
	if (reader->file)
		fclose(reader->file);
	sp_array_release(&reader->payload);
	*reader = (struct sp_record_reader){0};
}

ProtobufCMessage *sp_record_unpack(const struct sp_record_reader *reader,
                                   const struct sp_record *record,
                                   const ProtobufCMessageDescriptor *descriptor,
                                   struct sp_error *err)
{
	ProtobufCMessage *message =
	        protobuf_c_message_unpack(descriptor, NULL, record->size, record->payload);

	if (!message)
		sp_fail(err, EBADMSG, "%s: the record at offset %" PRIu64 " is not a valid %s",
		        reader->name, record->offset, descriptor->short_name);
	return message;
}
