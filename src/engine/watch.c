/* The sampler of `sealpoint watch`, for one process: see watch.h. */
#include "engine/watch.h"

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "engine/engine.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/pidfd.h>

#define REGIONS 1024
/* --- cells --- */

unsigned sp_sample_cell_count(struct sp_range mapping)
{
	uint64_t pages = sp_range_size(mapping) / SP_PAGE_SIZE;

	return pages < SP_SAMPLE_CELLS ? (unsigned)pages : SP_SAMPLE_CELLS;
}

/* Rounded up, so that page p is in cell p * count / pages. */
static uint64_t cell_start(struct sp_range mapping, unsigned cell)
{
	uint64_t pages = sp_range_size(mapping) / SP_PAGE_SIZE;
	uint64_t count = sp_sample_cell_count(mapping);

	return mapping.start + (cell * pages + count - 1) / count * SP_PAGE_SIZE;
}

struct sp_range sp_sample_cell(struct sp_range mapping, unsigned cell)
{
	return (struct sp_range){cell_start(mapping, cell), cell_start(mapping, cell + 1)};
}

static void add_written(struct sp_sample_mapping *mapping, const struct page_region *region)
{
	uint64_t pages = sp_range_size(mapping->range) / SP_PAGE_SIZE;
	uint64_t at = region->start;

	mapping->written += (region->end - region->start) / SP_PAGE_SIZE;
	while (at < region->end) {
		unsigned cell = (unsigned)((at - mapping->range.start) / SP_PAGE_SIZE *
		                           sp_sample_cell_count(mapping->range) / pages);
		uint64_t end = sp_sample_cell(mapping->range, cell).end;

		end = end < region->end ? end : region->end;
		mapping->cells[cell] += (uint32_t)((end - at) / SP_PAGE_SIZE);
		at = end;
	}
}

/* --- the list of mappings --- */

static struct sp_sample_mapping *mapping_at(const struct sp_array *mappings, uint64_t address)
{
	return sp_array_search(mappings, &address, sp_range_locate);
}

/*
 * Mappings that are new join our own session, which counts all of them as written, as a cut does; of one that a
 * holder keeps nothing is changed. Tells of each mapping in the list whether it is tracked; to be freed.
 */
static uint8_t *join_all(const struct sp_sampler *sampler)
{
	uint8_t *membership = sp_alloc(sampler->vmas.count + 1);

	if (!sampler->sample.held)
		sp_cut_join(sampler->session.memory, sampler->pagemap, &sampler->vmas, NULL,
		            membership);
	for (size_t i = 0; sampler->sample.held && i < sampler->vmas.count; i++)
		membership[i] =
		        sp_cut_tracks(sp_array_at(&sampler->vmas, i)) ? SP_MEMBER : SP_NO_MEMBER;
	return membership;
}

static void note_changes(struct sp_sample *sample, const struct sp_array *before)
{
	for (size_t i = 0; i < sample->mappings.count; i++) {
		struct sp_sample_mapping *mapping = sp_array_at(&sample->mappings, i);
		const struct sp_sample_mapping *old = mapping_at(before, mapping->range.start);

		sample->appeared += !old;
		/* Of a part that was cut off it is not known how much of the whole was its own. */
		mapping->written = old ? old->written : 0;
	}
	for (size_t i = 0; i < before->count; i++) {
		const struct sp_sample_mapping *old = sp_array_at(before, i);

		sample->vanished += !mapping_at(&sample->mappings, old->range.start);
	}
}

static void list_mappings(struct sp_sampler *sampler)
{
	struct sp_sample *sample = &sampler->sample;
	sp_cleanup_array struct sp_array before = sample->mappings;
	sp_cleanup_free uint8_t *membership = join_all(sampler);

	sample->mappings = SP_ARRAY_OF(struct sp_sample_mapping);
	sample->tracked_bytes = sample->untracked_bytes = 0;
	for (size_t i = 0; i < sampler->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&sampler->vmas, i);
		struct sp_sample_mapping *mapping;

		if (membership[i] != SP_MEMBER && membership[i] != SP_NEW_MEMBER) {
			if (vma->prot & PROT_WRITE)
				sample->untracked_bytes += sp_range_size(vma->range);
			continue;
		}
		mapping = sp_array_push(&sample->mappings);
		mapping->range = vma->range;
		mapping->vma = vma;
		sample->tracked_bytes += sp_range_size(vma->range);
	}
	note_changes(sample, &before);
}

/*
 * Reads /proc/PID/maps, for which no page table is walked, and makes a new list if it has changed.
 * What only smaps tells is not needed: the kernel passes over device memory by itself. A mapping that
 * was replaced by one alike is not in the session any more, but does not look different; hence the
 * list is also gone through when it has not changed.
 */
static int refresh_mappings(struct sp_sampler *sampler, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL, *copy = NULL;
	struct sp_array vmas;
	int rc = sp_proc_read(sampler->pid, "maps", &text, NULL, err);

	if (rc < 0)
		return rc;
	if (sampler->maps && !strcmp(sampler->maps, text)) {
		free(join_all(sampler));
		return 0;
	}
	copy = sp_strdup(text);
	rc = sp_vma_list_parse(copy, &vmas, err);
	if (rc < 0)
		return rc;
	free(sampler->maps);
	sampler->maps = sp_steal_ptr(&text);
	sp_vma_list_release(&sampler->vmas);
	sampler->vmas = vmas;
	list_mappings(sampler);
	return 0;
}

/* --- counting --- */

/* Counts the written pages of a mapping, into it or into `*pages` alone. */
static void count_mapping(const struct sp_sampler *sampler, struct sp_sample_mapping *mapping,
                          bool take, uint64_t *pages)
{
	unsigned flags = (take ? SP_SCAN_DIRTY_TAKE : 0) |
	                 (mapping->vma->kind == SP_VMA_FILE_PRIVATE ? SP_SCAN_DIRTY_FILE : 0);
	struct sp_range range = mapping->range;

	while (range.start < range.end) {
		int count =
		        sp_scan_dirty(sampler->pagemap, &range, sampler->regions, REGIONS, flags);

		for (int i = 0; i < count; i++) {
			const struct page_region *region = &sampler->regions[i];

			if (pages)
				*pages += (region->end - region->start) / SP_PAGE_SIZE;
			else
				add_written(mapping, region);
		}
		if (count < 0)
			return; /* it was just replaced: the next look finds what is there now */
	}
}

/* The written set so far; nothing is taken. */
static uint64_t count_all(const struct sp_sampler *sampler)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < sampler->sample.mappings.count; i++)
		count_mapping(sampler, sp_array_at(&sampler->sample.mappings, i), false, &pages);
	return pages;
}

/* Fills in the mappings of the sample, and takes from our own session. */
static void sample_all(struct sp_sampler *sampler)
{
	struct sp_sample *sample = &sampler->sample;
	bool grows = sample->held && !(sample->events & (SP_SAMPLE_CUT | SP_SAMPLE_EXEC));

	sample->dirtied = sample->written = 0;
	for (size_t i = 0; i < sample->mappings.count; i++) {
		struct sp_sample_mapping *mapping = sp_array_at(&sample->mappings, i);
		uint64_t before = grows ? mapping->written : 0;

		mapping->written = 0;
		memset(mapping->cells, 0, sizeof(mapping->cells));
		count_mapping(sampler, mapping, !sample->held, NULL);
		mapping->dirtied = mapping->written > before ? mapping->written - before : 0;
		sample->dirtied += mapping->dirtied;
		sample->written += mapping->written;
	}
}

static void read_resident(struct sp_sampler *sampler)
{
	sp_cleanup_free char *text = NULL;
	uint64_t pages = 0;

	if (sp_proc_read(sampler->pid, "statm", &text, NULL, NULL) == 0)
		sscanf(text, "%*u %" SCNu64, &pages);
	sampler->sample.resident_bytes = pages * SP_PAGE_SIZE;
}

/* --- the process and its session --- */

bool sp_sampler_ends_within(const struct sp_sampler *sampler, int ms)
{
	struct pollfd polled = {.fd = sampler->pidfd, .events = POLLIN};

	return poll(&polled, 1, ms) == 1;
}

/* What had been written when it began was not written in an interval, or is not known to be. */
static void forget_written(struct sp_sample *sample)
{
	sample->dirtied = 0;
	sample->written = 0;
	for (size_t i = 0; i < sample->mappings.count; i++) {
		struct sp_sample_mapping *mapping = sp_array_at(&sample->mappings, i);

		mapping->dirtied = 0;
		if (!sample->held)
			mapping->written = 0;
		sample->written += mapping->written;
	}
}

/* Another program is executed in a new address space, of which pagemap knows nothing. */
static int begin(struct sp_sampler *sampler, struct sp_error *err)
{
	struct sp_sample *sample = &sampler->sample;
	sp_cleanup_session struct sp_session found = SP_SESSION_NONE;
	int rc;

	sp_session_close(&sampler->session);
	sp_close_scope(&sampler->pagemap);
	free(sp_steal_ptr(&sampler->maps));
	sampler->pagemap = sp_proc_open(sampler->pid, "pagemap", O_RDONLY, err);
	rc = sampler->pagemap < 0 ? sampler->pagemap
	                          : sp_session_find_live(&found, sampler->pid, err);
	if (rc == 1 && found.backend == SP_SESSION_SOFT_DIRTY)
		return sp_fail(
		        err, EOPNOTSUPP,
		        "the writes of %s are tracked by soft-dirty bits, which cannot be watched "
		        "while it runs; end that first (sealpoint track stop %d)",
		        sp_process_name(sampler->pid).text, sampler->pid);
	sample->held = rc == 1;
	sample->generation = found.generation;
	memcpy(sampler->held_id, found.id, sizeof(found.id));
	if (rc == 0)
		rc = sp_session_make(&sampler->session, sampler->pid, SP_SESSION_SCAN, false,
		                     sp_now_ns() + SP_DUMP_TIMEOUT_NS, err);
	if (rc < 0)
		return rc;
	rc = refresh_mappings(sampler, err);
	sampler->begun_ns = sp_now_ns();
	sample_all(sampler);
	forget_written(sample);
	read_resident(sampler);
	sample->appeared = sample->vanished = 0;
	return rc;
}

/*
 * Finds out what became of program and session. Returns 1, or ESTALE if it is not those any more that
 * we know. A held session is asked for each time, and not kept: whoever ends it wants it to be gone.
 */
static int find_changes(struct sp_sampler *sampler, struct sp_error *err)
{
	struct sp_sample *sample = &sampler->sample;
	sp_cleanup_session struct sp_session found = SP_SESSION_NONE;
	unsigned event = 0;
	int rc = sample->held ? sp_session_find(&found, sampler->pid, err) : 1;

	if (rc < 0)
		return rc;
	if (sample->held && memcmp(found.id, sampler->held_id, sizeof(found.id)) != 0)
		event = SP_SAMPLE_ENDED;
	else if (sp_session_is_dead(sample->held ? &found : &sampler->session))
		event = SP_SAMPLE_EXEC;
	sample->events |= event;
	if (event)
		return -ESTALE;
	if (sample->held && found.generation != sample->generation)
		sample->events |= SP_SAMPLE_CUT;
	sample->generation = found.generation;
	return 1;
}

int sp_sampler_open(struct sp_sampler *sampler, pid_t pid, struct sp_error *err)
{
	int rc = sp_process_check(pid, err);

	*sampler = (struct sp_sampler){
	        .pid = pid,
	        .pidfd = -1,
	        .pagemap = -1,
	        .session = SP_SESSION_NONE,
	        .vmas = SP_ARRAY_OF(struct sp_vma),
	        .sample.mappings = SP_ARRAY_OF(struct sp_sample_mapping),
	};
	if (rc < 0)
		return rc;
	sampler->pidfd = pidfd_open(pid, 0);
	if (sampler->pidfd < 0)
		return sp_fail_errno(err, errno, "cannot watch %s", sp_process_name(pid).text);
	sampler->regions = sp_alloc(REGIONS * sizeof(*sampler->regions));
	rc = begin(sampler, err);
	sampler->opened_ns = sampler->begun_ns;
	return rc;
}

void sp_sampler_close(struct sp_sampler *sampler)
{
	sp_session_close(&sampler->session);
	sp_close_scope(&sampler->pidfd);
	sp_close_scope(&sampler->pagemap);
	free(sp_steal_ptr(&sampler->maps));
	free(sp_steal_ptr(&sampler->regions));
	sp_vma_list_release(&sampler->vmas);
	sp_array_release(&sampler->sample.mappings);
}

/* --- an interval --- */

int sp_sampler_look(struct sp_sampler *sampler, uint64_t *pages, struct sp_error *err)
{
	int rc = refresh_mappings(sampler, err);

	*pages = rc < 0 ? 0 : count_all(sampler);
	return rc;
}

/* Returns 1; ESTALE if it has to begin anew. Nothing is believed that was read of a program that is no more. */
static int take(struct sp_sampler *sampler, struct sp_error *err)
{
	struct sp_sample *sample = &sampler->sample;
	int rc = refresh_mappings(sampler, err);
	uint64_t looked_ns = sp_now_ns();

	if (rc == 0)
		rc = find_changes(sampler, err);
	if (rc != 1)
		return rc;
	sample_all(sampler);
	read_resident(sampler);
	sample->time_ns = looked_ns - sampler->opened_ns;
	sample->interval_ns = looked_ns - sampler->begun_ns;
	sampler->begun_ns = looked_ns;
	return find_changes(sampler, err);
}

int sp_sampler_take(struct sp_sampler *sampler, struct sp_error *err)
{
	struct sp_sample *sample = &sampler->sample;
	uint64_t begun_ns = sampler->begun_ns;
	int rc = take(sampler, err);

	if (rc != -ESTALE)
		return rc < 0 ? rc : 0;
	rc = begin(sampler, err);
	sample->time_ns = sampler->begun_ns - sampler->opened_ns;
	sample->interval_ns = sampler->begun_ns - begun_ns;
	return rc;
}
