/*
 * Writing the table of open files into a checkpoint: one record for each open file, its kind's
 * message in it, and one for each descriptor.
 */
#include "kinds/file_table.h"

#include "base/cleanup.h"
#include "kinds/file_locks.h"
#include "kinds/file_owner.h"

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
	if (file->number < 0)
		return sp_error_context(err, "cannot save the mapped file %s of process %d",
		                        file->link, file->pid);
	return sp_error_context(err, "cannot save descriptor %d of process %d (%s %s)",
	                        file->number, file->pid, file->kind->title, file->link);
}

/*
 * Asks the kind for its message and the owner. `*refused`: the file cannot be saved, and somebody lists
 * what cannot.
 */
static int save_body(const struct sp_file_table *table, struct sp_file_saver *saver,
                     const struct sp_open_file *file, struct sp_blob *body,
                     Sealpoint__FileOwner *owner, bool *has_owner, bool *refused,
                     struct sp_error *err)
{
	int rc = 0;

	*has_owner = false;
	*refused = !file->kind;
	if (file->kind)
		rc = sp_file_owner_save(file, owner, has_owner, err);
	if (!rc && file->kind)
		rc = file->kind->save(saver, file, body, err);
	if (!rc)
		return 0;
	*refused = true;
	return sp_error_collect(table->refusals, name_file(file, err), err);
}

static int save_file(const struct sp_file_table *table, struct sp_file_saver *saver,
                     const struct sp_open_file *file, struct sp_record_writer *records,
                     struct sp_error *err)
{
	sp_cleanup(sp_blob_release) struct sp_blob body = {0};
	sp_cleanup_array struct sp_array locks = SP_ARRAY_OF(Sealpoint__FileLock);
	sp_cleanup_array struct sp_array lock_pointers = SP_ARRAY_OF(Sealpoint__FileLock *);
	const struct sp_open_file *first = sp_file_table_same_inode(table, file, NULL);
	Sealpoint__OpenFile record = SEALPOINT__OPEN_FILE__INIT;
	Sealpoint__FileOwner owner = SEALPOINT__FILE_OWNER__INIT;
	bool has_owner, refused;
	int rc = save_body(table, saver, file, &body, &owner, &has_owner, &refused, err);

	if (rc)
		return rc;
	record.id = file->id;
	record.kind = refused ? file->link : (char *)file->kind->name;
	record.flags = (uint32_t)file->flags;
	record.mapping_only = file->number < 0;
	record.owner = has_owner ? &owner : NULL;
	record.body.data = body.bytes;
	record.body.len = body.size;
	record.same_inode = first == file ? 0 : first->id;
	record_locks(table, &record, &locks, &lock_pointers);
	return sp_record_write(records, SP_RECORD_OPEN_FILE, &record.base, err);
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
	if (saver->pages && lock_connections(table, saver, err))
		return -err->code;
	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_open_file *file = sp_file_table_at(table, id);
		int rc = save_file(table, saver, file, records, err);

		if (rc)
			return rc;
	}
	for (size_t i = 0; i < table->descriptors.count; i++) {
		int rc = save_descriptor(sp_array_at(&table->descriptors, i), records, err);

		if (rc)
			return rc;
	}
	return 0;
}
