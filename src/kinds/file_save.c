/*
 * Writing the table of open files into a checkpoint: one record for each open file, its kind's
 * message in it, and one for each descriptor.
 */
#include "kinds/file_table.h"

#include "base/cleanup.h"
#include "image/pool.h"
#include "kinds/file_locks.h"
#include "kinds/file_owner.h"
#include "kinds/inherit.h"
#include "kinds/registry.h"

int sp_file_save_contents(struct sp_file_saver *saver, const struct sp_open_file *file,
                          uint32_t *object, struct sp_error *err)
{
	*object = 0;
	if (file->stat.st_size == 0 || sp_file_table_same_inode(saver->table, file, NULL) != file)
		return 0;
	if (!saver->pages)
		return 0;
	return sp_content_save(saver->pages, file->fd, (uint64_t)file->stat.st_size, object, err);
}

#define MANY 64 /* open files, from which on workers are worth their start */

/* Fills in the record's locks; `messages` and `pointers` keep them. */
static void record_locks(const struct sp_file_table *table, Sealpoint__OpenFile *record,
                         struct sp_array *messages, struct sp_array *pointers)
{
	for (size_t i = 0; i < table->locks.count; i++) {
		const struct sp_file_lock *lock = sp_array_at(&table->locks, i);
		Sealpoint__FileLock message = SEALPOINT__FILE_LOCK__INIT;

		if (lock->file != record->id)
			continue;
		message.type = lock->type;
		message.pid = (uint32_t)lock->pid;
		message.exclusive = lock->exclusive;
		message.start = lock->start;
		message.length = lock->length;
		sp_array_append(messages, &message);
	}
	for (size_t i = 0; i < messages->count; i++)
		*(Sealpoint__FileLock **)sp_array_push(pointers) = sp_array_at(messages, i);
	record->locks = pointers->items;
	record->n_locks = pointers->count;
}

static int name_file(const struct sp_open_file *file, struct sp_error *err)
{
	if (file->in_flight)
		return sp_error_context(err,
		                        "cannot save what was sent through a unix socket and not "
		                        "received yet (%s %s)",
		                        file->kind->title, file->link);
	if (file->number < 0)
		return sp_error_context(err, "cannot save the mapped file %s of process %d",
		                        file->link, file->pid);
	return sp_error_context(err, "cannot save descriptor %d of process %d (%s %s)",
	                        file->number, file->pid, file->kind->title, file->link);
}

/* A file on its way into its record. */
struct saving {
	const struct sp_open_file *file;
	struct sp_blob body;
	Sealpoint__FileOwner owner;
	bool has_owner;
	struct sp_error err; /* why it cannot be saved */
};

/* What is needed for all of them. */
struct save_files {
	const struct sp_file_table *table;
	struct sp_file_saver *saver;
	struct sp_record_writer *records;
};

/* Asks the kind for its message and the owner. */
static void ask_kind(const struct save_files *all, struct saving *saving)
{
	const struct sp_open_file *file = saving->file;

	if (!sp_file_owner_save(all->saver, file, &saving->owner, &saving->has_owner, &saving->err))
		file->kind->save(all->saver, file, &saving->body, &saving->err);
}

static int write_record(const struct save_files *all, const struct saving *saving, bool refused,
                        struct sp_error *err)
{
	const struct sp_open_file *file = saving->file;
	const struct sp_open_file *first = sp_file_table_same_inode(all->table, file, NULL);
	sp_cleanup_array struct sp_array locks = SP_ARRAY_OF(Sealpoint__FileLock);
	sp_cleanup_array struct sp_array lock_pointers = SP_ARRAY_OF(Sealpoint__FileLock *);
	Sealpoint__FileOrigin origin = SEALPOINT__FILE_ORIGIN__INIT;
	Sealpoint__OpenFile record = SEALPOINT__OPEN_FILE__INIT;

	record.id = file->id;
	record.kind = refused ? file->link : (char *)file->kind->name;
	record.flags = (uint32_t)file->flags;
	record.mapping_only = sp_file_is_mapping_only(file);
	record.owner = saving->has_owner ? (Sealpoint__FileOwner *)&saving->owner : NULL;
	sp_file_origin(file, &origin);
	record.origin = record.mapping_only ? NULL : &origin;
	record.body.data = saving->body.bytes;
	record.body.len = saving->body.size;
	record.same_inode = first == file ? 0 : first->id;
	if (S_ISSOCK(file->stat.st_mode)) {
		record.socket_uid = file->stat.st_uid;
		record.socket_gid = file->stat.st_gid;
	}
	record_locks(all->table, &record, &locks, &lock_pointers);
	return sp_record_write(all->records, SP_RECORD_OPEN_FILE, &record.base, err);
}

/* One that nobody claims, or that is refused, has a record all the same if somebody lists what cannot be saved. */
static int save_file(const struct save_files *all, struct saving *saving, struct sp_error *err)
{
	bool refused = !saving->file->kind || saving->err.code;
	int rc = 0;

	if (saving->err.code) {
		*err = saving->err;
		rc = sp_error_collect(all->table->refusals, name_file(saving->file, err), err);
	}
	if (!rc)
		rc = write_record(all, saving, refused, err);
	sp_blob_release(&saving->body);
	return rc;
}

static bool is_apart(const struct sp_open_file *file)
{
	return file->kind && file->kind->apart;
}

static int run_apart(void *context, unsigned worker, void *job, struct sp_error *err)
{
	struct saving *saving = *(struct saving **)job;

	if (is_apart(saving->file))
		ask_kind(context, saving);
	return 0;
}

static int complete(void *context, void *job, struct sp_error *err)
{
	struct saving *saving = *(struct saving **)job;

	if (saving->file->kind && !is_apart(saving->file))
		ask_kind(context, saving);
	return save_file(context, saving, err);
}

/* By several workers, that read the files in any order, which are written in theirs. */
static int save_by_workers(struct save_files *all, struct saving *files, size_t count,
                           struct sp_error *err)
{
	const struct sp_pool_work work = {.context = all,
	                                  .job_size = sizeof(struct saving *),
	                                  .places = MANY,
	                                  .run = run_apart,
	                                  .complete = complete};
	struct sp_pool *pool;
	int rc = sp_pool_start(&pool, &work, sp_pool_default_workers(), err);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !sp_pool_failed(pool); i++) {
		*(struct saving **)sp_pool_claim(pool) = &files[i];
		sp_pool_submit(pool);
	}
	return sp_pool_finish(pool, err);
}

static int save_all(struct save_files *all, struct sp_error *err)
{
	size_t count = all->table->files.count, apart = 0;
	sp_cleanup_free struct saving *files = sp_alloc_zeroed(count + 1, sizeof(*files));
	int rc = 0;

	for (size_t i = 0; i < count; i++) {
		files[i].file = sp_file_table_at(all->table, (uint32_t)i + 1);
		sealpoint__file_owner__init(&files[i].owner);
		apart += is_apart(files[i].file);
	}
	if (apart >= MANY)
		rc = save_by_workers(all, files, count, err);
	for (size_t i = 0; i < count && !rc && apart < MANY; i++) {
		struct saving *file = &files[i];

		run_apart(all, 0, &file, err);
		rc = complete(all, &file, err);
	}
	for (size_t i = 0; i < count; i++)
		sp_blob_release(&files[i].body);
	return rc;
}

static int save_descriptor(const struct sp_descriptor *descriptor, struct sp_record_writer *records,
                           struct sp_error *err)
{
	Sealpoint__Descriptor record = SEALPOINT__DESCRIPTOR__INIT;

	record.pid = (uint32_t)descriptor->pid;
	record.number = (uint32_t)descriptor->number;
	record.file = descriptor->file;
	record.close_on_exec = descriptor->close_on_exec;
	return sp_record_write(records, SP_RECORD_DESCRIPTOR, &record.base, err);
}

/* Those that are found are looked into as well: sockets are sent through sockets. */
static int add_files_in_flight(struct sp_file_table *table, struct sp_error *err)
{
	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_file_kind *kind = sp_file_table_at(table, id)->kind;

		if (!kind || !kind->look_inside || !kind->look_inside(table, id, err))
			continue;
		name_file(sp_file_table_at(table, id), err);
		if (sp_error_collect(table->refusals, -err->code, err))
			return -err->code;
	}
	return 0;
}

/* Of a unix socket only the other end is lost. */
static void resolve_kinds(const struct sp_file_table *table, const struct sp_file_saver *saver)
{
	for (uint32_t id = 1; id <= table->files.count; id++) {
		struct sp_open_file *file = sp_file_table_at(table, id);

		if (file->kind && file->kind->resolve)
			file->kind = file->kind->resolve(table, file);
		if (file->kind && file->kind != &sp_kind_unix_socket &&
		    !sp_file_is_mapping_only(file) && sp_file_is_external(saver->options, file))
			file->kind = &sp_kind_external;
	}
}

const struct sp_open_file *sp_file_table_find_external(const struct sp_file_table *table,
                                                       dev_t device)
{
	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_open_file *file = sp_file_table_at(table, id);

		if (file->kind == &sp_kind_external && file->stat.st_rdev == device)
			return file;
	}
	return NULL;
}

/* All at once, before the first of them is looked at. */
static int lock_connections(struct sp_file_table *table, const struct sp_file_saver *saver,
                            struct sp_error *err)
{
	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_open_file *file = sp_file_table_at(table, id);
		struct sp_connection connection = {.fd = file->fd};

		if (file->kind && file->kind->connects &&
		    file->kind->connects(saver, file, &connection))
			sp_connection_lock_add(&table->lock, &connection);
	}
	return sp_connection_lock_take(&table->lock, err);
}

int sp_file_table_save(struct sp_file_table *table, struct sp_file_saver *saver,
                       struct sp_record_writer *records, struct sp_error *err)
{
	saver->table = table;
	if (add_files_in_flight(table, err))
		return -err->code;
	resolve_kinds(table, saver);
	if (saver->pages && lock_connections(table, saver, err))
		return -err->code;
	if (save_all(&(struct save_files){table, saver, records}, err))
		return -err->code;
	for (size_t i = 0; i < table->descriptors.count; i++) {
		int rc = save_descriptor(sp_array_at(&table->descriptors, i), records, err);

		if (rc)
			return rc;
	}
	return 0;
}
