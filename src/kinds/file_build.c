/* Opening, placing and settling descriptors: see file_build.h. */
#include "kinds/file_build.h"

#include "base/cleanup.h"
#include "base/limit.h"
#include "kinds/connection_lock.h"
#include "kinds/file_locks.h"
#include "kinds/file_owner.h"
#include "kinds/inherit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* What fcntl(F_SETFL) can change; O_ASYNC has to wait for the process (settle_async). */
#define STATUS_FLAGS (O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME)

/* What sealpoint has open beside the files of the checkpoint, generously. */
#define OWN_DESCRIPTORS 64

static size_t file_count(const struct sp_file_builder *builder)
{
	return builder->checkpoint->files.count;
}

static const Sealpoint__OpenFile *file_at(const struct sp_file_builder *builder, size_t index)
{
	return sp_array_pointer(&builder->checkpoint->files, index);
}

static const Sealpoint__Descriptor *descriptor_at(const struct sp_file_builder *builder,
                                                  size_t index)
{
	return sp_array_pointer(&builder->descriptors, index);
}

/* --- what the checkpoint wants --- */

static int compare_descriptors(const void *a, const void *b)
{
	const Sealpoint__Descriptor *one = *(const Sealpoint__Descriptor *const *)a;
	const Sealpoint__Descriptor *other = *(const Sealpoint__Descriptor *const *)b;

	return sp_compare(one->pid, other->pid) ?: sp_compare(one->number, other->number);
}

static int list_descriptors(struct sp_file_builder *builder, struct sp_error *err)
{
	const struct sp_array *all = &builder->checkpoint->descriptors;

	for (size_t i = 0; i < all->count; i++) {
		const Sealpoint__Descriptor *descriptor = sp_array_pointer(all, i);

		if (descriptor->number >= INT_MAX ||
		    !sp_checkpoint_file(builder->checkpoint, descriptor->file))
			return sp_fail_damaged(err, "an impossible descriptor %u of process %u",
			                       descriptor->number, descriptor->pid);
		sp_array_append(&builder->descriptors, &descriptor);
		sp_parking_reserve(&builder->parking, descriptor->number, descriptor->file);
	}
	sp_array_sort(&builder->descriptors, compare_descriptors);
	sp_parking_plan(&builder->parking, (uint32_t)file_count(builder));
	for (size_t i = 1; i < all->count; i++)
		if (!compare_descriptors(sp_array_at(&builder->descriptors, i - 1),
		                         sp_array_at(&builder->descriptors, i)))
			return sp_fail_damaged(
			        err, "descriptor %u of process %u, which is there twice",
			        descriptor_at(builder, i)->number, descriptor_at(builder, i)->pid);
	return 0;
}

int sp_file_builder_init(struct sp_file_builder *builder, const struct sp_checkpoint *checkpoint,
                         const struct sp_kind_options *options, struct sp_log *log,
                         struct sp_error *err)
{
	int rc;

	*builder = (struct sp_file_builder){
	        .checkpoint = checkpoint,
	        .options = options,
	        .log = log,
	        .descriptors = SP_ARRAY_OF(const Sealpoint__Descriptor *),
	        .undo = SP_ARRAY_OF(struct sp_file_undo),
	};
	sp_parking_init(&builder->parking);
	builder->fds = sp_alloc((file_count(builder) + 1) * sizeof(int));
	builder->numbers = sp_alloc((file_count(builder) + 1) * sizeof(int));
	builder->given = sp_alloc_zeroed(file_count(builder) + 1, sizeof(bool));
	builder->far_ends = sp_alloc((file_count(builder) + 1) * sizeof(int));
	builder->lock = sp_alloc(sizeof(*builder->lock));
	*builder->lock = SP_CONNECTION_LOCK_NONE;
	for (size_t id = 0; id <= file_count(builder); id++)
		builder->fds[id] = builder->numbers[id] = builder->far_ends[id] = -1;
	rc = list_descriptors(builder, err);
	if (!rc)
		rc = sp_raise_descriptor_limit(sp_parking_size(&builder->parking, OWN_DESCRIPTORS),
		                               err);
	return rc;
}

const Sealpoint__Descriptor *sp_file_builder_lookup(const struct sp_file_builder *builder,
                                                    pid_t pid, uint32_t number)
{
	Sealpoint__Descriptor key = {.pid = (uint32_t)pid, .number = number};
	const Sealpoint__Descriptor *wanted = &key;
	Sealpoint__Descriptor **found =
	        sp_array_search(&builder->descriptors, &wanted, compare_descriptors);

	return found ? *found : NULL;
}

void sp_file_builder_on_failure(struct sp_file_builder *builder, struct sp_file_undo undo)
{
	sp_array_append(&builder->undo, &undo);
}

static void unlink_path(void *path)
{
	unlink(path);
}

void sp_file_builder_made(struct sp_file_builder *builder, const char *path)
{
	sp_file_builder_on_failure(builder, (struct sp_file_undo){unlink_path, sp_strdup(path)});
}

void sp_file_builder_complete(struct sp_file_builder *builder)
{
	for (size_t i = 0; i < builder->undo.count; i++)
		free(((struct sp_file_undo *)sp_array_at(&builder->undo, i))->context);
	sp_array_clear(&builder->undo);
}

static void close_all(const struct sp_file_builder *builder, int *fds)
{
	for (size_t id = 1; fds && id <= file_count(builder); id++) {
		if (fds[id] >= 0)
			close(fds[id]);
		fds[id] = -1;
	}
}

void sp_file_builder_release(struct sp_file_builder *builder)
{
	for (size_t i = builder->undo.count; i > 0; i--) {
		struct sp_file_undo *step = sp_array_at(&builder->undo, i - 1);

		step->undo(step->context);
	}
	sp_file_builder_complete(builder);
	close_all(builder, builder->fds);
	close_all(builder, builder->far_ends);
	if (builder->lock)
		sp_connection_lock_release(builder->lock);
	free(builder->lock);
	free(builder->fds);
	free(builder->numbers);
	free(builder->far_ends);
	free(builder->given);
	sp_array_release(&builder->descriptors);
	sp_parking_release(&builder->parking);
	sp_array_release(&builder->undo);
	builder->fds = builder->numbers = builder->far_ends = NULL;
	builder->given = NULL;
	builder->lock = NULL;
}

/* --- errors that name the file --- */

/* Finds a descriptor by which a person knows the file. */
static const Sealpoint__Descriptor *some_descriptor(const struct sp_file_builder *builder,
                                                    uint32_t id)
{
	for (size_t i = 0; i < builder->descriptors.count; i++)
		if (descriptor_at(builder, i)->file == id)
			return descriptor_at(builder, i);
	return NULL;
}

static int name_file(const struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     struct sp_error *err)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);
	const Sealpoint__Descriptor *descriptor = some_descriptor(builder, file->id);
	char text[256] = "";

	if (kind && kind->describe)
		kind->describe(file->body, text, sizeof(text));
	if (!descriptor)
		return sp_error_context(err, "cannot restore %s (%s%s%s)",
		                        file->mapping_only ? "a mapped file"
		                                           : "what was sent through a unix socket",
		                        kind ? kind->title : file->kind, *text ? " " : "", text);
	return sp_error_context(err, "cannot restore descriptor %u of process %u (%s%s%s)",
	                        descriptor->number, descriptor->pid,
	                        kind ? kind->title : file->kind, *text ? " " : "", text);
}

/* --- checking --- */

static int check_file(const struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                      struct sp_error *err)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);

	if (!kind)
		return sp_fail(err, ENOTSUP,
		               "this version of sealpoint does not know the kind \"%s\"; restore "
		               "with the version that wrote the checkpoint, or a newer one",
		               file->kind);
	if (file->same_inode >= file->id)
		return sp_fail_damaged(err, "an impossible file");
	return kind->check ? kind->check(builder->checkpoint, file, err) : 0;
}

int sp_files_check(struct sp_file_builder *builder, struct sp_error *err)
{
	for (size_t i = 0; i < file_count(builder); i++)
		if (check_file(builder, file_at(builder, i), err))
			return name_file(builder, file_at(builder, i), err);
	sp_inherited_warn(builder);
	return 0;
}

/* --- opening --- */

static int set_status_flags(int fd, int flags, struct sp_error *err)
{
	int now, wanted;

	if (flags & O_PATH)
		return 0;
	now = fcntl(fd, F_GETFL);
	wanted = (now & ~STATUS_FLAGS) | (flags & STATUS_FLAGS);
	if (now < 0 || (now != wanted && fcntl(fd, F_SETFL, wanted)))
		return sp_fail_errno(err, errno, "cannot set its status flags");
	return 0;
}

static int set_socket_owner(int fd, const Sealpoint__OpenFile *file, struct sp_error *err)
{
	if ((!file->socket_uid && !file->socket_gid) ||
	    !fchown(fd, file->socket_uid, file->socket_gid))
		return 0;
	return sp_fail_errno(err, errno, "cannot give it to user %u, group %u", file->socket_uid,
	                     file->socket_gid);
}

static int open_file(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                     struct sp_error *err)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);
	int rc = 0;

	if (builder->fds[file->id] < 0)
		rc = kind->open(builder, file, &builder->fds[file->id], err);
	if (!rc)
		rc = sp_parking_park(&builder->parking, file->id, &builder->fds[file->id], err);
	if (!rc && !builder->given[file->id])
		rc = set_socket_owner(builder->fds[file->id], file, err);
	return rc ? rc : set_status_flags(builder->fds[file->id], (int)file->flags, err);
}

/* Before all others: those that are made in pairs see which end is there already. */
static int take_given(struct sp_file_builder *builder, struct sp_error *err)
{
	for (size_t i = 0; i < file_count(builder); i++) {
		const Sealpoint__OpenFile *file = file_at(builder, i);
		const struct sp_inherited *inherited = sp_inherited_find(builder, file);

		if (!inherited)
			continue;
		builder->given[file->id] = true;
		if (sp_inherited_open(inherited, file, &builder->fds[file->id], err))
			return name_file(builder, file, err);
	}
	return 0;
}

/*
 * A connection that was not locked since the dump has gone on, or been reset: whatever a restored program
 * said on it would be taken for something it has said before.
 */
static int lock_connections(struct sp_file_builder *builder, struct sp_error *err)
{
	size_t count = builder->lock->connections.count;

	if (count && !builder->options->tcp_established &&
	    !sp_connection_is_locked(builder->checkpoint->manifest->id.data))
		return sp_fail(
		        err, ENOTCONN,
		        "the checkpoint's %zu TCP connections are not locked here: they were "
		        "restored or let go since, or saved on another machine, and their other "
		        "ends may have gone on; give --tcp-close to restore them closed, or "
		        "--tcp-established if you know that nothing has happened on them",
		        count);
	return sp_connection_lock_take(builder->lock, err);
}

static int join_files(struct sp_file_builder *builder, struct sp_error *err)
{
	for (size_t kind = 0; sp_file_kinds[kind]; kind++) {
		if (!sp_file_kinds[kind]->join)
			continue;
		for (size_t i = 0; i < file_count(builder); i++) {
			const Sealpoint__OpenFile *file = file_at(builder, i);

			if (!builder->given[file->id] &&
			    !strcmp(file->kind, sp_file_kinds[kind]->name) &&
			    sp_file_kinds[kind]->join(builder, file, err))
				return name_file(builder, file, err);
		}
	}
	close_all(builder, builder->far_ends);
	return 0;
}

static bool is_late(const Sealpoint__OpenFile *file)
{
	return sp_file_kind_by_name(file->kind)->late;
}

static int open_files(struct sp_file_builder *builder, bool late, struct sp_error *err)
{
	for (size_t i = 0; i < file_count(builder); i++)
		if (is_late(file_at(builder, i)) == late &&
		    open_file(builder, file_at(builder, i), err))
			return name_file(builder, file_at(builder, i), err);
	return 0;
}

int sp_files_open(struct sp_file_builder *builder, struct sp_error *err)
{
	int rc = take_given(builder, err);

	if (!rc)
		rc = open_files(builder, false, err);
	if (!rc)
		rc = join_files(builder, err);
	return rc ? rc : lock_connections(builder, err);
}

int sp_files_open_late(struct sp_file_builder *builder, struct sp_error *err)
{
	return open_files(builder, true, err);
}

/* --- handing over --- */

/* A process opens sealpoint as a process to take files over from it: the same ones, not copies. */
static int take_over(struct sp_remote *remote, int fd, int64_t *number, struct sp_error *err)
{
	int64_t pidfd;
	int rc = sp_remote_call(remote, &pidfd, err, "open sealpoint's process", SYS_pidfd_open,
	                        (uint64_t)getpid(), 0, 0, 0, 0, 0);

	if (rc)
		return rc;
	rc = sp_remote_call(remote, number, err, "take over a descriptor", SYS_pidfd_getfd,
	                    (uint64_t)pidfd, (uint64_t)fd, 0, 0, 0, 0);
	return rc ? rc
	          : sp_remote_call(remote, NULL, err, "close sealpoint's process", SYS_close,
	                           (uint64_t)pidfd, 0, 0, 0, 0, 0);
}

int sp_files_take_over(struct sp_file_builder *builder, uint32_t file, int64_t *number,
                       struct sp_error *err)
{
	return take_over(builder->remote, builder->fds[file], number, err);
}

/*
 * The process gets it where we have it: there it has nothing that is still needed, as all that it
 * inherited has another number here, too.
 */
static int hand_over(struct sp_remote *remote, int fd, struct sp_error *err)
{
	int64_t taken;
	int rc = take_over(remote, fd, &taken, err);

	if (rc || taken == fd)
		return rc;
	sp_batch_begin(remote);
	sp_batch_call(remote, "move a descriptor", SYS_dup3, (uint64_t)taken, (uint64_t)fd, 0, 0, 0,
	              0);
	sp_batch_call(remote, "close a descriptor", SYS_close, (uint64_t)taken, 0, 0, 0, 0, 0);
	return sp_batch_run(remote, err);
}

int sp_files_hand_over(struct sp_file_builder *builder, struct sp_remote *remote, pid_t pid,
                       struct sp_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < builder->descriptors.count && !rc; i++) {
		const Sealpoint__Descriptor *descriptor = descriptor_at(builder, i);

		if (descriptor->pid == (uint32_t)pid &&
		    is_late(sp_checkpoint_file(builder->checkpoint, descriptor->file)))
			rc = hand_over(remote, builder->fds[descriptor->file], err);
	}
	return rc ? sp_error_context(err, "cannot hand process %d a file", pid) : 0;
}

/* --- placing --- */

static bool belongs_to(const struct sp_file_builder *builder, size_t index, pid_t pid)
{
	return descriptor_at(builder, index)->pid == (uint32_t)pid;
}

static void close_between(struct sp_remote *remote, uint64_t first, uint64_t last)
{
	if (first <= last)
		sp_batch_call(remote, "close sealpoint's descriptors", SYS_close_range, first, last,
		              0, 0, 0, 0);
}

static void put_in_place(const struct sp_file_builder *builder, struct sp_remote *remote,
                         const Sealpoint__Descriptor *descriptor)
{
	uint64_t fd = (uint64_t)builder->fds[descriptor->file];

	if (fd == descriptor->number)
		sp_batch_call(remote, "set close-on-exec", SYS_fcntl, fd, F_SETFD,
		              descriptor->close_on_exec ? FD_CLOEXEC : 0, 0, 0, 0);
	else
		sp_batch_call(remote, "put a descriptor in its place", SYS_dup3, fd,
		              descriptor->number, descriptor->close_on_exec ? O_CLOEXEC : 0, 0, 0,
		              0);
}

int sp_files_place(struct sp_file_builder *builder, struct sp_remote *remote, pid_t pid,
                   struct sp_error *err)
{
	uint64_t next = 0; /* the lowest number that has not been dealt with */
	int rc = 0;

	sp_batch_begin(remote);
	for (size_t i = 0; i < builder->descriptors.count && !rc; i++) {
		const Sealpoint__Descriptor *descriptor = descriptor_at(builder, i);

		if (!belongs_to(builder, i, pid))
			continue;
		put_in_place(builder, remote, descriptor);
		rc = sp_batch_make_room(remote, err);
	}
	/* Only now: the parked ones lie in the gaps. */
	for (size_t i = 0; i < builder->descriptors.count && !rc; i++) {
		if (!belongs_to(builder, i, pid))
			continue;
		if (descriptor_at(builder, i)->number > next)
			close_between(remote, next, descriptor_at(builder, i)->number - 1);
		next = descriptor_at(builder, i)->number + 1ULL;
		rc = sp_batch_make_room(remote, err);
	}
	close_between(remote, next, UINT_MAX);
	if (!rc)
		rc = sp_batch_run(remote, err);
	return rc ? sp_error_context(err, "cannot place the descriptors of process %d", pid) : 0;
}

/* --- settling --- */

/* Fills in builder->numbers, and who settles what belongs to the open file as a whole. */
static void find_numbers(struct sp_file_builder *builder, pid_t *settler)
{
	pid_t root = (pid_t)sp_checkpoint_root(builder->checkpoint)->pid;

	for (size_t id = 1; id <= file_count(builder); id++) {
		builder->numbers[id] = -1;
		settler[id] = root;
	}
	for (size_t i = builder->descriptors.count; i > 0; i--) {
		const Sealpoint__Descriptor *descriptor = descriptor_at(builder, i - 1);

		settler[descriptor->file] = (pid_t)descriptor->pid;
		if (descriptor->pid == (uint32_t)builder->pid)
			builder->numbers[descriptor->file] = (int)descriptor->number;
	}
}

/* The number goes into the siginfo of every signal, so the process itself has to ask for them. */
static int settle_async(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                        struct sp_error *err)
{
	int now = fcntl(builder->fds[file->id], F_GETFL);

	if (!(file->flags & O_ASYNC) || file->flags & O_PATH)
		return 0;
	sp_batch_begin(builder->remote);
	return sp_remote_call(builder->remote, NULL, err, "set O_ASYNC", SYS_fcntl,
	                      (uint64_t)builder->numbers[file->id], F_SETFL,
	                      (uint64_t)(unsigned)(now | O_ASYNC), 0, 0, 0);
}

static int settle_whole(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                        struct sp_error *err)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);
	int rc = 0;

	/* The kind first: what it does shall send no signal. */
	if (kind->settle && !builder->given[file->id])
		rc = kind->settle(builder, file, err);
	if (!rc && file->owner)
		rc = sp_file_owner_set(builder->fds[file->id], file->owner, err);
	if (!rc && builder->numbers[file->id] >= 0)
		rc = settle_async(builder, file, err);
	return rc;
}

int sp_files_settle(struct sp_file_builder *builder, struct sp_remote *remote, pid_t pid,
                    struct sp_error *err)
{
	sp_cleanup_free pid_t *settler = sp_alloc((file_count(builder) + 1) * sizeof(pid_t));
	int rc = 0;

	builder->remote = remote;
	builder->pid = pid;
	find_numbers(builder, settler);
	for (size_t i = 0; i < file_count(builder) && !rc; i++) {
		const Sealpoint__OpenFile *file = file_at(builder, i);

		if (settler[file->id] == pid && settle_whole(builder, file, err))
			rc = name_file(builder, file, err);
	}
	/* A process loses its locks on a file whenever it closes a descriptor of it. */
	for (size_t i = 0; i < file_count(builder) && !rc; i++) {
		const Sealpoint__OpenFile *file = file_at(builder, i);

		if (sp_file_locks_take(builder, file, settler[file->id] == pid, err))
			rc = name_file(builder, file, err);
	}
	builder->remote = NULL;
	return rc;
}

/* --- resuming --- */

int sp_files_resume(struct sp_file_builder *builder, struct sp_error *err)
{
	int rc = 0;

	if (builder->lock->in_image)
		rc = sp_connection_unlock(builder->checkpoint->manifest->id.data, err);
	if (rc && rc != -ENOENT)
		return rc;
	sp_connection_lock_lift(builder->lock);
	for (size_t i = 0; i < file_count(builder); i++) {
		const Sealpoint__OpenFile *file = file_at(builder, i);
		const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);

		if (kind->resume && !builder->given[file->id] && kind->resume(builder, file, err))
			return name_file(builder, file, err);
	}
	return 0;
}
