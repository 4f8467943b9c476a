/*
 * userfaultfd write protection served by a thread: the first write to a protected page waits until the
 * thread has noted the page and taken the protection away. The kernel also tells the thread of
 * discarded, unmapped and moved memory.
 *
 * One lock makes two steps one: of the thread, noting a page and unprotecting it; of a reset,
 * forgetting a page and protecting it. Otherwise a page could end unprotected and forgotten. A write
 * that slips in while a reset has forgotten and not yet protected a page is covered by the report of
 * that very call.
 *
 * While a mapping is being changed, protecting fails with EAGAIN until the thread has read the
 * message about it. So nobody waits for that with the lock held.
 */
#include "track/backend.h"
#include "track/scan.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FEATURES                                                                                  \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED |                           \
	 UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | \
	 UFFD_FEATURE_EVENT_REMAP)

static struct sp_range page_at(const struct sp_write_watch *watch, uint64_t address)
{
	uint64_t start = address & ~(watch->page_size - 1);

	return (struct sp_range){start, start + watch->page_size};
}

/* Whoever waits for a page that cannot be unprotected just now tries again. */
static void serve_fault(struct sp_write_watch *watch, uint64_t address)
{
	struct sp_range page = page_at(watch, address);

	sp_watch_note(watch, page);
	if (sp_uffd_unprotect(watch->uffd, page) < 0)
		sp_uffd_wake(watch->uffd, page);
}

static void serve(struct sp_write_watch *watch, const struct uffd_msg *message)
{
	struct sp_range range = {message->arg.remove.start, message->arg.remove.end};

	switch (message->event) {
	case UFFD_EVENT_PAGEFAULT:
		serve_fault(watch, message->arg.pagefault.address);
		return;
	case UFFD_EVENT_REMOVE:
		break;
	case UFFD_EVENT_UNMAP:
		watch->unmapped = true;
		break;
	case UFFD_EVENT_REMAP:
		range.start = message->arg.remap.to;
		range.end = range.start + message->arg.remap.len;
		sp_uffd_unregister(watch->uffd, range);
		range.start = message->arg.remap.from;
		range.end = range.start + message->arg.remap.len;
		watch->unmapped = true;
		break;
	}
	sp_watch_note(watch, range);
}

/*
 * Who discards or unmaps goes on as soon as the message has been read, so it is read under the lock: a
 * get that follows finds it noted.
 */
static void *serve_all(void *context)
{
	struct sp_write_watch *watch = context;
	struct pollfd fds[] = {{.fd = watch->uffd, .events = POLLIN},
	                       {.fd = watch->stop, .events = POLLIN}};
	struct uffd_msg messages[16];
	ssize_t size;

	while (!fds[1].revents) {
		pthread_mutex_lock(&watch->lock);
		size = read(watch->uffd, messages, sizeof(messages));
		for (size_t i = 0; size > 0 && i < (size_t)size / sizeof(*messages); i++)
			serve(watch, &messages[i]);
		pthread_mutex_unlock(&watch->lock);
		if (size < 0)
			poll(fds, 2, -1);
	}
	return NULL;
}

/* Signals of the program are for its own threads. */
static int start_thread(struct sp_write_watch *watch)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&watch->thread, NULL, serve_all, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	watch->has_thread = rc == 0;
	return -rc;
}

static int open_watch(struct sp_write_watch *watch)
{
	bool user_mode_only;
	int rc;

	watch->uffd = sp_uffd_open(&user_mode_only);
	if (watch->uffd < 0)
		return watch->uffd == -ENOSYS || watch->uffd == -EINVAL ? -EOPNOTSUPP : watch->uffd;
	rc = sp_uffd_enable(watch->uffd, FEATURES);
	if (rc < 0)
		return rc == -EINVAL ? -EOPNOTSUPP : rc;
	watch->guarantees = SP_WRITE_WATCH_ATOMIC | SP_WRITE_WATCH_DISCARDS |
	                    SP_WRITE_WATCH_REMAPS | SP_WRITE_WATCH_LOCAL |
	                    SP_WRITE_WATCH_NO_SIGNALS |
	                    (user_mode_only ? 0 : SP_WRITE_WATCH_KERNEL_WRITES);
	watch->stop = eventfd(0, EFD_CLOEXEC);
	if (watch->stop < 0)
		return -errno;
	return start_thread(watch);
}

static int protect(struct sp_write_watch *watch, struct sp_range range)
{
	int rc;

	while ((rc = sp_uffd_protect(watch->uffd, range)) == -EAGAIN) {
		pthread_mutex_unlock(&watch->lock);
		sched_yield();
		pthread_mutex_lock(&watch->lock);
	}
	return rc;
}

static int arm(struct sp_write_watch *watch, struct sp_range range)
{
	int rc = sp_uffd_register(watch->uffd, range);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&watch->lock);
	rc = protect(watch, range);
	pthread_mutex_unlock(&watch->lock);
	return rc;
}

/* Unregistering wakes everybody who waits. A child of fork(2) has no thread, and nothing registered. */
static void close_watch(struct sp_write_watch *watch)
{
	for (size_t i = 0; i < watch->armed && *watch->own_process; i++)
		sp_uffd_unregister(watch->uffd, watch->areas[i].range);
	if (watch->has_thread && *watch->own_process) {
		eventfd_write(watch->stop, 1);
		pthread_join(watch->thread, NULL);
	}
	if (watch->uffd >= 0)
		close(watch->uffd);
	if (watch->stop >= 0)
		close(watch->stop);
}

/*
 * What cannot be protected, because it is not mapped or mapped anew since it was registered, stays
 * written, and is registered before the next reset.
 */
static void protect_reported(struct sp_write_watch *watch, const struct page_region *regions,
                             int count)
{
	for (int i = 0; i < count; i++) {
		struct sp_range range = {regions[i].start, regions[i].end};

		if (protect(watch, range) < 0) {
			sp_watch_note(watch, range);
			watch->unmapped = true;
		}
	}
}

static int get(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
               bool reset, struct page_region *regions, size_t room, uint64_t max_pages)
{
	int count;

	pthread_mutex_lock(&watch->lock);
	if (reset && watch->unmapped) {
		watch->unmapped = false;
		for (size_t i = 0; i < watch->count; i++)
			sp_uffd_register(watch->uffd, watch->areas[i].range);
	}
	count = sp_watch_noted(watch, area, range, reset, regions, room, max_pages);
	if (reset)
		protect_reported(watch, regions, count);
	pthread_mutex_unlock(&watch->lock);
	return count;
}

const struct sp_watch_backend sp_watch_backend_userfault = {
        .id = SP_WRITE_WATCH_USERFAULT,
        .name = "userfault",
        .accounts = true,
        .open = open_watch,
        .arm = arm,
        .close = close_watch,
        .get = get,
};
