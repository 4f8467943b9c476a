/*
 * Held memory: see hold.h.
 *
 * One lock makes two steps one: copying pages, and noting that they are copied and letting them go.
 * The reader holds it for a part of what it reads at most, so that a write never waits for long.
 */
#include "track/hold.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define FEATURES                                                        \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED | \
	 UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP)

/* How much is copied with the lock held. */
#define PART (64ULL << 10)
/* To protect a page costs a fraction of a call: gaps of this size are protected too. */
#define GAP (16 * SP_PAGE_SIZE)
/* How much is protected with one call: less than a millisecond. */
#define PROTECT_MAX (16ULL << 20)
#define REGIONS 512

enum page {
	PAGE_HELD,   /* protected, not copied */
	PAGE_TAKEN,  /* the reader has it */
	PAGE_MEMORY, /* in the stash */
	PAGE_FILE,   /* in the stash */
};

struct sp_hold {
	pid_t pid;
	int uffd, memory, pagemap, fdinfo, stop;
	struct sp_array pages; /* struct sp_range: a set */
	struct sp_array areas; /* struct sp_range */
	uint64_t *numbers;     /* of the first page of each range of `pages` */
	uint8_t *state;        /* enum page, by number */
	struct sp_stash stash;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	struct sp_error failure; /* the first; code 0: none */
	uint64_t faults;
	uint8_t copy[PART];
};

/* --- the account; with the lock held --- */

static int fail(struct sp_hold *hold, int code, uint64_t address)
{
	if (!hold->failure.code && code == ESTALE)
		sp_fail(&hold->failure, code,
		        "%s has changed the mapping at 0x%" PRIx64
		        " before the memory there was saved",
		        sp_process_name(hold->pid).text, address);
	else if (!hold->failure.code)
		sp_fail_errno(&hold->failure, code,
		              "cannot put aside memory at 0x%" PRIx64 " of %s", address,
		              sp_process_name(hold->pid).text);
	return -hold->failure.code;
}

/* The first held range that ends behind an address, cut to `within`; empty if there is none. */
static struct sp_range held_range(const struct sp_hold *hold, struct sp_range within,
                                  uint64_t *number)
{
	size_t i = sp_ranges_search(&hold->pages, within.start);
	struct sp_range range = {within.end, within.end};

	if (i == hold->pages.count)
		return range;
	range = *(struct sp_range *)sp_array_at(&hold->pages, i);
	*number = hold->numbers[i];
	if (range.start < within.start) {
		*number += (within.start - range.start) / SP_PAGE_SIZE;
		range.start = within.start;
	}
	range.end = range.end < within.end ? range.end : within.end;
	range.start = range.start < range.end ? range.start : range.end;
	return range;
}

/*
 * Copies pages of which none was let go, and makes sure that they were what they are since the hold
 * began. /proc/PID/mem belongs to the address space, not to whatever the process executes next.
 */
static int copy_held(struct sp_hold *hold, struct sp_range range, void *buffer)
{
	ssize_t got = sp_pread_full(hold->memory, buffer, sp_range_size(range), (off_t)range.start);
	struct page_region written;
	struct sp_range left = range;
	int rc;

	if (got != (ssize_t)sp_range_size(range))
		return fail(hold, ESTALE, range.start + (got > 0 ? (uint64_t)got : 0));
	rc = sp_scan_written(hold->pagemap, &left, &written, 1, 0);
	return rc == 0 ? 0
	               : fail(hold, rc < 0 ? -rc : ESTALE, rc < 0 ? range.start : written.start);
}

/* While a mapping is being changed this fails with EAGAIN: whoever waits faults again, and asks. */
static void let_go(struct sp_hold *hold, struct sp_range range)
{
	if (sp_uffd_unprotect(hold->uffd, range) < 0)
		sp_uffd_wake(hold->uffd, range);
}

/* Length of the run of pages in the same state. */
static struct sp_range same_state(const struct sp_hold *hold, struct sp_range range,
                                  uint64_t number)
{
	uint64_t pages = sp_range_size(range) / SP_PAGE_SIZE, same = 1;

	while (same < pages && hold->state[number + same] == hold->state[number])
		same++;
	range.end = range.start + same * SP_PAGE_SIZE;
	return range;
}

static int stash_page(struct sp_hold *hold, uint64_t number, const uint8_t *page)
{
	int rc = sp_stash_put(&hold->stash, number, page);

	if (rc < 0)
		return rc;
	hold->state[number] = rc == SP_STASH_MEMORY ? PAGE_MEMORY : PAGE_FILE;
	return 0;
}

/* Puts the held pages of a range aside, up to PART of them. */
static int put_aside(struct sp_hold *hold, struct sp_range range, uint64_t number)
{
	uint64_t pages = sp_range_size(range) / SP_PAGE_SIZE;
	int rc = copy_held(hold, range, hold->copy);

	for (uint64_t i = 0; i < pages && rc == 0; i++) {
		rc = stash_page(hold, number + i, hold->copy + i * SP_PAGE_SIZE);
		if (rc < 0)
			fail(hold, -rc, range.start + i * SP_PAGE_SIZE);
	}
	return rc;
}

/* --- serving --- */

/*
 * Never a part of a mapping: it would become a mapping of its own for a moment, and mremap(2) of both
 * would fail. What has changed meanwhile is let go when the userfaultfd is closed.
 */
static void let_all_go(struct sp_hold *hold)
{
	for (size_t i = 0; i < hold->areas.count; i++)
		sp_uffd_unregister(hold->uffd, *(struct sp_range *)sp_array_at(&hold->areas, i));
}

static void serve_fault(struct sp_hold *hold, uint64_t address)
{
	struct sp_range page = {sp_page_down(address), sp_page_down(address) + SP_PAGE_SIZE};
	uint64_t number;
	struct sp_range held = held_range(hold, page, &number);

	hold->faults++;
	if (held.start < held.end && hold->state[number] == PAGE_HELD)
		put_aside(hold, held, number);
	let_go(hold, page);
}

/* The pages of this range are gone by now. */
static void check_gone(struct sp_hold *hold, struct sp_range range)
{
	uint64_t number;
	struct sp_range held = held_range(hold, range, &number);

	for (; held.start < held.end; held = held_range(hold, range, &number)) {
		range.start = held.start + SP_PAGE_SIZE;
		if (hold->state[number] == PAGE_HELD) {
			fail(hold, ESTALE, held.start);
			return;
		}
	}
}

static void serve(struct sp_hold *hold, const struct uffd_msg *message)
{
	uint64_t from = message->arg.remap.from;

	switch (message->event) {
	case UFFD_EVENT_PAGEFAULT:
		serve_fault(hold, message->arg.pagefault.address);
		break;
	case UFFD_EVENT_REMOVE:
	case UFFD_EVENT_UNMAP:
		check_gone(hold,
		           (struct sp_range){message->arg.remove.start, message->arg.remove.end});
		break;
	case UFFD_EVENT_REMAP:
		check_gone(hold, (struct sp_range){from, from + message->arg.remap.len});
		break;
	}
}

/* How many threads wait with a fault that was not read yet. */
static unsigned long pending_faults(const struct sp_hold *hold)
{
	char text[256];
	ssize_t size = pread(hold->fdinfo, text, sizeof(text) - 1, 0);
	const char *line;

	text[size > 0 ? size : 0] = '\0';
	line = strstr(text, "pending:");
	return line ? strtoul(line + strlen("pending:"), NULL, 10) : 0;
}

/*
 * Serves all faults that are there; if there are none, as many other messages. Faults are read
 * first, and with the lock held nobody else resolves one, so that no more is read than faults: else a
 * message about a discard could be read too early.
 */
static unsigned long serve_faults(struct sp_hold *hold, unsigned long others)
{
	unsigned long faults, left;
	struct uffd_msg message;
	bool failed;

	pthread_mutex_lock(&hold->lock);
	faults = pending_faults(hold);
	for (left = faults ? faults : others;
	     left > 0 && read(hold->uffd, &message, sizeof(message)) == sizeof(message); left--)
		serve(hold, &message);
	failed = hold->failure.code != 0;
	pthread_mutex_unlock(&hold->lock);
	if (failed)
		let_all_go(hold);
	return faults;
}

/* Puts aside what is about to be discarded. Writes are served meanwhile. */
static void put_all_aside(struct sp_hold *hold, struct sp_range range)
{
	while (range.start < range.end) {
		struct sp_range held;
		uint64_t number;
		int rc = 0;

		pthread_mutex_lock(&hold->lock);
		held = held_range(hold, range, &number);
		if (held.start < held.end) {
			held = same_state(hold, held, number);
			held.end = held.end < held.start + PART ? held.end : held.start + PART;
			if (hold->state[number] == PAGE_HELD)
				rc = put_aside(hold, held, number);
		}
		pthread_mutex_unlock(&hold->lock);
		if (rc < 0)
			return;
		range.start = held.end;
		serve_faults(hold, 0);
	}
}

/* A thread that discards waits for us inside its call, whose arguments the kernel shows. */
static void look_at_discard(struct sp_hold *hold, pid_t tid)
{
	sp_cleanup_free char *text = NULL;
	uint64_t start, size;
	long number;

	if (sp_proc_read_thread(hold->pid, tid, "syscall", &text, NULL, NULL) == 0 &&
	    sscanf(text, "%ld %" SCNx64 " %" SCNx64, &number, &start, &size) == 3 &&
	    number == SYS_madvise && start + size >= start)
		put_all_aside(hold,
		              (struct sp_range){sp_page_down(start), sp_page_up(start + size)});
}

/*
 * The kernel lets a thread that discards go on as soon as the message is read, so what it says has
 * to be found out before. A message that is there though no fault is pending is one of these.
 */
static void look_ahead(struct sp_hold *hold)
{
	sp_cleanup_dir DIR *tasks = NULL;
	char path[32];
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%d/task", hold->pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks)))
		if (atoi(entry->d_name) > 0)
			look_at_discard(hold, atoi(entry->d_name));
}

static void *serve_all(void *context)
{
	struct sp_hold *hold = context;
	struct pollfd fds[] = {{.fd = hold->uffd, .events = POLLIN},
	                       {.fd = hold->stop, .events = POLLIN}};

	/* The program waits for this thread. Without the privilege it takes its turn. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), -20);
	for (;;) {
		poll(fds, 2, -1);
		if (fds[1].revents)
			return NULL;
		if (serve_faults(hold, 0) == 0) {
			look_ahead(hold);
			serve_faults(hold, 1);
		}
	}
}

/* --- beginning --- */

static int open_all(struct sp_hold *hold, struct sp_error *err)
{
	char path[48];
	int rc;

	hold->stop = eventfd(0, EFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", hold->uffd);
	hold->fdinfo = open(path, O_RDONLY | O_CLOEXEC);
	if (hold->stop < 0 || hold->fdinfo < 0)
		return sp_fail_errno(err, errno, "cannot serve a userfaultfd");
	hold->memory = rc = sp_proc_open(hold->pid, "mem", O_RDONLY, err);
	if (rc >= 0)
		hold->pagemap = rc = sp_proc_open(hold->pid, "pagemap", O_RDONLY, err);
	if (rc < 0)
		return rc;
	rc = sp_uffd_enable(hold->uffd, FEATURES);
	return rc < 0 ? sp_fail_errno(err, -rc, "cannot hold memory with userfaultfd") : 0;
}

/* From one userfaultfd to the other. */
static int move_areas(struct sp_hold *hold, int asynchronous)
{
	int rc = 0;

	for (size_t i = 0; i < hold->areas.count && rc == 0; i++) {
		const struct sp_range *area = sp_array_at(&hold->areas, i);

		sp_uffd_unregister(asynchronous, *area);
		rc = sp_uffd_register(hold->uffd, *area);
	}
	return rc;
}

/* The first part of a set in a range, which gets shorter by it; empty if there is none. */
static struct sp_range next_part(const struct sp_array *set, struct sp_range *within)
{
	size_t i = sp_ranges_search(set, within->start);
	struct sp_range part = {within->end, within->end};

	if (i < set->count)
		part = *(struct sp_range *)sp_array_at(set, i);
	part.start = part.start > within->start ? part.start : within->start;
	part.end = part.end < within->end ? part.end : within->end;
	if (part.start >= part.end)
		part = (struct sp_range){within->end, within->end};
	within->start = part.end;
	return part;
}

int sp_hold_protect(struct sp_hold *hold, const struct sp_array *pages,
                    bool (*go_on)(void *context), void *context)
{
	uint64_t gap = go_on ? 0 : GAP;

	for (size_t area = 0; area < hold->areas.count; area++) {
		struct sp_range within = *(struct sp_range *)sp_array_at(&hold->areas, area);
		struct sp_range span = next_part(pages, &within);

		while (span.start < span.end) {
			struct sp_range next = next_part(pages, &within);
			int rc;

			if (next.start < next.end && next.start <= span.end + gap &&
			    next.end - span.start <= PROTECT_MAX) {
				span.end = next.end;
				continue;
			}
			for (; span.start < span.end; span.start += PROTECT_MAX) {
				struct sp_range part = {span.start, span.start + PROTECT_MAX};

				part.end = part.end < span.end ? part.end : span.end;
				rc = sp_uffd_protect(hold->uffd, part);
				if (rc < 0 || (go_on && !go_on(context)))
					return rc < 0 ? rc : -ECANCELED;
			}
			span = next;
		}
	}
	return 0;
}

static int find_written(struct sp_hold *hold, struct sp_array *written)
{
	struct page_region regions[REGIONS];

	for (size_t area = 0; area < hold->areas.count; area++) {
		struct sp_range left = *(struct sp_range *)sp_array_at(&hold->areas, area);

		while (left.start < left.end) {
			int count = sp_scan_written(hold->pagemap, &left, regions, REGIONS, 0);

			if (count < 0)
				return count;
			for (int i = 0; i < count; i++)
				sp_ranges_add(written,
				              (struct sp_range){regions[i].start, regions[i].end});
		}
	}
	sp_ranges_normalize(written);
	return 0;
}

/* A page that is just being let go, for a thread that has been stopped meanwhile, is let go first. */
int sp_hold_written(struct sp_hold *hold, struct sp_array *written)
{
	int rc;

	pthread_mutex_lock(&hold->lock);
	rc = find_written(hold, written);
	pthread_mutex_unlock(&hold->lock);
	return rc;
}

/* They were protected with all others: put aside, and let go again before anybody runs. */
static int spare(struct sp_hold *hold, const struct sp_array *spared)
{
	int rc = 0;

	for (size_t i = 0; i < spared->count && rc == 0; i++) {
		uint64_t address = sp_page_down(*(remote_addr *)sp_array_at(spared, i)), number;
		struct sp_range held = {address, address + SP_PAGE_SIZE};

		sp_uffd_unprotect(hold->uffd, held);
		held = held_range(hold, held, &number);
		if (held.start == held.end || hold->state[number] != PAGE_HELD)
			continue;
		if (sp_pread_full(hold->memory, hold->copy, SP_PAGE_SIZE, (off_t)address) !=
		    SP_PAGE_SIZE)
			return -EIO;
		rc = stash_page(hold, number, hold->copy);
	}
	return rc;
}

static int refuse(const struct sp_hold *hold, int rc, struct sp_error *err)
{
	return sp_fail_errno(err, -rc, "cannot hold memory of %s", sp_process_name(hold->pid).text);
}

static int start_thread(struct sp_hold *hold)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&hold->thread, NULL, serve_all, hold);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	hold->has_thread = rc == 0;
	return -rc;
}

int sp_hold_open(struct sp_hold **hold, const struct sp_hold_request *request, struct sp_error *err)
{
	struct sp_hold *opened = sp_alloc_zeroed(1, sizeof(*opened));
	int rc;

	opened->pid = request->pid;
	opened->uffd = request->uffd;
	opened->memory = opened->pagemap = opened->fdinfo = opened->stop = -1;
	opened->pages = SP_ARRAY_OF(struct sp_range);
	opened->areas = SP_ARRAY_OF(struct sp_range);
	opened->stash = *request->stash;
	*request->stash = SP_STASH_NONE;
	pthread_mutex_init(&opened->lock, NULL);
	sp_ranges_add_all(&opened->areas, request->areas);
	rc = open_all(opened, err);
	if (rc == 0) {
		rc = move_areas(opened, request->asynchronous);
		if (rc == 0)
			rc = start_thread(opened);
		if (rc < 0)
			refuse(opened, rc, err);
	}
	if (rc < 0)
		sp_hold_end(opened);
	else
		*hold = opened;
	return rc;
}

/* The state of all pages is PAGE_HELD, which is 0. */
static void number_pages(struct sp_hold *hold, const struct sp_array *pages)
{
	uint64_t count = 0;

	sp_ranges_add_all(&hold->pages, pages);
	hold->numbers = sp_alloc_zeroed(pages->count + 1, sizeof(*hold->numbers));
	for (size_t i = 0; i < pages->count; i++) {
		hold->numbers[i] = count;
		count += sp_range_size(*(struct sp_range *)sp_array_at(pages, i)) / SP_PAGE_SIZE;
	}
	hold->state = sp_alloc_zeroed(count + 1, sizeof(*hold->state));
}

int sp_hold_begin(struct sp_hold *hold, const struct sp_array *pages, const struct sp_array *spared,
                  struct sp_error *err)
{
	int rc;

	pthread_mutex_lock(&hold->lock);
	number_pages(hold, pages);
	rc = spare(hold, spared);
	pthread_mutex_unlock(&hold->lock);
	return rc < 0 ? refuse(hold, rc, err) : 0;
}

/* --- reading --- */

static int read_part(struct sp_hold *hold, struct sp_range range, uint64_t number, uint8_t *buffer)
{
	enum page state = hold->state[number];
	int rc = 0;

	if (state == PAGE_HELD) {
		rc = copy_held(hold, range, buffer);
		if (rc < 0)
			return rc;
		memset(hold->state + number, PAGE_TAKEN, sp_range_size(range) / SP_PAGE_SIZE);
		let_go(hold, range);
		return 0;
	}
	for (uint64_t at = range.start; at < range.end && rc == 0;
	     at += SP_PAGE_SIZE, number++, buffer += SP_PAGE_SIZE) {
		rc = state == PAGE_TAKEN
		             ? -EINVAL
		             : sp_stash_get(&hold->stash, number,
		                            state == PAGE_MEMORY ? SP_STASH_MEMORY : SP_STASH_FILE,
		                            buffer);
		hold->state[number] = PAGE_TAKEN;
	}
	return rc < 0 ? fail(hold, -rc, range.start) : 0;
}

int sp_hold_read(void *context, uint64_t address, void *buffer, size_t size, struct sp_error *err)
{
	struct sp_hold *hold = context;
	struct sp_range left = {address, address + size};
	int rc = 0;

	while (left.start < left.end && rc == 0) {
		struct sp_range part = left;
		uint64_t number;

		if (part.end > part.start + PART)
			part.end = part.start + PART;
		pthread_mutex_lock(&hold->lock);
		part = held_range(hold, part, &number);
		rc = -hold->failure.code;
		if (rc == 0 && part.start != left.start)
			rc = fail(hold, EINVAL, left.start);
		if (rc == 0) {
			part = same_state(hold, part, number);
			rc = read_part(hold, part, number,
			               (uint8_t *)buffer + (part.start - address));
		}
		if (rc < 0 && err)
			*err = hold->failure;
		pthread_mutex_unlock(&hold->lock);
		left.start = part.end;
	}
	return rc;
}

struct sp_stash sp_hold_take_stash(struct sp_hold *hold)
{
	struct sp_stash stash = hold->stash;

	hold->stash = SP_STASH_NONE;
	return stash;
}

uint64_t sp_hold_faults(struct sp_hold *hold)
{
	uint64_t faults;

	pthread_mutex_lock(&hold->lock);
	faults = hold->faults;
	pthread_mutex_unlock(&hold->lock);
	return faults;
}

/* --- the end --- */

/* The thread serves until nothing is protected: who waits for it never waits for us. */
void sp_hold_end(struct sp_hold *hold)
{
	if (!hold)
		return;
	let_all_go(hold);
	if (hold->has_thread) {
		eventfd_write(hold->stop, 1);
		pthread_join(hold->thread, NULL);
	}
	sp_close_scope(&hold->uffd);
	sp_close_scope(&hold->memory);
	sp_close_scope(&hold->pagemap);
	sp_close_scope(&hold->fdinfo);
	sp_close_scope(&hold->stop);
	sp_stash_close(&hold->stash);
	sp_array_release(&hold->pages);
	sp_array_release(&hold->areas);
	free(hold->numbers);
	free(hold->state);
	pthread_mutex_destroy(&hold->lock);
	free(hold);
}
