/*
 * Segments that a program has described to the processor, to run 16-bit or 32-bit code, as Wine does: those of the
 * process, in its local descriptor table (modify_ldt(2)), and three of each thread (set_thread_area(2), which a 64-bit
 * program calls by int $0x80). Selectors are registers, and have to find them when those are set.
 */
#include "kinds/registry.h"

#include "base/array.h"

#include "segments.pb-c.h"

#include <asm/ldt.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define LDT_READ 0
#define LDT_WRITE 0x11 /* with all bits meaning what they say */
/* linux/asm/segment.h: GDT_ENTRY_TLS_MIN of 64-bit kernels */
#define THREAD_FIRST 12
#define THREAD_COUNT 3
/* asm/ptrace-abi.h */
#define GET_THREAD_AREA 25
#define SET_THREAD_AREA 26

/* struct user_desc with its bits in one number */
struct flat {
	uint32_t number, base, limit, flags;
};

_Static_assert(sizeof(struct flat) == sizeof(struct user_desc), "all of a segment is saved");

enum { WRITABLE_NOT = 1 << 3, PRESENT_NOT = 1 << 5 };

static void add(Sealpoint__Segments *message, Sealpoint__Segment *items, const struct flat *segment)
{
	Sealpoint__Segment *item = &items[message->n_segments];

	sealpoint__segment__init(item);
	item->number = segment->number;
	item->start = segment->base;
	item->limit = segment->limit;
	item->flags = segment->flags;
	message->segments[message->n_segments++] = item;
}

/* Packs what was added, if anything was. */
static void pack(const Sealpoint__Segments *message, struct sp_blob *body)
{
	if (message->n_segments)
		sp_blob_pack(body, &message->base);
}

static Sealpoint__Segments *unpack(ProtobufCBinaryData body, uint32_t first, uint32_t count,
                                   struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Segments *message =
	        sp_blob_unpack(body, &sealpoint__segments__descriptor, err);

	for (size_t i = 0; message && i < message->n_segments; i++)
		if (message->segments[i]->number - first >= count) {
			sp_fail_damaged(err, "an impossible segment %u",
			                message->segments[i]->number);
			return NULL;
		}
	return sp_steal_ptr(&message);
}

static struct flat flatten(const Sealpoint__Segment *item)
{
	return (struct flat){item->number, item->start, item->limit, item->flags};
}

/* --- of a thread --- */

static int save_of_thread(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__Segments message = SEALPOINT__SEGMENTS__INIT;
	Sealpoint__Segment items[THREAD_COUNT], *pointers[THREAD_COUNT];

	message.segments = pointers;
	for (uintptr_t i = THREAD_FIRST; i < THREAD_FIRST + THREAD_COUNT; i++) {
		struct flat segment = {};

		if (ptrace((enum __ptrace_request)GET_THREAD_AREA, saver->thread->tid, i,
		           &segment) < 0)
			break; /* a kernel without 32-bit programs */
		if (segment.base || segment.limit || segment.flags != (WRITABLE_NOT | PRESENT_NOT))
			add(&message, items, &segment);
	}
	pack(&message, body);
	return 0;
}

static int rebuild_of_thread(struct sp_facet_builder *builder, ProtobufCBinaryData body,
                             struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Segments *message =
	        unpack(body, THREAD_FIRST, THREAD_COUNT, err);

	for (size_t i = 0; message && i < message->n_segments; i++) {
		struct flat segment = flatten(message->segments[i]);

		if (ptrace((enum __ptrace_request)SET_THREAD_AREA, builder->thread->tid,
		           (uintptr_t)segment.number, &segment) < 0)
			return sp_fail_errno(err, errno,
			                     "cannot set segment %u (set_thread_area(2))",
			                     segment.number);
	}
	return message ? 0 : -EBADMSG;
}

static int check_of_thread(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Segments *message =
	        unpack(body, THREAD_FIRST, THREAD_COUNT, err);

	return message ? 0 : -EBADMSG;
}

/* --- of a process --- */

/* A descriptor as the processor has it. */
static struct flat parse(uint64_t descriptor, uint32_t number)
{
	uint32_t low = (uint32_t)descriptor, high = (uint32_t)(descriptor >> 32);
	bool writable = high >> 9 & 1, present = high >> 15 & 1;

	return (struct flat){
	        .number = number,
	        .base = low >> 16 | (high & 0xff) << 16 | (high & 0xff000000),
	        .limit = (low & 0xffff) | (high & 0xf0000),
	        .flags = (high >> 22 & 1) | (high >> 10 & 3) << 1 | (writable ? 0 : WRITABLE_NOT) |
	                 (high >> 23 & 1) << 4 | (present ? 0 : PRESENT_NOT) |
	                 (high >> 20 & 1) << 6,
	};
}

static void pack_table(const uint64_t *table, struct sp_blob *body)
{
	sp_cleanup_free Sealpoint__Segment *items = sp_alloc(LDT_ENTRIES * sizeof(*items));
	sp_cleanup_free Sealpoint__Segment **pointers = sp_alloc(LDT_ENTRIES * sizeof(*pointers));
	Sealpoint__Segments message = SEALPOINT__SEGMENTS__INIT;

	message.segments = pointers;
	for (uint32_t i = 0; i < LDT_ENTRIES; i++)
		if (table[i]) {
			struct flat segment = parse(table[i], i);

			add(&message, items, &segment);
		}
	pack(&message, body);
}

static int ask_of_process(struct sp_facet_saver *saver, struct sp_error *err)
{
	remote_addr room = sp_batch_room(saver->remote, LDT_ENTRY_SIZE);

	saver->asked->call = sp_batch_try(saver->remote, "look for a local descriptor table",
	                                  SYS_modify_ldt, LDT_READ, room, LDT_ENTRY_SIZE, 0, 0, 0);
	return 0;
}

static int save_of_process(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	sp_cleanup_free uint64_t *table = NULL;
	const size_t size = LDT_ENTRIES * LDT_ENTRY_SIZE;
	remote_addr room;
	int rc;

	if (sp_batch_result(saver->remote, saver->asked->call) <= 0)
		return 0; /* there is none, or no such call */
	room = sp_batch_room(saver->remote, size);
	rc = sp_remote_call(saver->remote, NULL, err, "read the local descriptor table",
	                    SYS_modify_ldt, LDT_READ, room, size, 0, 0, 0);
	if (rc < 0)
		return rc;
	table = sp_alloc(size);
	rc = sp_batch_read(saver->remote, room, table, size, err);
	if (rc == 0)
		pack_table(table, body);
	return rc;
}

static int rebuild_of_process(struct sp_facet_builder *builder, ProtobufCBinaryData body,
                              struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Segments *message = unpack(body, 0, LDT_ENTRIES, err);
	int rc = 0;

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_segments && rc == 0; i++) {
		struct flat segment = flatten(message->segments[i]);

		sp_batch_call(builder->remote, "set a segment (modify_ldt(2))", SYS_modify_ldt,
		              LDT_WRITE, sp_batch_put(builder->remote, &segment, sizeof(segment)),
		              sizeof(segment), 0, 0, 0);
		rc = sp_batch_make_room(builder->remote, err);
	}
	return rc;
}

static int check_of_process(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Segments *message = unpack(body, 0, LDT_ENTRIES, err);

	return message ? 0 : -EBADMSG;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Segments *message = unpack(body, 0, LDT_ENTRIES, NULL);

	if (message)
		snprintf(text, size, "%zu", message->n_segments);
}

const struct sp_facet sp_facet_segments = {
        .name = "segments",
        .title = "segments",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_THREADS,
        .save = save_of_thread,
        .rebuild = rebuild_of_thread,
        .describe = describe,
        .check = check_of_thread,
};

const struct sp_facet sp_facet_shared_segments = {
        .name = "shared_segments",
        .title = "local segments",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .ask = ask_of_process,
        .save = save_of_process,
        .rebuild = rebuild_of_process,
        .describe = describe,
        .check = check_of_process,
};
