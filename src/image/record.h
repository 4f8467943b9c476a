/*
 * Records: protobuf messages in a file, each with its length, its type and a checksum.
 *
 * On disk a record is: u32 length of the payload, u32 type, u64 checksum, payload, all
 * little-endian. The checksum is XXH3-64 of the payload, seeded with the XXH3-64 of the type's four
 * bytes, which is seeded with the record's offset in the file: so a moved record is noticed. A
 * reader hands out no byte that it has not checked, and keeps one record in memory.
 */
#ifndef SEALPOINT_IMAGE_RECORD_H
#define SEALPOINT_IMAGE_RECORD_H

#include "base/array.h"

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct sp_error;

enum sp_record_type {
	SP_RECORD_MANIFEST = 1,
	SP_RECORD_PROCESS = 2,
	SP_RECORD_THREAD = 3,
	SP_RECORD_VMA = 4,
	SP_RECORD_OPEN_FILE = 5,
	SP_RECORD_DESCRIPTOR = 6,
	SP_RECORD_PAGE_INDEX = 7,
};

struct sp_record_writer {
	FILE *file;
	char name[64]; /* for messages */
	uint64_t offset;
};

/** Creates `name` in the directory. The writer is used by one thread. */
int sp_record_writer_open(struct sp_record_writer *writer, int dirfd, const char *name,
                          struct sp_error *err);
/** Writes to memory instead: `*bytes` and `*size` are the caller's when it is finished. */
int sp_record_writer_memory(struct sp_record_writer *writer, uint8_t **bytes, size_t *size,
                            struct sp_error *err);
int sp_record_write(struct sp_record_writer *writer, enum sp_record_type type,
                    const ProtobufCMessage *message, struct sp_error *err);
/** The same with a message that is packed already: a record that was read. */
int sp_record_write_packed(struct sp_record_writer *writer, enum sp_record_type type,
                           const uint8_t *payload, size_t size, struct sp_error *err);
/** Flushes, and leaves it to the caller to sync; closes in any case. */
int sp_record_writer_finish(struct sp_record_writer *writer, struct sp_error *err);
void sp_record_writer_abandon(struct sp_record_writer *writer);

struct sp_record {
	enum sp_record_type type;
	const uint8_t *payload; /* the reader's, until its next record */
	size_t size;
	uint64_t offset; /* in the file, for messages */
};

struct sp_record_reader {
	char name[64];
	FILE *file;
	size_t size; /* of the file, when it was opened */
	size_t position;
	struct sp_array payload; /* uint8_t, of the last record */
};

int sp_record_reader_open(struct sp_record_reader *reader, int dirfd, const char *name,
                          struct sp_error *err);
/** Reads from memory that the caller keeps: what a fuzzer or a socket gives. */
void sp_record_reader_memory(struct sp_record_reader *reader, const char *name, uint8_t *bytes,
                             size_t size);
/**
 * Returns 1 and the next record, 0 at the end, or a negative errno. Unknown types are handed out.
 */
int sp_record_next(struct sp_record_reader *reader, struct sp_record *record, struct sp_error *err);
void sp_record_reader_close(struct sp_record_reader *reader);

/**
 * Unpacks a payload into a message of the caller's (free with protobuf_c_message_free_unpacked).
 * NULL and an error that names file and offset if the bytes are not such a message.
 */
ProtobufCMessage *sp_record_unpack(const struct sp_record_reader *reader,
                                   const struct sp_record *record,
                                   const ProtobufCMessageDescriptor *descriptor,
                                   struct sp_error *err);

#endif
