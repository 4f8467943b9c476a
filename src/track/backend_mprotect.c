/*
 * mprotect(2) and a handler for SIGSEGV: works on any kernel. The handler notes the page and makes
 * it writable again. It is installed with the first watch and stays; faults that are none of ours
 * go to the handler that was there before.
 *
 * Each run of pages with the same protection is a VMA, and their number is limited
 * (vm.max_map_count). When no more can be had, the handler makes a whole area writable and notes all of
 * it: more is reported, never less.
 */
#include "track/backend.h"
#include "track/watch_list.h"

#include <errno.h>
#include <string.h>

static struct sigaction before;

static int protect(struct sp_range range, int protection)
{
	return mprotect((void *)range.start, sp_range_size(range), protection) < 0 ? -errno : 0;
}

static bool note_fault(uint64_t address)
{
	struct sp_write_watch *watch = sp_watch_list_lock_in_handler();
	struct sp_watch_area *area = NULL;

	for (; watch; watch = watch->next) {
		if (watch->backend == &sp_watch_backend_mprotect)
			area = sp_watch_area_at(watch, address);
		if (area)
			break;
	}
	if (area) {
		uint64_t start = address & ~(watch->page_size - 1);
		struct sp_range page = {start, start + watch->page_size};

		if (protect(page, PROT_READ | PROT_WRITE) == -ENOMEM) {
			page = area->range;
			protect(page, PROT_READ | PROT_WRITE);
		}
		sp_watch_note(watch, page);
	}
	sp_watch_list_unlock_in_handler();
	return area;
}

/* With the default action in place, the faulting instruction is executed again and ends the program. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(signal, info, context);
	else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)
		sigaction(SIGSEGV, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	else
		before.sa_handler(signal);
}

/*
 * A fault in memory that is not watched may be one that was raised just before the watch was closed:
 * the thread tries once more, and only the second fault in a row at the same address is passed on.
 */
static void on_fault(int signal, siginfo_t *info, void *context)
{
	static __thread void *tried __attribute__((tls_model("initial-exec")));
	int saved = errno;

	if (info->si_code == SEGV_ACCERR && note_fault((uintptr_t)info->si_addr)) {
		tried = NULL;
	} else if (info->si_code == SEGV_ACCERR && tried != info->si_addr) {
		tried = info->si_addr;
	} else {
		tried = NULL;
		errno = saved;
		pass_on(signal, info, context);
	}
	errno = saved;
}

static int installed;

static void install(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigfillset(&action.sa_mask);
	installed = sigaction(SIGSEGV, NULL, &before) < 0 || sigaction(SIGSEGV, &action, NULL) < 0
	                    ? -errno
	                    : 0;
}

static bool overlaps(const struct sp_write_watch *watch, const struct sp_write_watch *other)
{
	for (size_t i = 0; i < watch->count; i++)
		for (size_t k = 0; k < other->count; k++)
			if (sp_range_overlaps(watch->areas[i].range, other->areas[k].range))
				return true;
	return false;
}

static int open_watch(struct sp_write_watch *watch)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
	watch->guarantees = SP_WRITE_WATCH_ATOMIC | SP_WRITE_WATCH_LOCAL;
	return installed;
}

static bool listed(const struct sp_write_watch *watch, const struct sp_write_watch *at)
{
	while (at && at != watch)
		at = at->next;
	return at;
}

/* On the list only when the page size is known and something is protected: the handler needs both. */
static int arm(struct sp_write_watch *watch, struct sp_range range)
{
	sigset_t mask;
	struct sp_write_watch *first = sp_watch_list_lock(&mask);
	bool known = listed(watch, first);
	int rc = 0;

	for (struct sp_write_watch *other = first; other && !known; other = other->next)
		if (other->backend == watch->backend && overlaps(watch, other))
			rc = -EBUSY;
	if (rc == 0) /* what the handler could not do is refused now */
		rc = protect(range, PROT_READ | PROT_WRITE);
	if (rc == 0)
		rc = protect(range, PROT_READ);
	if (rc == 0 && !known)
		sp_watch_list_add(watch);
	sp_watch_list_unlock(&mask);
	return rc;
}

static void close_watch(struct sp_write_watch *watch)
{
	sigset_t mask;

	if (listed(watch, sp_watch_list_lock(&mask))) {
		for (size_t i = 0; i < watch->count; i++)
			protect(watch->areas[i].range, PROT_READ | PROT_WRITE);
		sp_watch_list_remove(watch);
	}
	sp_watch_list_unlock(&mask);
}

static int get(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
               bool reset, struct page_region *regions, size_t room, uint64_t max_pages)
{
	sigset_t mask;
	int count;

	sp_watch_list_lock(&mask);
	count = sp_watch_noted(watch, area, range, reset, regions, room, max_pages);
	for (int i = 0; reset && i < count; i++) {
		struct sp_range pages = {regions[i].start, regions[i].end};

		if (protect(pages, PROT_READ) < 0)
			sp_watch_note(watch, pages);
	}
	sp_watch_list_unlock(&mask);
	return count;
}

const struct sp_watch_backend sp_watch_backend_mprotect = {
        .id = SP_WRITE_WATCH_MPROTECT,
        .name = "mprotect",
        .accounts = true,
        .open = open_watch,
        .arm = arm,
        .close = close_watch,
        .get = get,
};
