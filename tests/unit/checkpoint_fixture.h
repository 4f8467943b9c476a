/*
 * A small checkpoint for tests: its records lie in a structure that a test can spoil before they
 * are written. One process with two threads, three mappings, two open files and two descriptors.
 */
#ifndef SEALPOINT_TESTS_CHECKPOINT_FIXTURE_H
#define SEALPOINT_TESTS_CHECKPOINT_FIXTURE_H

#include "arch/arch.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "image/checkpoint.h"
#include "mem/vma.h"
#include "unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define TEXT 0x400000ULL
#define HEAP 0x800000ULL
#define STACK 0x7ffff0000000ULL
#define HEAP_PAGES 8

/** The records of a checkpoint, to be spoiled by a test before they are written. */
struct fixture {
	Sealpoint__Manifest manifest;
	Sealpoint__Process process;
	Sealpoint__Process
	        ended[2]; /* a child of it that has ended, and one of that; see ended_count */
	Sealpoint__Thread threads[2];
	Sealpoint__Vma vmas[3];
	Sealpoint__OpenFile files[2];
	Sealpoint__Descriptor descriptors[2];
	Sealpoint__Facet facets[2], *facet_list[2];
	size_t ended_count, vma_count, thread_count, file_count, descriptor_count;
	struct sp_range pages[3]; /* that are added to the page store; the middle one is DATA */
	struct sp_range early;    /* ZERO pages of a layer below, if not empty */
	enum sp_page_state heap_state;
	uint64_t in_parent; /* a bit for each page of the heap that is PARENT instead */
	uint8_t general[sizeof(struct user_regs_struct)];
	uint8_t xstate[SP_XSTATE_MAX + 1];
	uint8_t heap[HEAP_PAGES * SP_PAGE_SIZE];
	int level;
};

static inline struct sp_range vma_range(const Sealpoint__Vma *vma)
{
	return (struct sp_range){vma->start, vma->end};
}

static inline Sealpoint__Vma new_vma(uint64_t start, uint64_t pages, enum sp_vma_kind kind,
                                     uint32_t file)
{
	Sealpoint__Vma vma = SEALPOINT__VMA__INIT;

	vma.pid = 100;
	vma.start = start;
	vma.end = start + pages * SP_PAGE_SIZE;
	vma.kind = kind;
	vma.prot = PROT_READ;
	vma.file = file;
	vma.page_shift = SP_PAGE_SHIFT;
	return vma;
}

static inline struct fixture *new_fixture(void)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	sealpoint__manifest__init(&fixture->manifest);
	sealpoint__process__init(&fixture->process);
	fixture->manifest.root_pid = fixture->process.pid = 100;
	fixture->process.memory_object = 1;
	fixture->process.executable_file = 1;
	for (uint32_t i = 0; i < 2; i++) {
		Sealpoint__Thread *thread = &fixture->threads[i];

		sealpoint__thread__init(thread);
		thread->pid = 100;
		thread->tid = 100 + i;
		thread->general = (ProtobufCBinaryData){sizeof(fixture->general), fixture->general};
		thread->xstate = (ProtobufCBinaryData){64, fixture->xstate};
		sealpoint__open_file__init(&fixture->files[i]);
		fixture->files[i].id = i + 1;
		fixture->files[i].kind = (char *)"regular";
		fixture->files[i].mapping_only = i == 0;
		sealpoint__descriptor__init(&fixture->descriptors[i]);
		fixture->descriptors[i].pid = 100;
		fixture->descriptors[i].number = i * 5;
		fixture->descriptors[i].file = 2;
		sealpoint__process__init(&fixture->ended[i]);
		fixture->ended[i].pid = 110 + i;
		fixture->ended[i].ppid = i ? 110 : 100;
		fixture->ended[i].ended = true;
		fixture->ended[i].exit_signal = 17;
		fixture->ended[i].wait_status = 7 << 8;
		sealpoint__facet__init(&fixture->facets[i]);
		fixture->facets[i].name = (char *)(i ? "timers" : "credentials");
		fixture->facet_list[i] = &fixture->facets[i];
	}
	fixture->process.facets = fixture->facet_list;
	fixture->process.n_facets = 2;
	fixture->vmas[0] = new_vma(TEXT, 4, SP_VMA_FILE_PRIVATE, 1);
	fixture->vmas[1] = new_vma(HEAP, HEAP_PAGES, SP_VMA_ANONYMOUS, 0);
	fixture->vmas[2] = new_vma(STACK, 3, SP_VMA_STACK, 0);
	for (size_t i = 0; i < 3; i++)
		fixture->pages[i] = vma_range(&fixture->vmas[i]);
	fixture->vma_count = 3;
	fixture->thread_count = fixture->file_count = fixture->descriptor_count = 2;
	fixture->heap_state = SP_PAGE_DATA;
	for (size_t i = 0; i < sizeof(fixture->heap); i++)
		fixture->heap[i] = (uint8_t)(i / 16);
	fixture->level = SP_COMPRESS_DEFAULT;
	return fixture;
}

static inline int read_heap(void *context, uint64_t offset, void *buffer, size_t size,
                            struct sp_error *err)
{
	struct fixture *fixture = context;

	memcpy(buffer, fixture->heap + (offset - fixture->pages[1].start), size);
	return 0;
}

static inline int write_records(struct sp_record_writer *records, struct fixture *fixture,
                                struct sp_error *err)
{
	int status = sp_record_write(records, SP_RECORD_PROCESS, &fixture->process.base, err);

	for (size_t i = 0; i < fixture->ended_count && status == 0; i++)
		status = sp_record_write(records, SP_RECORD_PROCESS, &fixture->ended[i].base, err);
	for (size_t i = 0; i < fixture->thread_count && status == 0; i++)
		status = sp_record_write(records, SP_RECORD_THREAD, &fixture->threads[i].base, err);
	for (size_t i = 0; i < fixture->vma_count && status == 0; i++)
		status = sp_record_write(records, SP_RECORD_VMA, &fixture->vmas[i].base, err);
	for (size_t i = 0; i < fixture->file_count && status == 0; i++)
		status =
		        sp_record_write(records, SP_RECORD_OPEN_FILE, &fixture->files[i].base, err);
	for (size_t i = 0; i < fixture->descriptor_count && status == 0; i++)
		status = sp_record_write(records, SP_RECORD_DESCRIPTOR,
		                         &fixture->descriptors[i].base, err);
	return status;
}

static inline int write_heap(struct sp_page_writer *pages, struct fixture *fixture, uint32_t object,
                             uint32_t source, struct sp_error *err)
{
	struct sp_range range = fixture->pages[1], page = {range.start, range.start + SP_PAGE_SIZE};
	int status = 0;

	if (!fixture->in_parent)
		return sp_page_writer_add(pages, object, range, fixture->heap_state, source, err);
	for (unsigned i = 0; page.end <= range.end && status == 0; i++) {
		status = sp_page_writer_add(pages, object, page,
		                            fixture->in_parent >> i & 1 ? SP_PAGE_PARENT
		                                                        : fixture->heap_state,
		                            source, err);
		page = (struct sp_range){page.end, page.end + SP_PAGE_SIZE};
	}
	return status;
}

static inline int write_pages(struct sp_page_writer *pages, struct fixture *fixture,
                              struct sp_error *err)
{
	static const enum sp_page_state outer[] = {SP_PAGE_FILE, 0, SP_PAGE_HOLE};
	uint32_t object = sp_page_writer_new_object(pages);
	uint32_t source = sp_page_writer_add_source(
	        pages, (struct sp_page_source){.read = read_heap, .context = fixture});
	int status = 0;

	if (sp_range_size(fixture->early) > 0) {
		status = sp_page_writer_add(pages, object, fixture->early, SP_PAGE_ZERO, 0, err);
		if (status == 0)
			status = sp_page_writer_next_layer(pages, err);
	}
	for (size_t i = 0; i < 3 && status == 0; i++) {
		if (i == 1 && sp_range_size(fixture->pages[i]) > 0)
			status = write_heap(pages, fixture, object, source, err);
		else if (sp_range_size(fixture->pages[i]) > 0)
			status = sp_page_writer_add(pages, object, fixture->pages[i], outer[i],
			                            source, err);
	}
	return status;
}

/** Writes the fixture as a checkpoint; what failed is in `err`. */
static inline int try_write(struct fixture *fixture, const char *path, struct sp_error *err)
{
	struct sp_page_writer_options options = {.level = fixture->level, .workers = 2};
	struct sp_checkpoint_writer writer;
	int status = sp_checkpoint_create(&writer, path, &options, err);

	if (status < 0)
		return status;
	status = write_records(&writer.records, fixture, err);
	if (status == 0)
		status = write_pages(writer.pages, fixture, err);
	if (status == 0)
		return sp_checkpoint_commit(&writer, &fixture->manifest, NULL, err);
	sp_checkpoint_abandon(&writer);
	return status;
}

static inline void write_fixture(struct fixture *fixture, const char *path)
{
	struct sp_error err = {0};

	if (try_write(fixture, path, &err) < 0)
		fail_msg("%s", err.message);
}

/** Writes the fixture as "N" in the scratch directory, a checkpoint that stands on "N-1"; 0 on none. */
static inline void write_member(struct scratch *scratch, struct fixture *fixture, unsigned number)
{
	sp_cleanup_free char *path = sp_format("%s/%u", scratch->path, number);
	sp_cleanup_free char *parent = sp_format("%s/%u", scratch->path, number - 1);
	sp_cleanup_free char *relative = sp_format("../%u", number - 1);
	uint8_t id[SP_CHECKPOINT_ID_SIZE];
	struct sp_error err = {0};

	if (number > 0) {
		if (sp_checkpoint_read_id(parent, id, &err) < 0)
			fail_msg("%s", err.message);
		fixture->manifest.parent_path = relative;
		fixture->manifest.parent_id = (ProtobufCBinaryData){sizeof(id), id};
	}
	write_fixture(fixture, path);
	fixture->manifest.parent_path = (char *)"";
	fixture->manifest.parent_id = (ProtobufCBinaryData){0};
}

static inline char *in_scratch(struct scratch *scratch, const char *name)
{
	return sp_format("%s/%s", scratch->path, name);
}

static inline int try_open(const char *path, struct sp_error *err)
{
	struct sp_checkpoint *checkpoint;
	int status;

	*err = (struct sp_error){0};
	status = sp_checkpoint_open(&checkpoint, path, err);
	if (status == 0)
		sp_checkpoint_close(checkpoint);
	return status;
}

static inline void assert_says(const struct sp_error *err, const char *words)
{
	if (!strstr(err->message, words))
		fail_msg("\"%s\" does not say \"%s\"", err->message, words);
}

#endif
