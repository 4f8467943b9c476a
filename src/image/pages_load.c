/*
 * Loading an object: all its contents, given to a sink by a pool of workers; and verifying a store.
 *
 * The work is divided by frames, not by addresses. The runs of the object are sorted by the frames
 * that they are in: so each frame is read and decoded once, however finely rounds and deltas have
 * cut it. Some frames in a row are a job: neighbours often lie in one huge page, which the kernel would
 * clear for each of two workers that come to it at once. Zero pages are work too, for whoever has to
 * make them: many of them are a job.
 */
#include "image/page_store.h"
#include "image/pool.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>

/* Zero pages of one job, about: 4 MiB. */
#define ZERO_PAGES 1024

struct part {
	uint64_t page; /* of the object */
	uint64_t pages;
	uint32_t place; /* in the frame, pages */
};

struct load {
	struct sp_chain_frame frame; /* without a store: the parts are zero pages */
	size_t part_count;
	struct part parts[SP_FRAME_PAGES];
};

struct load_job {
	uint64_t zero_pages;
	size_t count;
	struct load loads[4]; /* a huge page */
};

struct loader {
	const struct sp_page_sink *sink; /* NULL: frames are only checked */
	struct sp_pool *pool;
	unsigned worker_count;
	struct sp_frame_decoder *decoders; /* of each worker; made at its first job */
	struct load_job *filling;
};

/* --- workers --- */

static int hand_out(const struct sp_page_sink *sink, const struct load *load, const uint8_t *pages,
                    struct sp_error *err)
{
	for (size_t i = 0; i < load->part_count; i++) {
		const struct part *part = &load->parts[i];
		int rc = sink->data(sink->context, part->page * SP_PAGE_SIZE,
		                    pages + part->place * SP_PAGE_SIZE, part->pages * SP_PAGE_SIZE,
		                    err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int hand_out_zeros(const struct sp_page_sink *sink, const struct load *load,
                          struct sp_error *err)
{
	for (size_t i = 0; i < load->part_count; i++) {
		const struct part *part = &load->parts[i];
		struct sp_range range = {part->page * SP_PAGE_SIZE,
		                         (part->page + part->pages) * SP_PAGE_SIZE};
		int rc = sink->zero(sink->context, range, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int run_load(const struct loader *loader, const struct load *load,
                    struct sp_frame_decoder *decoder, struct sp_error *err)
{
	const uint8_t *pages;
	int rc;

	if (!load->frame.store)
		return hand_out_zeros(loader->sink, load, err);
	if (!decoder->zstd)
		sp_frame_decoder_init(decoder);
	rc = sp_chain_frame_read(&load->frame, decoder, &pages, err);
	if (rc == 0 && loader->sink)
		rc = hand_out(loader->sink, load, pages, err);
	return rc;
}

static int run_job(void *context, unsigned worker, void *work, struct sp_error *err)
{
	struct loader *loader = context;
	const struct load_job *job = work;
	int rc = 0;

	for (size_t i = 0; i < job->count && rc == 0 && !sp_pool_failed(loader->pool); i++)
		rc = run_load(loader, &job->loads[i], &loader->decoders[worker], err);
	return rc;
}

static int loader_start(struct loader *loader, const struct sp_page_sink *sink, unsigned workers,
                        struct sp_error *err)
{
	struct sp_pool_work work = {
	        .context = loader,
	        .job_size = sizeof(struct load_job),
	        .run = run_job,
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

static struct load *new_load(struct loader *loader, const struct sp_chain_frame *frame)
{
	struct load_job *job = loader->filling;
	struct load *load;

	if (job && job->count == SP_COUNT_OF(job->loads))
		submit(loader);
	if (!loader->filling) {
		loader->filling = sp_pool_claim(loader->pool);
		loader->filling->count = 0;
		loader->filling->zero_pages = 0;
	}
	job = loader->filling;
	load = &job->loads[job->count++];
	load->frame = *frame;
	load->part_count = 0;
	return load;
}

/* What is to be loaded of a frame: the last of the job that is being filled, or a new one. */
static struct load *load_for(struct loader *loader, const struct sp_chain_frame *frame)
{
	struct load_job *job = loader->filling;
	struct load *last = job ? &job->loads[job->count - 1] : NULL;

	if (last && last->frame.store == frame->store && last->frame.number == frame->number)
		return last;
	return new_load(loader, frame);
}

/* --- what is to be loaded --- */

/* The DATA pages of a run are in a frame. */
struct reference {
	uint32_t frame; /* of the chain */
	uint32_t run;   /* number in the index */
};

static int compare_references(const void *left, const void *right)
{
	const struct reference *a = left, *b = right;

	return sp_compare(a->frame, b->frame) ?: sp_compare(a->run, b->run);
}

/* All DATA runs of the object between two pages, by frame. */
static struct sp_array find_references(const struct sp_page_index *index, uint32_t object,
                                       uint64_t page, uint64_t end)
{
	struct sp_array references = SP_ARRAY_OF(struct reference);
	size_t number = sp_page_index_search(index, object, page);
	const struct sp_index_run *run;
	bool sorted = true;
	uint32_t last = 0;

	for (; (run = sp_page_index_run(index, object, number)) && run->page < end; number++) {
		struct reference reference = {run->frame, (uint32_t)number};

		if (run->state != SP_PAGE_DATA)
			continue;
		sorted = sorted && run->frame >= last;
		last = run->frame;
		sp_array_append(&references, &reference);
	}
	if (!sorted)
		sp_array_sort(&references, compare_references);
	return references;
}

static void add_part(struct load *load, const struct sp_index_run *run)
{
	struct part part = {run->page, run->pages, run->place};
	struct part *last = &load->parts[load->part_count ? load->part_count - 1 : 0];

	if (load->part_count > 0 && last->page + last->pages == part.page &&
	    last->place + last->pages == part.place)
		last->pages += part.pages;
	else
		load->parts[load->part_count++] = part;
}

static void load_data(struct loader *loader, const struct sp_page_store *store, uint32_t object,
                      uint64_t page, uint64_t end)
{
	sp_cleanup_array struct sp_array references =
	        find_references(&store->index, object, page, end);

	for (size_t i = 0; i < references.count && !sp_pool_failed(loader->pool); i++) {
		const struct reference *reference = sp_array_at(&references, i);
		const struct sp_index_run *run = sp_array_at(&store->index.runs, reference->run);
		uint64_t run_end = run->page + run->pages;
		struct sp_index_run part = sp_index_run_part(
		        run, run->page > page ? run->page : page, run_end < end ? run_end : end);

		add_part(load_for(loader, sp_page_store_chain_frame(store, run->frame)), &part);
	}
}

static int load_zeros(void *context, const struct sp_page_run *run)
{
	static const struct sp_chain_frame zeros = {0};
	struct loader *loader = context;
	struct load *load;

	if (run->state != SP_PAGE_ZERO)
		return 0;
	load = load_for(loader, &zeros);
	load->parts[load->part_count++] = (struct part){
	        .page = run->range.start / SP_PAGE_SIZE,
	        .pages = sp_range_size(run->range) / SP_PAGE_SIZE,
	};
	loader->filling->zero_pages += sp_range_size(run->range) / SP_PAGE_SIZE;
	if (load->part_count == SP_FRAME_PAGES || loader->filling->zero_pages >= ZERO_PAGES)
		submit(loader);
	return sp_pool_failed(loader->pool);
}

int sp_page_store_load(struct sp_page_store *store, uint32_t object, struct sp_range within,
                       const struct sp_page_sink *sink, unsigned workers, struct sp_error *err)
{
	struct sp_error own = {0};
	struct loader loader;
	int rc = loader_start(&loader, sink, workers, &own);

	if (rc == 0) {
		load_data(&loader, store, object, within.start / SP_PAGE_SIZE,
		          within.end / SP_PAGE_SIZE);
		if (sink->zero)
			sp_page_store_walk(store, object, within, load_zeros, &loader, &own);
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
		struct sp_chain_frame place = {store, i};

		if (sp_pool_failed(loader.pool))
			break;
		load_for(&loader, &place);
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
