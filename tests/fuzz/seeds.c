/*
 * Writes a small corpus to begin with: seeds DIRECTORY. For each target a file or two of valid
 * input, in DIRECTORY/TARGET/, so that a fuzzer starts behind the first checks.
 */
#include "arch/arch.h"
#include "base/array.h"
#include "base/error.h"
#include "image/checkpoint_parts.h"
#include "image/page_frame.h"
#include "mem/vma.h"

#include "input.h"
#include "page_index.pb-c.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <xxhash.h>

static const char *corpus;

static FILE *seed(const char *target, const char *name)
{
	char *directory = sp_format("%s/%s", corpus, target);
	char *path = sp_format("%s/%s", directory, name);
	FILE *file;

	mkdir(corpus, 0755);
	mkdir(directory, 0755);
	file = fopen(path, "w");
	if (!file) {
		perror(path);
		exit(1);
	}
	free(directory);
	free(path);
	return file;
}

static void put_message(FILE *file, uint8_t type, const ProtobufCMessage *message)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	uint8_t *bytes = sp_alloc(size);

	protobuf_c_message_pack(message, bytes);
	fuzz_put(file, type, bytes, size);
	free(bytes);
}

/* --- pages --- */

/* Two objects, five runs, two DATA pages in the frame that is given. */
static void put_chunk(FILE *file, const struct sp_frame *frame)
{
	Sealpoint__PageIndex chunk = SEALPOINT__PAGE_INDEX__INIT;
	uint32_t objects[] = {1, 2}, object_runs[] = {3, 2};
	uint64_t gaps[] = {0x400, 0, 5, 0, 0}, lengths[] = {1, 7, 3, 1, 9};
	uint32_t states[] = {SP_PAGE_DATA, SP_PAGE_HOLE, SP_PAGE_ZERO, SP_PAGE_DATA, SP_PAGE_FILE};

	chunk.frame_offset = frame->offset;
	chunk.frame_size = frame->size;
	chunk.frame_encoding = frame->encoding;
	chunk.frame_checksum = frame->checksum;
	chunk.n_objects = chunk.n_object_runs = 2;
	chunk.objects = objects;
	chunk.object_runs = object_runs;
	chunk.n_gaps = chunk.n_lengths = chunk.n_states = 5;
	chunk.gaps = gaps;
	chunk.lengths = lengths;
	chunk.states = states;
	put_message(file, SP_RECORD_PAGE_INDEX, &chunk.base);
}

/* A layer above: it covers one DATA page, one page of two states, and something new. */
static void put_layer(FILE *file)
{
	Sealpoint__PageIndex chunk = SEALPOINT__PAGE_INDEX__INIT;
	uint32_t object = 1, object_runs = 3;
	uint64_t gaps[] = {0x400, 6, 0x100}, lengths[] = {1, 2, 4};
	uint32_t states[] = {SP_PAGE_ZERO, SP_PAGE_FILE, SP_PAGE_HOLE};

	chunk.n_objects = chunk.n_object_runs = 1;
	chunk.objects = &object;
	chunk.object_runs = &object_runs;
	chunk.n_gaps = chunk.n_lengths = chunk.n_states = 3;
	chunk.gaps = gaps;
	chunk.lengths = lengths;
	chunk.states = states;
	chunk.layer = 1;
	put_message(file, SP_RECORD_PAGE_INDEX, &chunk.base);
}

static void seed_pages(int level, const char *name)
{
	uint8_t pages[2 * SP_PAGE_SIZE];
	struct sp_frame_encoder encoder;
	struct sp_frame frame = {.pages = 2};
	struct sp_error err = {0};
	const void *stored;
	FILE *file;

	for (size_t i = 0; i < sizeof(pages); i++)
		pages[i] = (uint8_t)(i / 100);
	sp_frame_encoder_init(&encoder, level);
	if (sp_frame_encode(&encoder, pages, &frame, &stored, &err) < 0)
		exit(1);
	file = seed("fuzz_page_frame", name);
	fputc(frame.encoding, file);
	fputc(frame.pages, file);
	fwrite(stored, 1, frame.size, file);
	fclose(file);

	file = seed("fuzz_page_store", name);
	fuzz_put(file, 0, stored, frame.size);
	put_chunk(file, &frame);
	put_layer(file);
	fclose(file);

	file = seed("fuzz_page_index", name);
	put_chunk(file, &frame);
	put_layer(file);
	fclose(file);
	sp_frame_encoder_release(&encoder);
}

/* --- records --- */

static void put_manifest(FILE *file)
{
	Sealpoint__Manifest manifest = SEALPOINT__MANIFEST__INIT;
	Sealpoint__ImageFile files[3], *list[3];
	const char *names[] = {SP_IMAGE_RECORDS, SP_IMAGE_PAGE_INDEX, SP_IMAGE_PAGES};
	uint8_t id[SP_CHECKPOINT_ID_SIZE] = {1};

	for (size_t i = 0; i < 3; i++) {
		sealpoint__image_file__init(&files[i]);
		files[i].name = (char *)names[i];
		list[i] = &files[i];
	}
	manifest.version_major = SP_IMAGE_VERSION_MAJOR;
	manifest.id = (ProtobufCBinaryData){sizeof(id), id};
	manifest.arch = (char *)sp_arch_name();
	manifest.page_size = SP_PAGE_SIZE;
	manifest.root_pid = 100;
	manifest.files = list;
	manifest.n_files = 3;
	put_message(file, SP_RECORD_MANIFEST, &manifest.base);
}

static void put_memory(FILE *file)
{
	Sealpoint__Vma vma = SEALPOINT__VMA__INIT;
	Sealpoint__PageIndex chunk = SEALPOINT__PAGE_INDEX__INIT;
	uint32_t one = 1, state = SP_PAGE_ZERO;
	uint64_t gap = 0x400, length = 3;

	vma.pid = 100;
	vma.start = gap * SP_PAGE_SIZE;
	vma.end = (gap + length) * SP_PAGE_SIZE;
	vma.kind = SP_VMA_FILE_PRIVATE;
	vma.file = 1;
	vma.page_shift = SP_PAGE_SHIFT;
	put_message(file, SP_RECORD_VMA, &vma.base);

	chunk.n_objects = chunk.n_object_runs = chunk.n_gaps = chunk.n_lengths = chunk.n_states = 1;
	chunk.objects = chunk.object_runs = &one;
	chunk.gaps = &gap;
	chunk.lengths = &length;
	chunk.states = &state;
	put_message(file, SP_RECORD_PAGE_INDEX, &chunk.base);
}

static void seed_checkpoint(void)
{
	Sealpoint__Process process = SEALPOINT__PROCESS__INIT;
	Sealpoint__Thread thread = SEALPOINT__THREAD__INIT;
	Sealpoint__OpenFile open_file = SEALPOINT__OPEN_FILE__INIT;
	Sealpoint__Descriptor descriptor = SEALPOINT__DESCRIPTOR__INIT;
	Sealpoint__Facet facet = SEALPOINT__FACET__INIT, *facets = &facet;
	uint8_t general[sizeof(struct user_regs_struct)] = {0};
	FILE *file = seed("fuzz_checkpoint", "whole");

	facet.name = (char *)"limits";
	process.pid = thread.pid = thread.tid = descriptor.pid = 100;
	process.memory_object = 1;
	process.facets = &facets;
	process.n_facets = 1;
	thread.general = (ProtobufCBinaryData){sizeof(general), general};
	open_file.id = descriptor.file = 1;
	open_file.kind = (char *)"regular";
	put_manifest(file);
	put_message(file, SP_RECORD_PROCESS, &process.base);
	put_message(file, SP_RECORD_THREAD, &thread.base);
	put_message(file, SP_RECORD_OPEN_FILE, &open_file.base);
	put_message(file, SP_RECORD_DESCRIPTOR, &descriptor.base);
	put_memory(file);
	fclose(file);
}

static void seed_records(void)
{
	Sealpoint__Process process = SEALPOINT__PROCESS__INIT;
	struct sp_record_writer writer = {.file = seed("fuzz_record", "one")};
	struct sp_error err = {0};

	process.pid = 100;
	process.comm = (char *)"program";
	if (sp_record_write(&writer, SP_RECORD_PROCESS, &process.base, &err) < 0)
		exit(1);
	sp_record_writer_abandon(&writer);
}

/* A body with a few fields for each row: the fuzzer finds what they mean. */
static void seed_kinds(void)
{
	static const uint8_t body[] = {0x08, 0x01, 0x12, 0x02, '/', 'x', 0x18, 0x05, 0x20, 0x07};

	for (int row = 0; row < 64; row++) {
		char name[16];
		FILE *file;

		snprintf(name, sizeof(name), "row-%d", row);
		file = seed("fuzz_kinds", name);
		fputc(row, file);
		fwrite(body, 1, sizeof(body), file);
		fclose(file);
	}
}

/*
 * The part of this process's own vDSO that is within the length of an input: all tables, most
 * functions.
 */
static void seed_vdso(void)
{
	const void *image = (const void *)getauxval(AT_SYSINFO_EHDR);
	FILE *file;

	if (!image)
		return;
	file = seed("fuzz_vdso", "own");
	fwrite(image, SP_PAGE_SIZE, 1, file);
	fclose(file);
}

int main(int count, char **arguments)
{
	if (count != 2) {
		fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]);
		return 2;
	}
	corpus = arguments[1];
	seed_pages(SP_COMPRESS_DEFAULT, "zstd");
	seed_pages(SP_COMPRESS_NONE, "raw");
	seed_checkpoint();
	seed_records();
	seed_kinds();
	seed_vdso();
	return 0;
}
