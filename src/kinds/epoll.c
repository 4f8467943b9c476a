/*
 * epoll(7): an interest list. fdinfo tells it item by item; it is rebuilt by the restored process
 * itself, when all its descriptors are in place, since an item remembers the number that it was
 * added with.
 *
 * An item belongs to an open file, not to a number. A program may close or reuse the number while
 * another descriptor, of any process, keeps the file, and with it the item, alive. kcmp(2) tells, and
 * for sockets, whose inode is theirs alone, the inode number does. For each kcmp(2) the kernel walks
 * through the list from its start, which for 10,000 eventfds takes 1.3 s together; there is no other
 * question that answers this and changes nothing. To add such an item again, the file gets its old
 * number for a moment.
 *
 * What was ready to be reported is found out again by the kernel when an item is added. An
 * edge-triggered item of a file that is ready is therefore reported once more, as after any
 * EPOLL_CTL_MOD.
 *
 * A one-shot item that has fired has no events left, but EPOLL_CTL_ADD always adds EPOLLERR and
 * EPOLLHUP. So it is added for every event and fired, before the rest of the list is there. A file
 * on which nothing at all can be reported now (an empty pipe) stays armed for errors and hang-up
 * alone.
 */
#include "kinds/registry.h"

#include "kinds/file_build.h"
#include "kinds/file_table.h"
#include "proc/fdinfo.h"

#include "epoll.pb-c.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#define MODES (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)
#define ALL_EVENTS (EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLRDNORM | EPOLLWRNORM)

static bool claims(const struct sp_open_file *file)
{
	return !strcmp(file->link, "anon_inode:[eventpoll]");
}

/* --- saving --- */

/* An item as a line of fdinfo tells it. */
struct item {
	int number;
	uint32_t events;
	uint64_t data;
	uint64_t inode;
	uint32_t place; /* in the list, then among those with this number, as kcmp(2) counts */
};

static int parse_item(const char *text, struct item *item, struct sp_error *err)
{
	uint64_t number, events, position, inode;

	if (!sp_fdinfo_field(&text, "", 10, &number) ||
	    !sp_fdinfo_field(&text, "events:", 16, &events) ||
	    !sp_fdinfo_field(&text, "data:", 16, &item->data) ||
	    !sp_fdinfo_field(&text, "pos:", 10, &position) ||
	    !sp_fdinfo_field(&text, "ino:", 16, &inode))
		return sp_fail(err, ENODATA, "its fdinfo has an item that sealpoint cannot read");
	item->number = (int)number;
	item->events = (uint32_t)events;
	item->inode = inode;
	return 0;
}

/* Is it the file that was added? 1 or 0, or a negative errno. */
static int is_watched(const struct sp_open_file *epoll, const struct sp_open_file *file,
                      const struct item *item)
{
	struct kcmp_epoll_slot slot = {
	        .efd = (__u32)epoll->number,
	        .tfd = (__u32)item->number,
	        .toff = item->place,
	};
	long result;

	if (!file || file->number < 0 || file->stat.st_ino != item->inode)
		return 0;
	if (S_ISSOCK(file->stat.st_mode))
		return 1;
	result =
	        syscall(SYS_kcmp, file->living, epoll->living, KCMP_EPOLL_TFD, file->number, &slot);
	return result < 0 ? -errno : result == 0;
}

/* The file that was added: 1 or 0, or a negative errno. More often than not it is the first guess. */
static int find_watched(const struct sp_file_table *table, const struct sp_open_file *epoll,
                        const struct item *item, const struct sp_open_file **file)
{
	int found;

	*file = sp_file_table_lookup(table, epoll->pid, item->number);
	found = is_watched(epoll, *file, item);
	for (uint32_t id = 1; id <= table->files.count && !found; id++) {
		*file = sp_file_table_at(table, id);
		found = is_watched(epoll, *file, item);
	}
	return found;
}

static int save_item(struct sp_file_saver *saver, const struct sp_open_file *epoll,
                     const struct item *item, Sealpoint__EpollItem *saved, struct sp_error *err)
{
	const struct sp_open_file *file;
	int found = find_watched(saver->table, epoll, item, &file);

	if (found < 0)
		return sp_fail_errno(err, -found, "cannot compare what it watches by number %d",
		                     item->number);
	if (!found)
		return sp_fail(err, ENOTSUP,
		               "it watches a file that was added as descriptor %d and that only a "
		               "process outside of the dump keeps open; let the program remove it "
		               "(EPOLL_CTL_DEL) before it closes the descriptor",
		               item->number);
	sealpoint__epoll_item__init(saved);
	saved->number = (uint32_t)item->number;
	saved->file = file->id;
	saved->events = item->events;
	saved->data = item->data;
	return 0;
}

static int read_items(const char *fdinfo, struct sp_array *items, struct sp_error *err)
{
	for (const char *line = sp_fdinfo_find(fdinfo, "tfd:"); line;
	     line = sp_fdinfo_find(line, "tfd:"))
		if (parse_item(line, sp_array_push(items), err) < 0)
			return -err->code;
	return 0;
}

static int compare_items(const void *a, const void *b)
{
	const struct item *one = a, *other = b;

	return sp_compare((uint64_t)one->number, (uint64_t)other->number)
	               ?: sp_compare(one->place, other->place);
}

/* Sorts them by number, and counts those that have the same. */
static void sort_items(struct sp_array *sorted)
{
	struct item *items = sorted->items;

	for (size_t i = 0; i < sorted->count; i++)
		items[i].place = (uint32_t)i;
	sp_array_sort(sorted, compare_items);
	for (size_t i = 0; i < sorted->count; i++)
		items[i].place =
		        i && items[i].number == items[i - 1].number ? items[i - 1].place + 1 : 0;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Epoll message = SEALPOINT__EPOLL__INIT;
	sp_cleanup_array struct sp_array items = SP_ARRAY_OF(struct item);
	sp_cleanup_free Sealpoint__EpollItem *saved = NULL;
	sp_cleanup_free Sealpoint__EpollItem **list = NULL;

	if (read_items(file->fdinfo, &items, err) < 0)
		return -err->code;
	if (items.count && file->in_flight)
		return sp_fail(
		        err, ENOTSUP,
		        "an epoll set that watches something knows it by the descriptors of the "
		        "process that has sent it; let the program receive it first");
	sort_items(&items);
	saved = sp_alloc_zeroed(items.count + 1, sizeof(*saved));
	list = sp_alloc_zeroed(items.count + 1, sizeof(*list));
	for (size_t i = 0; i < items.count; i++) {
		list[i] = &saved[i];
		if (save_item(saver, file, sp_array_at(&items, i), list[i], err) < 0)
			return -err->code;
	}
	message.items = list;
	message.n_items = items.count;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- rebuilding --- */

static int open_epoll(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                      struct sp_error *err)
{
	*fd = epoll_create1(EPOLL_CLOEXEC);
	if (*fd < 0)
		return sp_fail_errno(err, errno, "cannot make an epoll set");
	return 0;
}

static bool is_disarmed(const Sealpoint__EpollItem *item)
{
	return (item->events & EPOLLONESHOT) && !(item->events & ~(uint32_t)MODES);
}

static struct epoll_event event_of(const Sealpoint__EpollItem *item)
{
	return (struct epoll_event){
	        .events = item->events | (is_disarmed(item) ? ALL_EVENTS : 0),
	        .data.u64 = item->data,
	};
}

static void batch_add(struct sp_remote *remote, uint64_t epoll_number,
                      const Sealpoint__EpollItem *item)
{
	const struct epoll_event event = event_of(item);

	sp_batch_call(remote, "add to the epoll set", SYS_epoll_ctl, epoll_number, EPOLL_CTL_ADD,
	              item->number, sp_batch_put(remote, &event, sizeof(event)), 0, 0);
}

/*
 * Adds a file by a number that it does not have any more: whatever has it gives way for as long. (The
 * process takes no lock on a file before all is settled: it would lose it here.)
 */
static int add_by_old_number(struct sp_file_builder *builder, uint64_t epoll_number,
                             const Sealpoint__EpollItem *item, struct sp_error *err)
{
	const Sealpoint__Descriptor *occupant =
	        sp_file_builder_lookup(builder, builder->pid, item->number);
	struct sp_remote *remote = builder->remote;
	int64_t taken, aside = -1;
	int rc = sp_files_take_over(builder, item->file, &taken, err);

	if (!rc && occupant)
		rc = sp_remote_call(remote, &aside, err, "put a descriptor aside", SYS_fcntl,
		                    item->number, F_DUPFD_CLOEXEC, 0, 0, 0, 0);
	if (rc)
		return rc;
	sp_batch_begin(remote);
	if (taken != item->number)
		sp_batch_call(remote, "give a file its old number", SYS_dup3, (uint64_t)taken,
		              item->number, 0, 0, 0, 0);
	batch_add(remote, epoll_number, item);
	sp_batch_call(remote, "close a descriptor", SYS_close, (uint64_t)taken, 0, 0, 0, 0, 0);
	if (occupant) {
		sp_batch_call(remote, "put a descriptor back", SYS_dup3, (uint64_t)aside,
		              item->number, occupant->close_on_exec ? O_CLOEXEC : 0, 0, 0, 0);
		sp_batch_call(remote, "close a descriptor", SYS_close, (uint64_t)aside, 0, 0, 0, 0,
		              0);
	} else if (taken != item->number) {
		sp_batch_call(remote, "close a descriptor", SYS_close, item->number, 0, 0, 0, 0, 0);
	}
	return sp_batch_run(remote, err);
}

static bool has_number(const struct sp_file_builder *builder, const Sealpoint__EpollItem *item)
{
	const Sealpoint__Descriptor *descriptor =
	        sp_file_builder_lookup(builder, builder->pid, item->number);

	return descriptor && descriptor->file == item->file;
}

/*
 * Lets the process add all items that are disarmed, or all that are not. Returns how many it were.
 */
static int add_items(struct sp_file_builder *builder, uint64_t epoll_number,
                     const Sealpoint__Epoll *message, bool disarmed, struct sp_error *err)
{
	struct sp_remote *remote = builder->remote;
	int added = 0;

	sp_batch_begin(remote);
	for (size_t i = 0; i < message->n_items; i++) {
		const Sealpoint__EpollItem *item = message->items[i];

		if (is_disarmed(item) != disarmed || !has_number(builder, item))
			continue;
		if (sp_batch_make_room(remote, err) < 0)
			return -err->code;
		batch_add(remote, epoll_number, item);
		added++;
	}
	if (sp_batch_run(remote, err) < 0)
		return -err->code;
	for (size_t i = 0; i < message->n_items; i++) {
		const Sealpoint__EpollItem *item = message->items[i];

		if (is_disarmed(item) != disarmed || has_number(builder, item))
			continue;
		if (add_by_old_number(builder, epoll_number, item, err) < 0)
			return -err->code;
		added++;
	}
	return added;
}

/* Takes what is ready, which disarms it. Only one-shot items are in the set yet, so this ends. */
static void fire(int epoll)
{
	struct epoll_event events[256];

	while (epoll_wait(epoll, events, 256, 0) > 0)
		;
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Epoll *message =
	        sp_blob_unpack(file->body, &sealpoint__epoll__descriptor, err);
	uint64_t number = (uint64_t)builder->numbers[file->id];
	int disarmed;

	if (!message)
		return -EBADMSG;
	disarmed = add_items(builder, number, message, true, err);
	if (disarmed < 0)
		return disarmed;
	if (disarmed)
		fire(builder->fds[file->id]);
	return add_items(builder, number, message, false, err) < 0 ? -err->code : 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Epoll *message =
	        sp_blob_unpack(body, &sealpoint__epoll__descriptor, NULL);

	if (message)
		snprintf(text, size, "%zu descriptors watched", message->n_items);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Epoll *message =
	        sp_blob_unpack(file->body, &sealpoint__epoll__descriptor, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_items; i++)
		if (!sp_checkpoint_file(checkpoint, message->items[i]->file))
			return sp_fail_damaged(err, "an epoll set that watches an unknown file");
	return 0;
}

const struct sp_file_kind sp_kind_epoll = {
        .name = "epoll",
        .title = "epoll set",
        .claims = claims,
        .save = save,
        .open = open_epoll,
        .settle = settle,
        .describe = describe,
        .check = check,
};
