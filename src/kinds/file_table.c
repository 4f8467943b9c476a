/*
 * Reading the open files of a stopped process: see file_table.h.
 *
 * Descriptors are first only looked at through /proc. Those that could be duplicates of each other
 * (same inode, same flags) are put in order with kcmp(2), whose result is an order of the kernel's
 * objects made for this; so n duplicates or n eventfds cost n log n comparisons, and only one
 * descriptor of each open file is taken over.
 */
#include "kinds/file_table.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/limit.h"
#include "kinds/file_locks.h"
#include "kinds/socket_options.h"
#include "kinds/unix_queue.h"
#include "kinds/unsupported.h"
#include "proc/fdinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* A descriptor as /proc shows it. */
struct seen {
	pid_t pid, living; /* as in struct sp_open_file */
	int number;
	uint32_t file;       /* the id of its open file, 0 while not known */
	struct seen *leader; /* the one of lowest number that refers to the same open file */
	struct sp_fdinfo info;
	struct stat stat;
	char *fdinfo;
};

void sp_file_table_init(struct sp_file_table *table)
{
	table->files = SP_ARRAY_OF(struct sp_open_file);
	table->descriptors = SP_ARRAY_OF(struct sp_descriptor);
	table->locks = SP_ARRAY_OF(struct sp_file_lock);
	table->inodes = SP_ARRAY_OF(uint32_t);
	table->mappings = SP_ARRAY_OF(struct sp_file_mapping);
	table->lock = SP_CONNECTION_LOCK_NONE;
}

static void release_file(struct sp_open_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	free(file->link);
	free(file->fdinfo);
	if (file->queue)
		sp_unix_queue_release(file->queue);
	free(file->queue);
}

void sp_file_table_release(struct sp_file_table *table)
{
	for (uint32_t id = 1; id <= table->files.count; id++)
		release_file(sp_file_table_at(table, id));
	sp_array_release(&table->files);
	sp_array_release(&table->descriptors);
	sp_array_release(&table->locks);
	sp_array_release(&table->inodes);
	sp_array_release(&table->mappings);
	sp_connection_lock_release(&table->lock);
}

struct sp_open_file *sp_file_table_at(const struct sp_file_table *table, uint32_t id)
{
	return sp_array_at(&table->files, id - 1);
}

/* --- looking at descriptors --- */

static void seen_release(struct sp_array *seen)
{
	for (size_t i = 0; i < seen->count; i++)
		free(((struct seen *)sp_array_at(seen, i))->fdinfo);
	sp_array_release(seen);
}

static int look_at(struct seen *seen, int fd_dir, int fdinfo_dir, const char *name,
                   struct sp_error *err)
{
	size_t size;

	seen->number = atoi(name);
	if (fstatat(fd_dir, name, &seen->stat, 0))
		return sp_fail_errno(err, errno, "cannot examine descriptor %s", name);
	if (sp_read_file(fdinfo_dir, name, &seen->fdinfo, &size, err))
		return sp_error_context(err, "cannot read the fdinfo of descriptor %s", name);
	if (sp_fdinfo_parse(seen->fdinfo, &seen->info, err))
		return sp_error_context(err, "cannot use the fdinfo of descriptor %s", name);
	/* Read with room to spare; there may be a million of them. */
	seen->fdinfo = realloc(seen->fdinfo, size + 1);
	return 0;
}

static int look_at_all(struct sp_array *seen, const struct sp_process *process,
                       struct sp_error *err)
{
	pid_t living = sp_process_living(process);
	sp_cleanup_free char *fd_path = sp_format("/proc/%d/fd", living);
	sp_cleanup_free char *fdinfo_path = sp_format("/proc/%d/fdinfo", living);
	sp_cleanup_dir DIR *dir = opendir(fd_path);
	sp_cleanup_close int fdinfo_dir = open(fdinfo_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!dir || fdinfo_dir < 0)
		return sp_fail_errno(err, errno, "cannot open %s", dir ? fdinfo_path : fd_path);
	for (;;) {
		struct dirent *entry;
		struct seen *one;
		int rc;

		errno = 0;
		entry = readdir(dir);
		if (!entry)
			break;
		if (entry->d_name[0] == '.')
			continue;
		one = sp_array_push(seen);
		one->pid = process->pid;
		one->living = living;
		rc = look_at(one, dirfd(dir), fdinfo_dir, entry->d_name, err);
		if (rc)
			return rc;
	}
	return errno ? sp_fail_errno(err, errno, "cannot read %s", fd_path) : 0;
}

/* --- finding duplicates --- */

static int compare_inodes(const struct stat *a, const struct stat *b)
{
	return sp_compare(a->st_dev, b->st_dev) ?: sp_compare(a->st_ino, b->st_ino);
}

/*
 * 0 only if both refer to the same open file. `failed` gets the errno of a kcmp(2) that cannot
 * tell.
 */
static int compare_open_files(const struct seen *a, const struct seen *b, int *failed)
{
	int order = compare_inodes(&a->stat, &b->stat);
	long result;

	if (order || a == b)
		return order;
	if (a->info.flags != b->info.flags)
		return sp_compare((unsigned)a->info.flags, (unsigned)b->info.flags);
	result = syscall(SYS_kcmp, a->living, b->living, KCMP_FILE, a->number, b->number);
	if (result < 0)
		*failed = errno;
	return result == 1 ? -1 : result == 2 ? 1 : 0;
}

static int compare_seen(const void *a, const void *b, void *failed)
{
	return compare_open_files(*(struct seen *const *)a, *(struct seen *const *)b, failed);
}

/*
 * Descriptors in `order` from `start` on that refer to one open file; returns where the next one
 * begins. The leader is the first of the newly seen ones, those without a file.
 */
static size_t find_run(const struct sp_array *order, size_t start, int *failed)
{
	struct seen **items = order->items;
	struct seen *leader = NULL;
	uint32_t file = 0;
	size_t end = start;

	for (; end < order->count && !compare_open_files(items[start], items[end], failed); end++) {
		if (items[end]->file)
			file = items[end]->file;
		else if (!leader || items[end]->number < leader->number)
			leader = items[end];
	}
	for (size_t i = start; i < end; i++) {
		items[i]->leader = leader;
		items[i]->file = file;
	}
	return end;
}

/*
 * For every newly seen descriptor: sets its leader, and the id of its open file if that is in the
 * table already, from another process.
 */
static int find_duplicates(const struct sp_file_table *table, struct sp_array *seen,
                           struct sp_error *err)
{
	sp_cleanup_array struct sp_array known = SP_ARRAY_OF(struct seen);
	sp_cleanup_array struct sp_array order = SP_ARRAY_OF(struct seen *);
	int failed = 0;

	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_open_file *file = sp_file_table_at(table, id);

		if (file->number >= 0)
			sp_array_append(&known, &(struct seen){.pid = file->pid,
			                                       .living = file->living,
			                                       .number = file->number,
			                                       .file = id,
			                                       .info.flags = file->flags,
			                                       .stat = file->stat});
	}
	for (size_t i = 0; i < known.count; i++)
		*(struct seen **)sp_array_push(&order) = sp_array_at(&known, i);
	for (size_t i = 0; i < seen->count; i++)
		*(struct seen **)sp_array_push(&order) = sp_array_at(seen, i);
	if (order.count)
		qsort_r(order.items, order.count, order.item_size, compare_seen, &failed);
	for (size_t i = 0; i < order.count;)
		i = find_run(&order, i, &failed);
	if (failed)
		return sp_fail_errno(err, failed,
		                     "cannot tell duplicated descriptors apart with kcmp(2)");
	return 0;
}

/* --- the index by inode --- */

static int compare_ids(const void *a, const void *b, void *table)
{
	uint32_t id_a = *(const uint32_t *)a, id_b = *(const uint32_t *)b;
	int order = compare_inodes(&sp_file_table_at(table, id_a)->stat,
	                           &sp_file_table_at(table, id_b)->stat);

	return order ? order : sp_compare(id_a, id_b);
}

static void sort_index(struct sp_file_table *table)
{
	if (table->inodes.count)
		qsort_r(table->inodes.items, table->inodes.count, table->inodes.item_size,
		        compare_ids, table);
}

/* Brings the id that was added last to its place. */
static void sort_last(struct sp_file_table *table)
{
	uint32_t *ids = table->inodes.items;
	size_t place = table->inodes.count - 1;
	uint32_t id = ids[place];

	for (; place > 0 && compare_ids(&ids[place - 1], &id, table) > 0; place--)
		ids[place] = ids[place - 1];
	ids[place] = id;
}

/* The open file of the inode with the lowest id from `from` on, or NULL. */
static const struct sp_open_file *find_inode(const struct sp_file_table *table,
                                             const struct stat *inode, uint32_t from)
{
	const uint32_t *ids = table->inodes.items;
	size_t low = 0, high = table->inodes.count;
	const struct sp_open_file *found;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = compare_inodes(&sp_file_table_at(table, ids[middle])->stat, inode);

		if (order < 0 || (!order && ids[middle] < from))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == table->inodes.count)
		return NULL;
	found = sp_file_table_at(table, ids[low]);
	return compare_inodes(&found->stat, inode) ? NULL : found;
}

const struct sp_open_file *sp_file_table_same_inode(const struct sp_file_table *table,
                                                    const struct sp_open_file *file,
                                                    const struct sp_open_file *previous)
{
	return find_inode(table, &file->stat, previous ? previous->id + 1 : 1);
}

const struct sp_open_file *sp_file_table_find_socket(const struct sp_file_table *table,
                                                     const struct sp_open_file *socket,
                                                     uint64_t inode)
{
	struct stat wanted = {.st_dev = socket->stat.st_dev, .st_ino = inode};

	return inode ? find_inode(table, &wanted, 1) : NULL;
}

/* --- adding open files --- */

/* Once for all kinds: each of them asks. */
static void look_at_socket(struct sp_open_file *file)
{
	file->socket.domain = sp_socket_number(file->fd, SO_DOMAIN);
	file->socket.type = sp_socket_number(file->fd, SO_TYPE);
	file->socket.protocol = sp_socket_number(file->fd, SO_PROTOCOL);
}

/* Moves the file into the table and finds its kind. The caller keeps the index in order. */
static int add_file(struct sp_file_table *table, struct sp_open_file *file, uint32_t *id,
                    struct sp_error *err)
{
	struct sp_open_file *added = sp_array_append(&table->files, file);

	*file = (struct sp_open_file){.fd = -1};
	*id = added->id = (uint32_t)table->files.count;
	sp_array_append(&table->inodes, id);
	if (S_ISSOCK(added->stat.st_mode))
		look_at_socket(added);
	for (size_t i = 0; sp_file_kinds[i] && !added->kind; i++)
		if (sp_file_kinds[i]->claims(added))
			added->kind = sp_file_kinds[i];
	if (added->kind)
		return 0;
	return sp_error_collect(table->refusals, sp_refuse_unsupported(added, err), err);
}

/* Adds the open file of a descriptor: takes it over from the process. */
static int add_seen(struct sp_file_table *table, const struct sp_process *process,
                    struct seen *seen, struct sp_error *err)
{
	sp_cleanup_free char *link_path = sp_format("/proc/%d/fd/%d", seen->living, seen->number);
	sp_cleanup(release_file) struct sp_open_file file = {
	        .fd = sp_process_duplicate(process, seen->number),
	        .pid = seen->pid,
	        .living = seen->living,
	        .number = seen->number,
	        .flags = seen->info.flags,
	        .position = seen->info.position,
	        .mount_id = seen->info.mount_id,
	        .stat = seen->stat,
	        .fdinfo = sp_steal_ptr(&seen->fdinfo),
	};
	int rc;

	if (file.fd < 0)
		return sp_fail_errno(err, errno, "cannot duplicate descriptor %d of process %d",
		                     seen->number, seen->pid);
	rc = sp_read_link(AT_FDCWD, link_path, &file.link, err);
	return rc ? rc : add_file(table, &file, &seen->file, err);
}

/*
 * Adds the locks that the descriptor's process has on the file; `is_new`: the open file's own, too.
 */
static int add_locks(struct sp_file_table *table, const struct seen *seen, bool is_new,
                     struct sp_error *err)
{
	const struct sp_open_file *file = sp_file_table_at(table, seen->file);
	const char *fdinfo = is_new ? file->fdinfo : seen->fdinfo;

	if (!sp_file_locks_read(&table->locks, file->id, seen->pid, fdinfo, is_new, err))
		return 0;
	sp_error_context(err, "cannot save descriptor %d of process %d (%s)", seen->number,
	                 seen->pid, file->link);
	return sp_error_collect(table->refusals, -err->code, err);
}

/*
 * Adds the descriptor, its open file if that is new, and its process's locks on it. /proc lists
 * descriptors in ascending order, so a leader comes before those that it leads.
 */
static int add_descriptor(struct sp_file_table *table, const struct sp_process *process,
                          struct seen *seen, struct sp_error *err)
{
	bool leads = seen->leader == seen, is_new = leads && !seen->file;
	int rc = 0;

	if (is_new)
		rc = add_seen(table, process, seen, err);
	else if (!seen->file)
		seen->file = seen->leader->file;
	if (!rc && leads)
		rc = add_locks(table, seen, is_new, err);
	if (rc)
		return rc;
	sp_array_append(&table->descriptors,
	                &(struct sp_descriptor){.pid = seen->pid,
	                                        .number = seen->number,
	                                        .file = seen->file,
	                                        .close_on_exec = seen->info.close_on_exec});
	return 0;
}

static int compare_descriptors(const void *a, const void *b)
{
	const struct sp_descriptor *one = a, *other = b;

	return sp_compare((uint64_t)one->pid, (uint64_t)other->pid)
	               ?: sp_compare((uint64_t)one->number, (uint64_t)other->number);
}

int sp_file_table_add_process(struct sp_file_table *table, struct sp_process *process,
                              struct sp_error *err)
{
	sp_cleanup(seen_release) struct sp_array seen = SP_ARRAY_OF(struct seen);
	size_t files = table->files.count;
	int rc = sp_raise_descriptor_limit(0, err);

	if (!rc && look_at_all(&seen, process, err))
		return sp_error_context(err, "cannot read the descriptors of process %d",
		                        process->pid);
	if (!rc)
		rc = find_duplicates(table, &seen, err);
	for (size_t i = 0; i < seen.count && !rc; i++)
		rc = add_descriptor(table, process, sp_array_at(&seen, i), err);
	if (table->files.count > files)
		sort_index(table);
	sp_array_sort(&table->descriptors, compare_descriptors);
	return rc;
}

const struct sp_open_file *sp_file_table_lookup(const struct sp_file_table *table, pid_t pid,
                                                int number)
{
	const struct sp_descriptor key = {.pid = pid, .number = number};
	const struct sp_descriptor *found =
	        sp_array_search(&table->descriptors, &key, compare_descriptors);

	return found ? sp_file_table_at(table, found->file) : NULL;
}

/* --- files without a descriptor --- */

static bool can_back(const struct sp_open_file *file, bool needs_write)
{
	return sp_file_is_mapping_only(file) &&
	       (!needs_write || (file->flags & O_ACCMODE) == O_RDWR);
}

/* A mapping-only file of the inode that serves, or NULL. */
static const struct sp_open_file *find_mapping_only(const struct sp_file_table *table,
                                                    const struct stat *inode, bool needs_write)
{
	const struct sp_open_file *file = find_inode(table, inode, 1);

	while (file && !can_back(file, needs_write))
		file = find_inode(table, inode, file->id + 1);
	return file;
}

/*
 * Opening a device, a socket or a FIFO does something: those are only pointed at, for the kind (or
 * the refusal) to look at.
 */
static int open_mapped(const char *path, const struct stat *stat)
{
	return open(path, O_CLOEXEC | (S_ISREG(stat->st_mode) ? O_RDONLY : O_PATH));
}

static int add_mapping_only(struct sp_file_table *table, pid_t pid, const char *path,
                            const struct stat *stat, bool shared, bool writable, uint32_t *id,
                            struct sp_error *err)
{
	sp_cleanup(release_file) struct sp_open_file file = {
	        .fd = open_mapped(path, stat),
	        .pid = pid,
	        .living = pid,
	        .number = -1,
	        .flags = writable ? O_RDWR : O_RDONLY,
	        .stat = *stat,
	        .fdinfo = sp_strdup(""),
	        .map_shared = shared,
	        .map_writable = writable,
	};
	int rc;

	if (file.fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", path);
	rc = sp_read_link(AT_FDCWD, path, &file.link, err);
	if (!rc)
		rc = add_file(table, &file, id, err);
	if (!rc)
		sort_last(table);
	return rc;
}

int sp_file_table_add_mapping(struct sp_file_table *table, pid_t pid, struct sp_range range,
                              bool shared, bool writable, const char *path, uint32_t *id,
                              struct sp_error *err)
{
	sp_cleanup_free char *link =
	        sp_format("/proc/%d/map_files/%llx-%llx", pid, (unsigned long long)range.start,
	                  (unsigned long long)range.end);
	const struct sp_open_file *known;
	struct stat inode, entry;

	/* The entry's own mode tells how the file was opened that the mapping was made from. */
	if (stat(link, &inode) || (shared && lstat(link, &entry)))
		return sp_fail_errno(err, errno, "cannot examine %s, the mapping of %s", link,
		                     path);
	writable = shared && (writable || entry.st_mode & S_IWUSR);
	known = find_mapping_only(table, &inode, writable);
	if (known) {
		*id = known->id;
		sp_file_table_at(table, known->id)->map_shared |= shared;
	} else if (add_mapping_only(table, pid, link, &inode, shared, writable, id, err)) {
		return sp_error_context(err, "cannot save the mapping of %s at %#llx", path,
		                        (unsigned long long)range.start);
	}
	sp_array_append(&table->mappings, &(struct sp_file_mapping){*id, pid});
	return 0;
}

int sp_file_table_add_executable(struct sp_file_table *table, pid_t pid, uint32_t *id,
                                 struct sp_error *err)
{
	sp_cleanup_free char *link = sp_format("/proc/%d/exe", pid);
	const struct sp_open_file *known;
	struct stat inode;

	if (stat(link, &inode))
		return sp_fail_errno(err, errno, "cannot examine the executable of process %d",
		                     pid);
	known = find_mapping_only(table, &inode, false);
	if (known) {
		*id = known->id;
		return 0;
	}
	if (add_mapping_only(table, pid, link, &inode, false, false, id, err))
		return sp_error_context(err, "cannot save the executable of process %d", pid);
	return 0;
}

/* --- files in flight --- */

static const struct sp_open_file *find_open_file(const struct sp_file_table *table, int fd,
                                                 const struct stat *inode)
{
	const struct sp_open_file *file = find_inode(table, inode, 1);
	pid_t self = getpid();

	while (file && (sp_file_is_mapping_only(file) ||
	                syscall(SYS_kcmp, self, self, KCMP_FILE, fd, file->fd) != 0))
		file = find_inode(table, inode, file->id + 1);
	return file;
}

/* What /proc shows of our own descriptor is true of the open file. Takes `fd` over. */
static int add_own(struct sp_file_table *table, int fd, const struct stat *stat, uint32_t *id,
                   struct sp_error *err)
{
	sp_cleanup_free char *link_path = sp_format("/proc/self/fd/%d", fd);
	sp_cleanup_free char *fdinfo_path = sp_format("/proc/self/fdinfo/%d", fd);
	sp_cleanup(release_file) struct sp_open_file file = {.fd = fd,
	                                                     .pid = getpid(),
	                                                     .living = getpid(),
	                                                     .number = -1,
	                                                     .in_flight = true,
	                                                     .stat = *stat};
	struct sp_fdinfo info;
	int rc = sp_read_file(AT_FDCWD, fdinfo_path, &file.fdinfo, &(size_t){0}, err);

	if (!rc)
		rc = sp_fdinfo_parse(file.fdinfo, &info, err);
	if (!rc)
		rc = sp_read_link(AT_FDCWD, link_path, &file.link, err);
	if (rc)
		return rc;
	file.flags = info.flags;
	file.position = info.position;
	file.mount_id = info.mount_id;
	rc = add_file(table, &file, id, err);
	sort_last(table);
	return rc ? rc : add_locks(table, &(struct seen){.file = *id}, true, err);
}

int sp_file_table_add_in_flight(struct sp_file_table *table, int fd, uint32_t *id,
                                struct sp_error *err)
{
	const struct sp_open_file *known;
	struct stat stat;
	int rc;

	if (fstat(fd, &stat)) {
		rc = sp_fail_errno(err, errno, "cannot examine a descriptor in flight");
		close(fd);
		return rc;
	}
	known = find_open_file(table, fd, &stat);
	if (!known)
		return add_own(table, fd, &stat, id, err);
	*id = known->id;
	return close(fd);
}
