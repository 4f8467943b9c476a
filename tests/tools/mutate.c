/*
 * Changes a checkpoint behind its checksums: mutate GOOD NEW SEED writes a copy in which one to three
 * things are wrong, and says which. All checksums and sizes in it are right, so that what comes
 * behind them is what a reader has to rely on. The same seed makes the same changes.
 *
 * It works on the wire format of protobuf, not on the messages: a message is a list of fields, each
 * a number or bytes, and bytes may be a message, a packed column of numbers, or text. So it knows no
 * kind by name and needs no change for a new one. The record format is written down here a second
 * time, from docs/image-format.md.
 */
#include "base/array.h"
#include "base/error.h"
#include "image/checkpoint_parts.h"

#include <endian.h>
#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define DEPTH_MAX 6

/* --- chance --- */

static uint64_t random_state;

static uint64_t draw(void)
{
	uint64_t x = random_state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static size_t below(size_t end)
{
	return end ? draw() % end : 0;
}

static bool one_in(size_t chances)
{
	return below(chances) == 0;
}

/* --- bytes --- */

struct bytes {
	uint8_t *data; /* malloc'd, never freed: this program does one thing and ends */
	size_t size;
};

static void put(struct bytes *bytes, const void *data, size_t size)
{
	bytes->data = realloc(bytes->data, bytes->size + size + 1);
	if (!bytes->data)
		errx(1, "out of memory");
	memcpy(bytes->data + bytes->size, data, size);
	bytes->size += size;
}

static void put_varint(struct bytes *bytes, uint64_t value)
{
	do {
		uint8_t byte = (value & 0x7f) | (value > 0x7f ? 0x80 : 0);

		put(bytes, &byte, 1);
		value >>= 7;
	} while (value);
}

static bool take_varint(struct bytes *bytes, uint64_t *value)
{
	*value = 0;
	for (unsigned shift = 0; shift < 64 && bytes->size > 0; shift += 7) {
		uint8_t byte = *bytes->data++;

		bytes->size--;
		*value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

/* --- messages as fields --- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct field {
	uint32_t number;
	enum wire wire;
	uint64_t value;     /* of numbers */
	struct bytes bytes; /* of WIRE_BYTES */
};

static bool take_bytes(struct bytes *from, size_t size, void *to)
{
	if (size > from->size)
		return false;
	memcpy(to, from->data, size);
	from->data += size;
	from->size -= size;
	return true;
}

static bool take_field(struct bytes *message, struct field *field)
{
	uint64_t tag, size;

	*field = (struct field){0};
	if (!take_varint(message, &tag) || tag >> 3 == 0 || tag >> 3 > 1000)
		return false;
	field->number = (uint32_t)(tag >> 3);
	field->wire = tag & 7;
	switch (field->wire) {
	case WIRE_VARINT:
		return take_varint(message, &field->value);
	case WIRE_64:
		return take_bytes(message, 8, &field->value);
	case WIRE_32:
		return take_bytes(message, 4, &field->value);
	case WIRE_BYTES:
		if (!take_varint(message, &size) || size > message->size)
			return false;
		field->bytes = (struct bytes){message->data, size};
		message->data += size;
		message->size -= size;
		return true;
	default:
		return false;
	}
}

static void put_field(struct bytes *message, const struct field *field)
{
	put_varint(message, (uint64_t)field->number << 3 | field->wire);
	switch (field->wire) {
	case WIRE_VARINT:
		put_varint(message, field->value);
		break;
	case WIRE_64:
		put(message, &field->value, 8);
		break;
	case WIRE_32:
		put(message, &field->value, 4);
		break;
	case WIRE_BYTES:
		put_varint(message, field->bytes.size);
		put(message, field->bytes.data, field->bytes.size);
	}
}

static bool parse(struct bytes message, struct sp_array *fields)
{
	struct field field;

	*fields = SP_ARRAY_OF(struct field);
	while (message.size > 0) {
		if (!take_field(&message, &field))
			return false;
		sp_array_append(fields, &field);
	}
	return fields->count > 0;
}

/* --- changing --- */

static void put_twice(struct sp_array *array, size_t chosen)
{
	void *added = sp_array_grow(array, 1);

	memcpy(added, sp_array_at(array, chosen), array->item_size);
}

static uint64_t change_number(uint64_t value)
{
	static const uint64_t edges[] = {
	        0,          1,          2,          3,          64,         4095,
	        4096,       65535,      1 << 21,    1 << 22,    INT32_MAX,  1ULL << 31,
	        UINT32_MAX, 1ULL << 32, 1ULL << 40, 1ULL << 46, 1ULL << 47, (1ULL << 47) - 4096,
	        1ULL << 48, 1ULL << 62, INT64_MAX,  1ULL << 63, UINT64_MAX, -4096ULL,
	};

	switch (below(6)) {
	case 0:
		return value + 1;
	case 1:
		return value - 1;
	case 2:
		return value ^ 1ULL << below(64);
	case 3:
		return one_in(2) ? value + 4096 : value - 4096;
	case 4:
		return one_in(2) ? value * 2 : value / 2;
	default:
		return edges[below(SP_COUNT_OF(edges))];
	}
}

static struct bytes change_text(struct bytes text)
{
	static const size_t lengths[] = {1, 16, 108, 256, 4096, 70000, 1 << 20};
	struct bytes changed = {0};
	size_t at = below(text.size + 1);
	uint8_t byte = "\0\n\xff/x%\x1b."[below(8)];

	put(&changed, text.data, at);
	switch (below(5)) {
	case 0: /* cut off */
		if (one_in(2))
			changed.size = 0;
		return changed;
	case 1: /* longer */
		for (size_t left = lengths[below(SP_COUNT_OF(lengths))]; left > 0; left--)
			put(&changed, &byte, 1);
		break;
	case 2: /* put in */
		put(&changed, &byte, 1);
		break;
	case 3: /* replaced */
		put(&changed, &byte, 1);
		at += at < text.size;
		break;
	default: /* one bit, as in sets of them and in structures */
		if (at < text.size) {
			byte = text.data[at++] ^ (uint8_t)(1 << below(8));
			put(&changed, &byte, 1);
		}
	}
	put(&changed, text.data + at, text.size - at);
	return changed;
}

/* A packed column of numbers, one of which becomes another, goes away or comes twice. */
static bool change_column(struct bytes *column)
{
	struct sp_array numbers = SP_ARRAY_OF(uint64_t);
	struct bytes left = *column, changed = {0};
	uint64_t number;
	size_t chosen;

	while (left.size > 0) {
		if (!take_varint(&left, &number))
			return false;
		sp_array_append(&numbers, &number);
	}
	chosen = below(numbers.count);
	printf("[%zu]", chosen);
	for (size_t i = 0; i < numbers.count; i++) {
		number = *(uint64_t *)sp_array_at(&numbers, i);
		if (i == chosen)
			switch (below(8)) {
			case 0:
				continue;
			case 1:
				put_varint(&changed, number);
				break;
			default:
				number = change_number(number);
			}
		put_varint(&changed, number);
	}
	*column = changed;
	return true;
}

static struct bytes change_message(struct bytes message, unsigned depth);

static void change_field(struct field *field, unsigned depth)
{
	struct sp_array inner;

	printf(".%u", field->number);
	if (field->wire != WIRE_BYTES) {
		field->value = change_number(field->value);
		printf(" becomes %" PRIu64, field->value);
	} else if (depth < DEPTH_MAX && !one_in(6) && parse(field->bytes, &inner)) {
		field->bytes = change_message(field->bytes, depth + 1);
	} else if (one_in(2) || !change_column(&field->bytes)) {
		size_t before = field->bytes.size;

		field->bytes = change_text(field->bytes);
		printf(" has other bytes, %zu instead of %zu", field->bytes.size, before);
	} else {
		printf(" has other numbers");
	}
}

/* Fields that are zero are not there: one that was not gets some number or text. */
static void add_field(struct sp_array *fields)
{
	struct field field = {.number = 1 + (uint32_t)below(16)};

	field.wire = one_in(4) ? WIRE_BYTES : WIRE_VARINT;
	field.value = change_number(0);
	field.bytes = change_text(field.bytes);
	printf(".%u is new, %" PRIu64, field.number, field.value);
	sp_array_append(fields, &field);
}

static struct bytes change_message(struct bytes message, unsigned depth)
{
	struct sp_array fields;
	struct bytes changed = {0};
	size_t chosen, lost = SIZE_MAX;
	struct field *field;

	if (!parse(message, &fields)) {
		printf(" has other bytes");
		return change_text(message);
	}
	chosen = below(fields.count);
	field = sp_array_at(&fields, chosen);
	switch (below(10)) {
	case 0:
		lost = chosen;
		printf(".%u is missing", field->number);
		break;
	case 1:
		printf(".%u is there twice", field->number);
		put_twice(&fields, chosen);
		break;
	case 2:
		add_field(&fields);
		break;
	default:
		change_field(field, depth);
	}
	for (size_t i = 0; i < fields.count; i++)
		if (i != lost)
			put_field(&changed, sp_array_at(&fields, i));
	return changed;
}

/* --- files of records --- */

struct raw_record {
	uint32_t type;
	struct bytes payload;
};

static struct sp_array read_records(int dirfd, const char *name)
{
	struct sp_array records = SP_ARRAY_OF(struct raw_record);
	struct sp_record_reader reader;
	struct sp_error error = {0};
	struct sp_record record;

	if (sp_record_reader_open(&reader, dirfd, name, &error) < 0)
		errx(1, "%s", error.message);
	while (sp_record_next(&reader, &record, &error) == 1) {
		struct raw_record *raw = sp_array_push(&records);

		raw->type = record.type;
		put(&raw->payload, record.payload, record.size);
	}
	sp_record_reader_close(&reader);
	if (error.message[0])
		errx(1, "%s", error.message);
	return records;
}

static void write_records(int dirfd, const char *name, const struct sp_array *records)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct bytes file = {0};

	for (size_t i = 0; i < records->count; i++) {
		const struct raw_record *record = sp_array_at(records, i);
		uint32_t head[] = {htole32((uint32_t)record->payload.size), htole32(record->type)};
		uint64_t seed = XXH3_64bits_withSeed(&head[1], sizeof(head[1]), file.size);
		uint64_t sum = htole64(
		        XXH3_64bits_withSeed(record->payload.data, record->payload.size, seed));

		put(&file, head, sizeof(head));
		put(&file, &sum, sizeof(sum));
		put(&file, record->payload.data, record->payload.size);
	}
	if (fd < 0 || write(fd, file.data, file.size) != (ssize_t)file.size || close(fd) < 0)
		err(1, "cannot write %s", name);
}

static void swap(struct raw_record *one, struct raw_record *other)
{
	struct raw_record kept = *one;

	*one = *other;
	*other = kept;
}

static void change_records(struct sp_array *records)
{
	size_t chosen = below(records->count);
	struct raw_record *record = sp_array_at(records, chosen);

	printf(" record %zu, type %u", chosen, record->type);
	switch (below(20)) {
	case 0:
		printf(", is missing");
		memmove(record, record + 1, (records->count - chosen - 1) * sizeof(*record));
		records->count--;
		break;
	case 1:
		printf(", is there twice");
		put_twice(records, chosen);
		break;
	case 2:
		printf(", has changed places");
		swap(record, sp_array_at(records, below(records->count)));
		break;
	case 3:
		record->type =
		        one_in(4) ? (uint32_t)change_number(record->type) : 1 + (uint32_t)below(8);
		printf(", is of type %u", record->type);
		break;
	default:
		record->payload = change_message(record->payload, 0);
	}
}

/* --- checkpoints --- */

static void copy_file(int from, int to, const char *name)
{
	int in = openat(from, name, O_RDONLY | O_CLOEXEC);
	int out = openat(to, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t copied;

	do
		copied = copy_file_range(in, NULL, out, NULL, 1 << 30, 0);
	while (copied > 0);
	if (copied < 0 || close(in) < 0 || close(out) < 0)
		err(1, "cannot copy %s", name);
}

/* Makes the manifest tell the truth about the other files. */
static void correct_manifest(int dirfd, struct raw_record *record)
{
	Sealpoint__Manifest *manifest =
	        sealpoint__manifest__unpack(NULL, record->payload.size, record->payload.data);
	struct sp_error error = {0};
	struct stat stat;

	for (size_t i = 0; i < manifest->n_files; i++) {
		Sealpoint__ImageFile *file = manifest->files[i];

		if (fstatat(dirfd, file->name, &stat, 0) < 0 ||
		    (file->checksum &&
		     sp_file_checksum(dirfd, file->name, &file->checksum, &error) < 0))
			errx(1, "%s: %s", file->name, error.message);
		file->size = (uint64_t)stat.st_size;
	}
	record->payload.size = sealpoint__manifest__get_packed_size(manifest);
	record->payload.data = sp_alloc(record->payload.size);
	sealpoint__manifest__pack(manifest, record->payload.data);
}

int main(int argc, char **argv)
{
	const char *names[] = {SP_IMAGE_RECORDS, SP_IMAGE_PAGE_INDEX, SP_IMAGE_MANIFEST};
	struct sp_array records[SP_COUNT_OF(names)];
	size_t chances[] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 2}; /* which file is changed */
	size_t counts[SP_COUNT_OF(names)] = {0};
	int from, to;

	if (argc != 4)
		errx(2, "usage: mutate GOOD NEW SEED");
	random_state = strtoull(argv[3], NULL, 10);
	from = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdir(argv[2], 0755) < 0 && access(argv[2], W_OK) < 0)
		err(1, "%s", argv[2]);
	to = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (from < 0 || to < 0)
		err(1, "cannot open %s or %s", argv[1], argv[2]);

	for (size_t count = one_in(3) ? 1 + below(3) : 1; count > 0; count--)
		counts[chances[below(SP_COUNT_OF(chances))]]++;
	copy_file(from, to, SP_IMAGE_PAGES);
	for (size_t i = 0; i < SP_COUNT_OF(names); i++) {
		records[i] = read_records(from, names[i]);
		if (i == 2)
			correct_manifest(to, sp_array_at(&records[i], 0));
		for (; counts[i] > 0 && records[i].count > 0; counts[i]--) {
			printf("%s", names[i]);
			change_records(&records[i]);
			puts("");
		}
		write_records(to, names[i], &records[i]);
	}
	return 0;
}
