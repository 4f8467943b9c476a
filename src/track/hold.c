/*
 * Held memory: see hold.h. What is done to pages that are held is in held_pages.c, the thread that serves
 * writes to them in hold_server.c; here is what the caller does: taking mappings over, protecting, reading.
 */
#include "track/hold.h"

#include "base/error.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "track/held_pages.h"
#include "track/hold_server.h"
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

#define FEATURES                                                        \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED | \
	 UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP)

/* To protect a page costs a fraction of a call: gaps of this size are protected too. */
#define GAP (16 * SP_PAGE_SIZE)
/* How much is protected with one call: less than a millisecond. */
#define PROTECT_MAX (16ULL << 20)
#define REGIONS 512
/* How often, and after how long, protecting is tried again while mappings are being changed. */
#define AGAIN_TRIES 1000
#define AGAIN_PAUSE_NS 20000

struct sp_hold {
	struct sp_held_pages held;
	struct sp_hold_server server;
	struct sp_array areas; /* struct sp_range */
};

/* --- beginning --- */

static int open_all(struct sp_hold *hold, struct sp_error *err)
{
	struct sp_held_pages *held = &hold->held;
	int rc = sp_hold_server_open(&hold->server, err);

	if (rc == 0)
		held->memory = rc = sp_proc_open(held->pid, "mem", O_RDONLY, err);
	if (rc >= 0)
		held->pagemap = rc = sp_proc_open(held->pid, "pagemap", O_RDONLY, err);
	if (rc < 0)
		return rc;
	rc = sp_uffd_enable(held->uffd, FEATURES);
	return rc < 0 ? sp_fail_errno(err, -rc, "cannot hold memory with userfaultfd") : 0;
}

/* From one userfaultfd to the other. */
static int move_areas(struct sp_hold *hold, int asynchronous)
{
	int rc = 0;

	for (size_t i = 0; i < hold->areas.count && rc == 0; i++) {
		const struct sp_range *area = sp_array_at(&hold->areas, i);

		sp_uffd_unregister(asynchronous, *area);
		rc = sp_uffd_register(hold->held.uffd, *area);
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

/*
 * While the process runs, what it discards is announced to the thread that serves, and nothing can be
 * protected until that has heard of it: in a program that discards all the time, most of the time.
 */
static int protect_part(struct sp_hold *hold, struct sp_range part, bool (*go_on)(void *context),
                        void *context)
{
	const struct timespec pause = {.tv_nsec = AGAIN_PAUSE_NS};
	int rc = sp_uffd_protect(hold->held.uffd, part);

	for (unsigned tries = 0; rc == -EAGAIN && go_on && tries < AGAIN_TRIES; tries++) {
		if (!go_on(context))
			return -ECANCELED;
		nanosleep(&pause, NULL);
		rc = sp_uffd_protect(hold->held.uffd, part);
	}
	return rc == 0 && go_on && !go_on(context) ? -ECANCELED : rc;
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
				rc = protect_part(hold, part, go_on, context);
				if (rc < 0)
					return rc;
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
			int count = sp_scan_written(hold->held.pagemap, &left, regions, REGIONS, 0);

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

	pthread_mutex_lock(&hold->server.lock);
	rc = find_written(hold, written);
	pthread_mutex_unlock(&hold->server.lock);
	return rc;
}

static int refuse(const struct sp_hold *hold, int rc, struct sp_error *err)
{
	return sp_fail_errno(err, -rc, "cannot hold memory of %s",
	                     sp_process_name(hold->held.pid).text);
}

int sp_hold_open(struct sp_hold **hold, const struct sp_hold_request *request, struct sp_error *err)
{
	struct sp_hold *opened = sp_alloc_zeroed(1, sizeof(*opened));
	int rc;

	sp_held_init(&opened->held, request->pid, request->uffd);
	sp_hold_server_init(&opened->server, &opened->held);
	opened->held.stash = *request->stash;
	*request->stash = SP_STASH_NONE;
	opened->areas = SP_ARRAY_OF(struct sp_range);
	sp_ranges_add_all(&opened->areas, request->areas);
	rc = open_all(opened, err);
	if (rc == 0) {
		rc = move_areas(opened, request->asynchronous);
		if (rc == 0)
			rc = sp_hold_server_start(&opened->server);
		if (rc < 0)
			refuse(opened, rc, err);
	}
	if (rc < 0)
		sp_hold_end(opened);
	else
		*hold = opened;
	return rc;
}

int sp_hold_begin(struct sp_hold *hold, const struct sp_array *pages, const struct sp_array *spared,
                  struct sp_error *err)
{
	int rc;

	pthread_mutex_lock(&hold->server.lock);
	sp_held_begin(&hold->held, pages);
	rc = sp_held_spare(&hold->held, spared);
	pthread_mutex_unlock(&hold->server.lock);
	return rc < 0 ? refuse(hold, rc, err) : 0;
}

/* --- reading --- */

int sp_hold_read(void *context, uint64_t address, void *buffer, size_t size, struct sp_error *err)
{
	struct sp_hold *hold = context;
	struct sp_range left = {address, address + size};
	int rc = 0;

	while (left.start < left.end && rc == 0) {
		pthread_mutex_lock(&hold->server.lock);
		rc = sp_held_read(&hold->held, &left, (uint8_t *)buffer + (left.start - address));
		if (rc < 0 && err)
			*err = hold->held.failure;
		pthread_mutex_unlock(&hold->server.lock);
	}
	return rc;
}

struct sp_stash sp_hold_take_stash(struct sp_hold *hold)
{
	struct sp_stash stash = hold->held.stash;

	hold->held.stash = SP_STASH_NONE;
	return stash;
}

uint64_t sp_hold_faults(struct sp_hold *hold)
{
	uint64_t faults;

	pthread_mutex_lock(&hold->server.lock);
	faults = hold->server.faults;
	pthread_mutex_unlock(&hold->server.lock);
	return faults;
}

/* --- the end --- */

void sp_hold_end(struct sp_hold *hold)
{
	if (!hold)
		return;
	sp_hold_server_end(&hold->server);
	sp_held_release(&hold->held);
	sp_array_release(&hold->areas);
	free(hold);
}
