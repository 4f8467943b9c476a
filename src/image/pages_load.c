/*
 * Loading an object: all its contents, given to a sink by a pool of workers; and verifying a store.
 *
 * The work is divided by frames, not by addresses. For each layer of each store of the chain the
 * runs that it has of the object are gone through, and of each frame the parts that no younger store
 * has replaced are gathered: so each frame is read and decoded once, however finely layers and deltas
 * have cut it.
 */
#include "image/page_store.h"
#include "image/pool.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct part {
	uint64_t page;  /* of the object */
	uint32_t place; /* in the frame, pages */
	uint32_t pages;
};

struct load_job {
	const struct sp_page_store *store; /* whose frame */
	uint32_t frame;
	size_t part_count;
	struct part parts[SP_FRAME_PAGES];
};

struct loader {
	const struct sp_page_sink *sink; /* NULL: frames are only checked */
	struct sp_pool *pool;
	unsigned worker_count;
	struct sp_frame_decoder *decoders; /* of each worker; made at its first job */
	struct load_job *filling;
};

/* --- workers --- */

static int hand_out(const struct sp_page_sink *sink, const struct load_job *job,
                    const uint8_t *pages, struct sp_error *err)
{
	for (size_t i = 0; i < job->part_count; i++) {
		const struct part *part = &job->parts[i];
		int rc = sink->data(sink->context, part->page * SP_PAGE_SIZE,
		                    pages + part->place * SP_PAGE_SIZE, part->pages * SP_PAGE_SIZE,
		                    err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int run_load(void *context, unsigned worker, void *work, struct sp_error *err)
{
	struct loader *loader = context;
	struct sp_frame_decoder *decoder = &loader->decoders[worker];
	const struct load_job *job = work;
	const uint8_t *pages;
	int rc;

	if (sp_pool_failed(loader->pool))
		return 0;
	if (!decoder->zstd)
		sp_frame_decoder_init(decoder);
	rc = sp_page_store_frame(job->store, job->frame, decoder, &pages, err);
	if (rc == 0 && loader->sink)
		rc = hand_out(loader->sink, job, pages, err);
	sp_page_store_drop(job->store, job->frame);
	return rc;
}

static int loader_start(struct loader *loader, const struct sp_page_sink *sink, unsigned workers,
                        struct sp_error *err)
{
	struct sp_pool_work work = {
	        .context = loader,
	        .job_size = sizeof(struct load_job),
	        .run = run_load,
	};

	*loader = (struct loader){.sink = sink};
	loader->worker_count = workers ? workers : sp_pool_default_workers();
	loader->decoders = sp_alloc_zeroed(loader->worker_count, sizeof(struct sp_frame_decoder));
	if (sp_pool_start(&loader->pool, &work, loader->worker_count, err) == 0)
		return 0;
	free(loader->decoders);
	return -err->code;
}

static void submit(struct loader *loader)
{
	if (loader->filling)
		sp_pool_submit(loader->pool);
	loader->filling = NULL;
}

static int loader_finish(struct loader *loader, struct sp_error *err)
{
	int rc;

	submit(loader);
	rc = sp_pool_finish(loader->pool, err);
	for (unsigned i = 0; i < loader->worker_count; i++)
		sp_frame_decoder_release(&loader->decoders[i]);
	free(loader->decoders);
	return rc;
}

/* The job for a frame: the one that is being filled, or a new one. */
static struct load_job *job_for(struct loader *loader, const struct sp_page_store *store,
                                uint32_t frame)
{
	if (loader->filling && (loader->filling->store != store || loader->filling->frame != frame))
		submit(loader);
	if (!loader->filling) {
		loader->filling = sp_pool_claim(loader->pool);
		loader->filling->store = store;
		loader->filling->frame = frame;
		loader->filling->part_count = 0;
	}
	return loader->filling;
}

/* --- what is to be loaded --- */

static void add_part(struct loader *loader, const struct sp_resolved *found)
{
	struct load_job *job = job_for(loader, found->store, found->run->frame);
	struct part part = {
	        .page = found->page,
	        .place = (uint32_t)(found->run->place + (found->page - found->run->page)),
	        .pages = (uint32_t)(found->end - found->page),
	};
	struct part *last = &job->parts[job->part_count ? job->part_count - 1 : 0];

	if (job->part_count > 0 && last->page + last->pages == part.page &&
	    last->place + last->pages == part.place)
		last->pages += part.pages;
	else
		job->parts[job->part_count++] = part;
}

/* Adds what is still visible, from the youngest store, of one run of an older one. */
static void add_visible(struct loader *loader, struct sp_page_store *youngest,
                        const struct sp_page_store *level, const struct sp_index_run *run,
                        uint64_t page, uint64_t end)
{
	while (page < end) {
		struct sp_resolved found = sp_page_store_resolve(youngest, run->object, page, end);

		if (found.store == level && found.run == run)
			add_part(loader, &found);
		page = found.end;
	}
}

static void load_layer(struct loader *loader, struct sp_page_store *youngest,
                       const struct sp_page_store *level, uint32_t layer, uint32_t object,
                       uint64_t page, uint64_t end)
{
	const struct sp_index_run *run;
	size_t number = sp_page_index_search(&level->index, object, page);

	while ((run = sp_page_index_run(&level->index, object, number++)) && run->page < end &&
	       !sp_pool_failed(loader->pool)) {
		uint64_t from = run->page > page ? run->page : page;
		uint64_t to = run->page + run->pages < end ? run->page + run->pages : end;

		if (run->state == SP_PAGE_DATA && run->layer == layer)
			add_visible(loader, youngest, level, run, from, to);
	}
}

static void load_level(struct loader *loader, struct sp_page_store *youngest,
                       const struct sp_page_store *level, uint32_t object, struct sp_range within)
{
	for (uint32_t layer = 0; layer < level->index.layers; layer++)
		load_layer(loader, youngest, level, layer, object, within.start / SP_PAGE_SIZE,
		           within.end / SP_PAGE_SIZE);
}

struct zero_visit {
	const struct sp_page_sink *sink;
	struct sp_error *err;
};

static int visit_zero(void *context, const struct sp_page_run *run)
{
	struct zero_visit *visit = context;

	if (run->state != SP_PAGE_ZERO)
		return 0;
	return visit->sink->zero(visit->sink->context, run->range, visit->err);
}

int sp_page_store_load(struct sp_page_store *store, uint32_t object, struct sp_range within,
                       const struct sp_page_sink *sink, unsigned workers, struct sp_error *err)
{
	struct sp_error own = {0};
	struct zero_visit visit = {sink, &own};
	struct loader loader;
	int rc = loader_start(&loader, sink, workers, &own);

	if (rc == 0) {
		for (struct sp_page_store *level = store; level; level = level->parent)
			load_level(&loader, store, level, object, within);
		if (sink->zero)
			rc = sp_page_store_walk(store, object, within, visit_zero, &visit, &own);
		if (rc < 0)
			sp_pool_fail(loader.pool, &own);
		rc = loader_finish(&loader, &own);
	}
	if (rc < 0 && err)
		*err = own;
	return rc;
}

int sp_page_store_verify(struct sp_page_store *store, struct sp_log *log, struct sp_error *err)
{
	struct sp_error own = {0};
	struct loader loader;
	uint64_t done = 0;
	int rc = loader_start(&loader, NULL, 0, &own);

	for (uint32_t i = 0; rc == 0 && i < store->index.frames.count; i++) {
		const struct sp_frame *frame = sp_array_at(&store->index.frames, i);

		if (sp_pool_failed(loader.pool))
			break;
		job_for(&loader, store, i);
		done += frame->size;
		sp_progress(log, "verifying", done, store->index.file_size);
	}
	if (rc == 0)
		rc = loader_finish(&loader, &own);
	sp_progress_end(log);
	if (rc < 0 && err)
		*err = own;
	return rc;
}
