/*
 * Contexts of asynchronous I/O (io_setup(2), as libaio uses them). A context is a ring of completed
 * requests, which the kernel maps into the process, and whose address is the context's name.
 *
 * At restore the ring is set up anew and moved over the placeholder that the mapping has got. Where it
 * stands is known to the kernel alone, which moves on with each request that completes; so that many
 * requests are made, reads of /dev/null. The last of them are not collected: what the program has
 * still to read is written over them.
 *
 * A request in flight is seen nowhere. Those to disks end by themselves, and a program that stands
 * still makes no more: they are waited for, as long as a disk of the machine is busy. A request that
 * polls a descriptor (IOCB_CMD_POLL) may not end, and is lost: a warning says so.
 */
#include "kinds/registry.h"

#include "base/clock.h"
#include "base/io.h"
#include "proc/file.h"
#include "proc/maps.h"

#include "async_io.pb-c.h"

#include <fcntl.h>
#include <glob.h>
#include <linux/aio_abi.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define MAGIC 0xa10a10a1
#define CHUNK 512U /* requests that are made at once */
#define LOOK_NS 1000000
#define PATIENCE_NS SP_NS_PER_S

/* struct aio_ring of the kernel (fs/aio.c), behind which its slots are. */
struct ring {
	uint32_t id, slots, head, tail, magic, compatible, incompatible, header_size;
};

#define SLOT_SIZE sizeof(struct io_event)

static int move_bytes(bool write, pid_t pid, remote_addr address, void *bytes, size_t size,
                      struct sp_error *err)
{
	return write ? sp_process_write(pid, address, bytes, size, err)
	             : sp_process_read(pid, address, bytes, size, err);
}

/* Beginning with `slot`, as many slots as there are before the end of the ring, of `count`. */
static uint32_t run_of(uint32_t slot, uint32_t slots, uint32_t count)
{
	return count < slots - slot ? count : slots - slot;
}

/* Moves events from or into the ring, in one piece or in two. */
static int move_events(bool write, pid_t pid, const Sealpoint__AsyncContext *context,
                       struct sp_error *err)
{
	uint32_t count = (uint32_t)(context->events.len / SLOT_SIZE);
	uint32_t first = run_of(context->head, context->slots, count);
	uint8_t *bytes = context->events.data;
	remote_addr slots = context->address + sizeof(struct ring);
	int rc = 0;

	if (first)
		rc = move_bytes(write, pid, slots + context->head * SLOT_SIZE, bytes,
		                first * SLOT_SIZE, err);
	if (!rc && count > first)
		rc = move_bytes(write, pid, slots, bytes + first * SLOT_SIZE,
		                (count - first) * SLOT_SIZE, err);
	return rc;
}

/* --- dump --- */

static bool is_sound(const struct ring *ring, uint64_t size)
{
	return ring->magic == MAGIC && ring->header_size == sizeof(*ring) && !ring->incompatible &&
	       ring->slots == (size - sizeof(*ring)) / SLOT_SIZE && ring->head < ring->slots &&
	       ring->tail < ring->slots;
}

/* True if no block device has anything in flight. */
static bool disks_are_idle(void)
{
	glob_t found;
	bool idle = true;

	if (glob("/sys/block/*/inflight", GLOB_NOSORT, NULL, &found))
		return true;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		sp_cleanup_free char *text = NULL;
		unsigned long reads = 0, writes = 0;

		if (!sp_read_file(AT_FDCWD, found.gl_pathv[i], &text, NULL, NULL) &&
		    sscanf(text, "%lu %lu", &reads, &writes) == 2 && reads + writes)
			idle = false;
	}
	globfree(&found);
	return idle;
}

/* Until the disks had nothing to do twice and the ring has not changed in between. */
static int read_idle_ring(pid_t pid, remote_addr address, struct ring *ring, struct sp_error *err)
{
	uint64_t deadline = sp_now_ns() + PATIENCE_NS;
	unsigned idle_looks = 0;
	uint32_t tail = 0;

	while (sp_now_ns() < deadline) {
		bool idle = disks_are_idle();

		if (sp_process_read(pid, address, ring, sizeof(*ring), err))
			return -err->code;
		if (ring->tail != tail)
			idle_looks = 0;
		idle_looks += idle;
		if (idle_looks == 2)
			return 0;
		tail = ring->tail;
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	}
	return sp_fail(
	        err, SP_NOT_YET,
	        "the disks are busy, perhaps with its requests, which have to end first; try "
	        "again when there is less to do");
}

static int save_context(pid_t pid, struct sp_range range, Sealpoint__AsyncContext *context,
                        struct sp_error *err)
{
	struct ring ring;
	uint32_t count;

	sealpoint__async_context__init(context);
	if (read_idle_ring(pid, range.start, &ring, err))
		return -err->code;
	if (!is_sound(&ring, sp_range_size(range)))
		return sp_fail(
		        err, ENOTSUP,
		        "the ring at %#llx is not as the kernel has made it; let the program "
		        "destroy that context first (io_destroy)",
		        (unsigned long long)range.start);
	count = (ring.tail + ring.slots - ring.head) % ring.slots;
	context->address = range.start;
	context->size = sp_range_size(range);
	context->slots = ring.slots;
	context->head = ring.head;
	context->events.len = count * SLOT_SIZE;
	context->events.data = sp_alloc(context->events.len + 1);
	return move_events(false, pid, context, err);
}

static void release_contexts(struct sp_array *contexts)
{
	for (size_t i = 0; i < contexts->count; i++)
		free(((Sealpoint__AsyncContext *)sp_array_at(contexts, i))->events.data);
	sp_array_release(contexts);
}

static int save_contexts(pid_t pid, struct sp_array *contexts, struct sp_error *err)
{
	sp_cleanup_free char *maps = NULL;
	char *rest = NULL;
	int rc = sp_proc_read(pid, "maps", &maps, NULL, err);

	if (rc || !strstr(maps, "/[aio]"))
		return rc;
	for (char *line = strtok_r(maps, "\n", &rest); line && !rc;
	     line = strtok_r(NULL, "\n", &rest)) {
		struct sp_map map;
		const char *path;

		if (sp_map_parse(line, &map, &path) && !strncmp(path, "/[aio]", strlen("/[aio]")))
			rc = save_context(pid, map.range, sp_array_push(contexts), err);
	}
	return rc;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__AsyncIo message = SEALPOINT__ASYNC_IO__INIT;
	sp_cleanup(release_contexts) struct sp_array contexts =
	        SP_ARRAY_OF(Sealpoint__AsyncContext);
	sp_cleanup_array struct sp_array pointers = SP_ARRAY_OF(Sealpoint__AsyncContext *);
	pid_t pid = sp_process_living(saver->process);
	int rc = save_contexts(pid, &contexts, err);

	if (rc || !contexts.count)
		return rc;
	sp_warn(saver->log,
	        "process %d uses asynchronous I/O (io_setup): a request of it that polls a "
	        "descriptor "
	        "(IOCB_CMD_POLL) cannot be seen, and is lost",
	        pid);
	for (size_t i = 0; i < contexts.count; i++)
		*(Sealpoint__AsyncContext **)sp_array_push(&pointers) = sp_array_at(&contexts, i);
	message.contexts = pointers.items;
	message.n_contexts = pointers.count;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- restore --- */

static Sealpoint__AsyncIo *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__AsyncIo *message =
	        sp_blob_unpack(body, &sealpoint__async_io__descriptor, err);

	for (size_t i = 0; message && i < message->n_contexts; i++) {
		const Sealpoint__AsyncContext *context = message->contexts[i];

		if (context->size % SP_PAGE_SIZE || context->size < SP_PAGE_SIZE ||
		    context->slots != (context->size - sizeof(struct ring)) / SLOT_SIZE ||
		    context->head >= context->slots || context->events.len % SLOT_SIZE ||
		    context->events.len / SLOT_SIZE >= context->slots) {
			sp_fail_damaged(err, "an impossible asynchronous I/O context");
			return NULL;
		}
	}
	return sp_steal_ptr(&message);
}

/* The kernel makes room for twice as many as are asked for, and two more, in whole pages. */
static uint64_t requests_for(const Sealpoint__AsyncContext *context)
{
	return (context->slots - 2) / 2;
}

static int set_up(struct sp_remote *remote, const Sealpoint__AsyncContext *context,
                  struct sp_error *err)
{
	remote_addr room, made;
	struct ring ring;
	int rc;

	room = sp_batch_room(remote, sizeof(made));
	sp_batch_call(remote,
	              "set up asynchronous I/O (sysctl fs.aio-max-nr limits the requests of all "
	              "programs)",
	              SYS_io_setup, requests_for(context), room, 0, 0, 0, 0);
	rc = sp_batch_run(remote, err);
	if (!rc)
		rc = sp_batch_read(remote, room, &made, sizeof(made), err);
	if (!rc)
		rc = sp_process_read(remote->process->pid, made, &ring, sizeof(ring), err);
	if (rc)
		return rc;
	if (ring.slots != context->slots)
		return sp_fail(
		        err, ENOTSUP,
		        "a ring for asynchronous I/O has %u slots on this machine, which has "
		        "more processors, and had %u",
		        ring.slots, context->slots);
	return sp_remote_call(remote, NULL, err, "move the ring of asynchronous I/O", SYS_mremap,
	                      made, context->size, context->size, MREMAP_MAYMOVE | MREMAP_FIXED,
	                      context->address, 0);
}

/* Lets `count` requests complete; their events are read again if `collect`. */
static int complete(struct sp_remote *remote, const Sealpoint__AsyncContext *context, int null,
                    uint32_t count, bool collect, struct sp_error *err)
{
	const struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (__u32)null};
	remote_addr addresses[CHUNK], requests, events;
	int64_t made;
	int rc = sp_batch_flush(remote, err);

	if (rc)
		return rc;
	addresses[0] = sp_batch_put(remote, &request, sizeof(request));
	for (uint32_t i = 1; i < count; i++)
		addresses[i] = addresses[0];
	requests = sp_batch_put(remote, addresses, count * sizeof(addresses[0]));
	events = sp_batch_room(remote, CHUNK * SLOT_SIZE);
	rc = sp_remote_call(remote, &made, err, "make requests of asynchronous I/O", SYS_io_submit,
	                    context->address, count, requests, 0, 0, 0);
	if (!rc && made != count)
		rc = sp_fail(err, EAGAIN, "only %lld of %u requests of asynchronous I/O were taken",
		             (long long)made, count);
	if (rc || !collect)
		return rc;
	return sp_remote_call(remote, NULL, err, "collect requests of asynchronous I/O",
	                      SYS_io_getevents, context->address, count, count, events, 0, 0);
}

static int advance(struct sp_remote *remote, const Sealpoint__AsyncContext *context, int null,
                   uint32_t count, bool collect, struct sp_error *err)
{
	int rc = 0;

	while (count && !rc) {
		uint32_t chunk = count < CHUNK ? count : CHUNK;

		if (chunk > requests_for(context))
			chunk = (uint32_t)requests_for(context);
		rc = complete(remote, context, null, chunk, collect, err);
		count -= chunk;
	}
	return rc;
}

static int rebuild_context(struct sp_remote *remote, const Sealpoint__AsyncContext *context,
                           int null, struct sp_error *err)
{
	uint32_t waiting = (uint32_t)(context->events.len / SLOT_SIZE);
	int rc = set_up(remote, context, err);

	if (!rc)
		rc = advance(remote, context, null, context->head, true, err);
	if (!rc)
		rc = advance(remote, context, null, waiting, false, err);
	return rc ? rc : move_events(true, remote->process->pid, context, err);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__AsyncIo *message = unpack(body, err);
	struct sp_remote *remote = builder->remote;
	int64_t null;
	int rc;

	if (!message)
		return -EBADMSG;
	rc = sp_remote_call(remote, &null, err, "open /dev/null", SYS_openat, (uint64_t)AT_FDCWD,
	                    sp_batch_string(remote, "/dev/null"), O_RDONLY, 0, 0, 0);
	for (size_t i = 0; i < message->n_contexts && !rc; i++)
		rc = rebuild_context(remote, message->contexts[i], (int)null, err);
	if (rc)
		return rc;
	return sp_remote_call(remote, NULL, err, "close /dev/null", SYS_close, (uint64_t)null, 0, 0,
	                      0, 0, 0);
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__AsyncIo *message = unpack(body, err);

	return message ? 0 : -EBADMSG;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__AsyncIo *message = unpack(body, NULL);
	size_t waiting = 0;

	if (!message)
		return;
	for (size_t i = 0; i < message->n_contexts; i++)
		waiting += message->contexts[i]->events.len / SLOT_SIZE;
	snprintf(text, size, "%zu contexts, %zu events to read", message->n_contexts, waiting);
}

const struct sp_facet sp_facet_async_io = {
        .name = "async_io",
        .title = "asynchronous I/O",
        .scope = SP_FACET_PROCESS,
        .shared = SP_SHARED_WITH_MEMORY,
        .phase = SP_PHASE_MEMORY,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
